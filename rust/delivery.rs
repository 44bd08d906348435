//! What a waiting child is sent: the answer to its blocking read, and to the adoption behind it (`adopt.lua`).

use crate::envelope::MAX_BAND;
use crate::resp::Replies;

/// A task that was read and adopted.
#[derive(Debug, PartialEq, Eq)]
pub struct Adopted<'a> {
    /// Its stream entry.
    pub entry: &'a [u8],
    /// Its id.
    pub id: &'a [u8],
    /// Its live value, as the adoption wrote it.
    pub token: &'a [u8],
    /// Its band.
    pub band: u8,
    /// Its envelope.
    pub envelope: &'a [u8],
}

/// Reads both answers where they are all that is there, of one entry that was adopted; None for anything else.
#[must_use]
pub fn parse(answers: &[u8]) -> Option<Adopted<'_>> {
    let mut replies = Replies::new(answers);
    // streams, the one stream, its entries, the one entry, its fields
    let shape = [replies.array()?, replies.array()?];
    let _stream = replies.bulk()?;
    let read = [replies.array()?, replies.array()?];
    let entry = replies.bulk()?;
    let fields = replies.array()?;
    let (id, envelope) = (replies.bulk()?, replies.bulk()?);
    if shape != [1, 2] || read != [1, 2] || fields != 2 || replies.array()? != 7 {
        return None;
    }
    let (codes, _now) = (replies.bulk()?, replies.bulk()?);
    let same = codes.is_empty() && replies.bulk()? == entry && replies.bulk()? == id;
    let token = replies.bulk()?;
    let band = u8::try_from(replies.integer()?).ok().filter(|band| *band <= MAX_BAND)?;
    let whole = same && replies.bulk()? == envelope && replies.is_empty();
    whole.then_some(Adopted {
        entry,
        id,
        token,
        band,
        envelope,
    })
}

#[cfg(test)]
mod tests {
    use super::{Adopted, parse};

    const READ: &str = "*1\r\n*2\r\n$3\r\ns:5\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$2\r\nid\r\n$4\r\nbody\r\n";
    const ADOPTION: &str = "*7\r\n$0\r\n\r\n$1\r\n8\r\n$3\r\n7-0\r\n$2\r\nid\r\n$5\r\nr:1:0\r\n:5\r\n$4\r\nbody\r\n";

    #[test]
    fn one_entry_that_was_adopted_is_read() {
        let both = [READ, ADOPTION].concat();
        let expected = Adopted {
            entry: b"7-0",
            id: b"id",
            token: b"r:1:0",
            band: 5,
            envelope: b"body",
        };
        assert_eq!(parse(both.as_bytes()), Some(expected));
    }

    #[test]
    fn anything_else_is_left_to_others() {
        let both = [READ, ADOPTION].concat();
        for length in 0..both.len() {
            assert_eq!(parse(&both.as_bytes()[..length]), None, "{length} bytes");
        }
        for odd in [
            [READ, "*1\r\n$0\r\n\r\n"].concat(),
            [READ, "-NOSCRIPT No matching script.\r\n"].concat(),
            ["*-1\r\n", ADOPTION].concat(),
            ["-NOGROUP No such key\r\n", ADOPTION].concat(),
            [&both, "+more\r\n"].concat(),
            both.replacen("7-0", "6-0", 1),
            both.replacen("$2\r\nid", "$2\r\nxy", 1),
            both.replacen("body", "BODY", 1),
            both.replace(":5\r\n$4", ":10\r\n$4"),
            both.replacen("*1", "*2", 1),
            both.replace("*7", "*8"),
        ] {
            assert_eq!(parse(odd.as_bytes()), None, "{odd}");
        }
    }
}
