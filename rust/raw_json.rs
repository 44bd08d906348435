//! Looks for what a JSON reader would change without a word: keys that stand twice, numbers beyond their range.

use crate::error::CoreError;
use crate::json::{Refusal, Step, next_escape};
use std::borrow::Cow;

/// Deepest nesting that is followed: what orjson reads.
const DEEPEST: usize = 1024;
/// Up to here the keys of an object are compared in pairs, which is quicker than sorting them.
const FEW_KEYS: usize = 8;
/// An integer or float of fewer characters, without an exponent, is in range.
const SHORT_INTEGER: usize = 19;
const SHORT_FLOAT: usize = 300;

type Checked = Result<(), Box<Refusal>>;

/// Checks JSON before a reader gets it; `root` names it in errors.
///
/// Text that is no JSON passes: it is the reader's to refuse.
///
/// # Errors
///
/// The path of the first object with a key that stands twice, or number that a reader would have to change.
pub fn check(text: &[u8], root: &str) -> Result<(), CoreError> {
    let mut reader = Reader {
        text,
        at: 0,
        keys: Vec::new(),
    };
    match reader.value(0) {
        Err(refusal) if refusal.problem.is_empty() => Ok(()),
        checked => checked.map_err(|refusal| refusal.into_error(root)),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    /// Keys of all objects that are open, those of the innermost last.
    keys: Vec<Cow<'a, [u8]>>,
}

impl<'a> Reader<'a> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn value(&mut self, depth: usize) -> Checked {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z') => {
                while self.text.get(self.at).is_some_and(u8::is_ascii_lowercase) {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(no_json()),
        }
    }

    fn enter(&mut self, depth: usize) -> Checked {
        if depth >= DEEPEST {
            return Err(Refusal::new(format!("nested deeper than {DEEPEST} levels; flatten it")));
        }
        self.at += 1;
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Checked {
        self.enter(depth)?;
        let first = self.keys.len();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(no_json());
            }
            let (raw, escaped) = self.string()?;
            let place = self.keys.len();
            self.keys.push(if escaped {
                Cow::Owned(unescaped(raw))
            } else {
                Cow::Borrowed(raw)
            });
            if self.peek() != Some(b':') {
                return Err(no_json());
            }
            self.at += 1;
            if let Err(refusal) = self.value(depth + 1) {
                return Err(refusal.inside(Step::Key(
                    self.keys.get(place).map_or_else(String::new, |key| shown(key)),
                )));
            }
            if self.ends(b'}')? {
                break;
            }
        }
        let twice = repeated(&mut self.keys[first..]);
        self.keys.truncate(first);
        match twice {
            None => Ok(()),
            Some(key) => Err(Refusal::new(format!(
                "the key {key:?} stands twice in one object; remove one"
            ))),
        }
    }

    fn list(&mut self, depth: usize) -> Checked {
        self.enter(depth)?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        for index in 0.. {
            self.value(depth + 1)
                .map_err(|refusal| refusal.inside(Step::Index(index)))?;
            if self.ends(b']')? {
                break;
            }
        }
        Ok(())
    }

    /// Steps over a comma, or over the bracket that ends the container: true for the latter.
    fn ends(&mut self, bracket: u8) -> Result<bool, Box<Refusal>> {
        let found = self.peek();
        self.at += 1;
        match found {
            Some(b',') => Ok(false),
            Some(byte) if byte == bracket => Ok(true),
            _ => Err(no_json()),
        }
    }

    /// What stands between the quotes, and whether it holds an escape.
    fn string(&mut self) -> Result<(&'a [u8], bool), Box<Refusal>> {
        let start = self.at + 1;
        let (mut at, mut escaped) = (start, false);
        while let Some(found) = next_escape(self.text, at) {
            match self.text[found] {
                b'"' => {
                    self.at = found + 1;
                    return Ok((&self.text[start..found], escaped));
                }
                b'\\' => {
                    escaped = true;
                    at = found + 2;
                }
                _ => at = found + 1, // a control character, which the reader refuses
            }
        }
        Err(no_json())
    }

    fn number(&mut self) -> Checked {
        let start = self.at;
        let (mut fraction, mut exponent) = (false, false);
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'0'..=b'9' | b'-' | b'+' => {}
                b'.' => fraction = true,
                b'e' | b'E' => exponent = true,
                _ => break,
            }
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        if !fraction && !exponent {
            if digits.len() < SHORT_INTEGER {
                return Ok(());
            }
            let text = str::from_utf8(digits).unwrap_or_default();
            if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
                return Ok(());
            }
            return Err(Refusal::new(
                "the integer is outside -2**63 ... 2**64-1; pass it as a string".to_owned(),
            ));
        }
        if !exponent && digits.len() < SHORT_FLOAT {
            return Ok(());
        }
        let text = str::from_utf8(digits).unwrap_or_default();
        if text.parse::<f64>().is_ok_and(f64::is_finite) {
            return Ok(());
        }
        Err(Refusal::new(
            "the number is beyond the range of a double; pass it as a string".to_owned(),
        ))
    }
}

/// What ends the look at text that is no JSON; it has no problem to tell.
#[cold]
fn no_json() -> Box<Refusal> {
    Refusal::new(String::new())
}

/// A key that stands twice among these, whose order may be changed.
fn repeated(keys: &mut [Cow<'_, [u8]>]) -> Option<String> {
    if keys.len() <= FEW_KEYS {
        let mut rest = &keys[..];
        while let [key, others @ ..] = rest {
            if others.contains(key) {
                return Some(shown(key));
            }
            rest = others;
        }
        return None;
    }
    keys.sort_unstable();
    keys.windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| shown(&pair[0]))
}

/// A key as a message shows it: never long.
fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).chars().take(60).collect()
}

/// The text that a string with escapes stands for; half a surrogate pair, which readers refuse, as U+FFFD.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [letter, after @ ..] = rest else { break };
        rest = after;
        match letter {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => {
                let (character, after) = unicode(rest);
                rest = after;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(*other),
        }
    }
    out
}

/// The character that four hexadecimal digits stand for, or eight and `\u` between them, and what follows.
fn unicode(digits: &[u8]) -> (char, &[u8]) {
    let (first, after) = unit(digits);
    if let [b'\\', b'u', low @ ..] = after {
        let (second, end) = unit(low);
        if let Some(Ok(character)) = char::decode_utf16([first, second]).next()
            && character.len_utf16() == 2
        {
            return (character, end);
        }
    }
    (
        char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER),
        after,
    )
}

fn unit(digits: &[u8]) -> (u16, &[u8]) {
    let (four, after) = digits.split_at(digits.len().min(4));
    let text = str::from_utf8(four).unwrap_or_default();
    (u16::from_str_radix(text, 16).unwrap_or(0xfffd), after)
}

#[cfg(test)]
mod tests {
    use super::check;

    fn problem(text: &str) -> String {
        check(text.as_bytes(), "body")
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn what_comes_back_as_it_was_passes() {
        for text in [
            "{}",
            "[]",
            " { \"a\" : [ 1 , -2.5e3, true, false, null, \"x\" ] , \"b\" : { \"a\" : {} } } ",
            "18446744073709551615",
            "-9223372036854775808",
            "1.7976931348623157e308",
            "\"\\\"\\\\\\u0041\"",
            "[{\"a\":1},{\"a\":1}]",
            "{\"a\":{\"a\":{\"a\":1}}}",
        ] {
            assert_eq!(problem(text), "", "{text}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_found_with_its_place() {
        assert_eq!(
            problem("{\"payload\":{\"items\":[0,{\"a\":1,\"b\":2,\"a\":3}]}}"),
            "body.payload.items[1]: the key \"a\" stands twice in one object; remove one"
        );
        assert_eq!(
            problem("{\"a\":{},\"a\":{}}"),
            "body: the key \"a\" stands twice in one object; remove one"
        );
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        for text in [
            "{\"a\":1,\"\\u0061\":2}",
            "{\"\u{1f600}\":1,\"\\ud83d\\ude00\":2}",
            "{\"\\/\":1,\"/\":2}",
            "{\"\\n\":1,\"\\u000a\":2}",
        ] {
            assert!(problem(text).contains("stands twice"), "{text}");
        }
        assert_eq!(
            problem("{\"\\u0061\":1,\"\\u0062\":2,\"\\ud83d\\ude00\":3,\"\\ud83d\\ude01\":3}"),
            ""
        );
    }

    #[test]
    fn many_keys_are_compared_too() {
        let mut members: Vec<String> = (0..1000).map(|number| format!("\"k{number}\":{number}")).collect();
        assert_eq!(problem(&format!("{{{}}}", members.join(","))), "");
        members.push("\"k77\":0".to_owned());
        assert!(problem(&format!("{{{}}}", members.join(","))).contains("\"k77\" stands twice"));
    }

    #[test]
    fn numbers_that_would_change_are_refused_with_their_place() {
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "1000000000000000000000000000000",
        ] {
            assert!(
                problem(&format!("{{\"a\":[{number}]}}")).starts_with("body.a[0]: the integer is outside"),
                "{number}"
            );
        }
        for number in ["1e400", "-1E400", "1.5e309"] {
            assert!(problem(number).contains("beyond the range of a double"), "{number}");
        }
        assert!(problem(&format!("1{}.0", "0".repeat(310))).contains("beyond the range of a double"));
    }

    #[test]
    fn no_json_at_all_ends_too() {
        for text in [
            "",
            "{",
            "[",
            "{\"a\"",
            "{\"a\":",
            "[1",
            "[1 2]",
            "{\"a\" 1}",
            "{1:2}",
            "\"",
            "\"\\",
            "\"\\u",
            "}",
            "{\"\\u12",
        ] {
            assert_eq!(problem(text), "", "{text}");
        }
        assert!(problem(&"[".repeat(5000)).contains("nested deeper"));
    }
}
