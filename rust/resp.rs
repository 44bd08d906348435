//! Redis' wire form (RESP): commands, which are arrays of bulk strings, and replies.

use crate::wire::parse_u64;

/// Appends `*count`.
pub fn put_array(out: &mut Vec<u8>, count: usize) {
    put_length(out, b'*', count);
}

/// Appends one argument.
pub fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    put_bulk_length(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an argument whose bytes, and a CR LF, the caller appends.
pub fn put_bulk_length(out: &mut Vec<u8>, length: usize) {
    put_length(out, b'$', length);
}

/// Appends a number as an argument.
pub fn put_integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    put_bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

fn put_length(out: &mut Vec<u8>, sigil: u8, length: usize) {
    out.push(sigil);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Takes values off the front of what the server has sent; None where another kind of value stands, or not all of it.
pub struct Replies<'a> {
    rest: &'a [u8],
}

impl<'a> Replies<'a> {
    /// Reads `bytes` from their beginning.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The head of an array: how many values follow that belong to it.
    pub fn array(&mut self) -> Option<usize> {
        self.number(b'*')
    }

    /// A bulk string.
    pub fn bulk(&mut self) -> Option<&'a [u8]> {
        let length = self.number(b'$')?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest.strip_prefix(b"\r\n")?;
        Some(bytes)
    }

    /// An integer that is not negative.
    pub fn integer(&mut self) -> Option<usize> {
        self.number(b':')
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn number(&mut self, sigil: u8) -> Option<usize> {
        let line = self.rest.strip_prefix(&[sigil])?;
        let end = line.iter().position(|byte| *byte == b'\r')?;
        let (digits, rest) = line.split_at(end);
        self.rest = rest.strip_prefix(b"\r\n")?;
        parse_u64(digits).and_then(|number| usize::try_from(number).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::{Replies, put_array, put_bulk, put_integer};

    #[test]
    fn replies_are_taken_one_by_one() {
        let mut replies = Replies::new(b"*2\r\n$2\r\n\r\n\r\n:12\r\n$0\r\n\r\n");
        assert_eq!(replies.array(), Some(2));
        assert_eq!(replies.bulk(), Some(&b"\r\n"[..]));
        assert_eq!(replies.integer(), Some(12));
        assert!(!replies.is_empty());
        assert_eq!(replies.bulk(), Some(&b""[..]));
        assert!(replies.is_empty());
    }

    #[test]
    fn what_is_no_such_reply_or_not_all_of_it_is_none() {
        for bytes in [
            &b""[..],
            b"$",
            b"$3",
            b"$3\r\nab",
            b"$3\r\nabc",
            b"$3\r\nabc\r",
            b"$3\r\nabcd\r\n",
            b"$-1\r\n",
            b"$99999999999999999999\r\n",
            b"$18446744073709551615\r\nx\r\n",
            b":3\r\n",
            b"-ERR no\r\n",
        ] {
            assert_eq!(Replies::new(bytes).bulk(), None, "{bytes:?}");
        }
        assert_eq!(Replies::new(b"*-1\r\n").array(), None);
        assert_eq!(Replies::new(b":-1\r\n").integer(), None);
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        put_array(&mut out, 3);
        put_bulk(&mut out, b"SET");
        put_bulk(&mut out, b"");
        put_integer(&mut out, -12_i64);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\n-12\r\n");
    }
}
