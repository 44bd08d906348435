//! Writing JSON: strings, numbers, and the path by which a refused value is named.

use crate::error::CoreError;

/// Deepest nesting of lists and dicts; also what ends a cycle.
pub const MAX_DEPTH: usize = 128;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// One step from a container to a value inside it.
#[derive(Clone, Debug)]
pub enum Step {
    /// A key of a dict.
    Key(String),
    /// A position in a list.
    Index(usize),
}

/// Why a value was refused; each container that the error passes adds its step, innermost first.
#[derive(Debug)]
pub struct Refusal {
    /// What is wrong, and the way out.
    pub problem: String,
    /// The whole is too large: no single place is to blame.
    pub too_large: bool,
    steps: Vec<Step>,
}

impl Refusal {
    /// A value that is no JSON.
    #[must_use]
    pub fn new(problem: String) -> Box<Self> {
        Box::new(Self {
            problem,
            too_large: false,
            steps: Vec::new(),
        })
    }

    /// The limit is exceeded.
    #[must_use]
    pub fn too_large() -> Box<Self> {
        Box::new(Self {
            problem: String::new(),
            too_large: true,
            steps: Vec::new(),
        })
    }

    /// Adds the step that leads here.
    #[must_use]
    pub fn inside(mut self: Box<Self>, step: Step) -> Box<Self> {
        self.steps.push(step);
        self
    }

    /// The error, with the path that starts at `root`.
    #[must_use]
    pub fn into_error(self, root: &str) -> CoreError {
        CoreError::invalid(path(root, &self.steps), self.problem)
    }
}

/// Writes a path as one would write it in Python; the middle of a long one is left out.
fn path(root: &str, innermost_first: &[Step]) -> String {
    const SHOWN: usize = 8;
    let mut path = root.to_owned();
    let count = innermost_first.len();
    for (position, step) in innermost_first.iter().rev().enumerate() {
        if count > 2 * SHOWN && (SHOWN..count - SHOWN).contains(&position) {
            if position == SHOWN {
                path.push('…');
            }
            continue;
        }
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Key(key) if is_name(key) => {
                path.push('.');
                path.push_str(key);
            }
            Step::Key(key) => {
                let shown: String = key.chars().take(40).collect();
                let more = if shown.len() < key.len() { "…" } else { "" };
                path.push_str(&format!("[{:?}]", shown + more));
            }
        }
    }
    path
}

fn is_name(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= 40
        && !key.as_bytes()[0].is_ascii_digit()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Appends a quoted string, escaping only what JSON demands.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut copied = 0;
    let mut position = 0;
    while let Some(found) = next_escape(bytes, position) {
        out.extend_from_slice(&bytes[copied..found]);
        put_escape(out, bytes[found]);
        position = found + 1;
        copied = position;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// The next byte from `position` on that cannot stand in a JSON string: a quote, a backslash or a control character.
pub(crate) fn next_escape(bytes: &[u8], mut position: usize) -> Option<usize> {
    while let Some(eight) = bytes.get(position..).and_then(<[u8]>::first_chunk::<8>) {
        // Eight bytes at once: a byte's high bit is set where it is below 0x20, a quote or a backslash. A borrow may
        // set it in a byte above a hit too, never below, so the lowest one is right.
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let hits = ((word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash))
            & HIGH;
        if hits != 0 {
            return Some(position + (hits.trailing_zeros() / 8) as usize);
        }
        position += 8;
    }
    let rest = bytes.get(position..)?;
    rest.iter()
        .position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\')
        .map(|found| position + found)
}

fn put_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends an integer.
pub fn put_integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the shortest digits that read back as the same float; false (and nothing appended) if it is not finite.
pub fn put_float(out: &mut Vec<u8>, number: f64) -> bool {
    if !number.is_finite() {
        return false;
    }
    out.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::{Refusal, Step, put_float, put_string};

    fn string(text: &str) -> String {
        let mut out = Vec::new();
        put_string(&mut out, text);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn only_what_must_be_is_escaped() {
        assert_eq!(
            string("plain, 12345678 and ünïcödé \u{7f}"),
            "\"plain, 12345678 and ünïcödé \u{7f}\""
        );
        assert_eq!(
            string("a\"b\\c\n\r\t\u{8}\u{c}\0\u{1f}"),
            r#""a\"b\\c\n\r\t\b\f\u0000\u001f""#
        );
    }

    #[test]
    fn an_escape_is_found_at_every_position() {
        for length in 0..40 {
            for position in 0..length {
                for (character, escaped) in [('"', "\\\""), ('\\', "\\\\"), ('\n', "\\n"), ('\u{1f}', "\\u001f")] {
                    let text = "!#[]~\u{7f} é".repeat(8);
                    let mut characters: Vec<char> = text.chars().take(length).collect();
                    let mut expected: Vec<String> = characters.iter().map(char::to_string).collect();
                    characters[position] = character;
                    expected[position] = escaped.to_owned();
                    let text: String = characters.into_iter().collect();
                    assert_eq!(string(&text), format!("\"{}\"", expected.concat()));
                }
            }
        }
    }

    #[test]
    fn floats_must_be_finite() {
        let mut out = Vec::new();
        assert!(put_float(&mut out, 1e16) && !put_float(&mut out, f64::NAN) && !put_float(&mut out, f64::INFINITY));
        assert_eq!(out, b"1e+16");
    }

    #[test]
    fn a_path_reads_like_python() {
        let refusal = Refusal::new("no".to_owned())
            .inside(Step::Key("price".to_owned()))
            .inside(Step::Index(3))
            .inside(Step::Key("two words".to_owned()))
            .inside(Step::Key("items".to_owned()));
        assert_eq!(
            refusal.into_error("payload").to_string(),
            "payload.items[\"two words\"][3].price: no"
        );
    }

    #[test]
    fn a_long_path_is_shortened() {
        let mut refusal = Refusal::new("no".to_owned());
        for _ in 0..128 {
            refusal = refusal.inside(Step::Key("a".repeat(60)));
        }
        assert!(refusal.into_error("payload").field.len() < 1000);
    }
}
