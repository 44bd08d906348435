//! Redis commands in wire form (RESP): arrays of bulk strings.

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

#[cfg(test)]
mod tests {
    use super::{put_array, put_bulk, put_integer};

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
