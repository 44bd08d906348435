//! Reading little-endian fields from bytes that may be damaged.

use crate::error::CoreError;

/// The version byte that envelopes and records begin with.
pub const WIRE_VERSION: u8 = 1;

/// Takes fields off the front of `bytes`; every error names the field and where it should have been.
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which are a `what` ("envelope", "record").
    #[must_use]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            bytes,
            position: 0,
            what,
        }
    }

    /// Checks the version byte, and names both versions if they differ.
    pub fn version(&mut self) -> Result<(), CoreError> {
        let [version] = self.array::<1>("version")?;
        if version == WIRE_VERSION {
            return Ok(());
        }
        Err(CoreError::invalid(
            format!("{}.version", self.what),
            format!(
                "unknown {} version {version}; this dtq reads version {WIRE_VERSION}: run workers and clients of one release",
                self.what
            ),
        ))
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize, field: &str) -> Result<&'a [u8], CoreError> {
        let rest = &self.bytes[self.position..];
        let Some(taken) = rest.get(..length) else {
            return Err(self.damaged(
                field,
                &format!("{length} bytes needed at offset {}, {} left", self.position, rest.len()),
            ));
        };
        self.position += length;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], CoreError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    /// A byte.
    pub fn u8(&mut self, field: &str) -> Result<u8, CoreError> {
        self.array(field).map(u8::from_le_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self, field: &str) -> Result<u16, CoreError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &str) -> Result<u32, CoreError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &str) -> Result<u64, CoreError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A u32 length and that many bytes.
    pub fn block(&mut self, field: &str) -> Result<&'a [u8], CoreError> {
        let length = self.u32(field)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), field)
    }

    /// Everything that is left.
    #[must_use]
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.position..];
        self.position = self.bytes.len();
        rest
    }

    /// How far the reader has come.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// An error that names the field.
    #[must_use]
    pub fn damaged(&self, field: &str, problem: &str) -> CoreError {
        CoreError::invalid(
            format!("{}.{field}", self.what),
            format!("the {} is damaged: {problem}", self.what),
        )
    }
}

/// A decimal number without sign, as Redis writes it; None for anything else.
#[must_use]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A stream entry id, `ms-seq`.
#[must_use]
pub fn parse_entry(entry: &[u8]) -> Option<(u64, u64)> {
    let dash = entry.iter().position(|byte| *byte == b'-')?;
    Some((parse_u64(&entry[..dash])?, parse_u64(&entry[dash + 1..])?))
}

/// Appends a u32 length and the bytes; `field` is named when they are longer than a u32 tells.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8], field: &str) -> Result<(), CoreError> {
    let length = u32::try_from(bytes.len())
        .map_err(|_| CoreError::invalid(field, "longer than 4 GiB, the most this field holds"))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Reader, parse_entry, parse_u64};

    #[test]
    fn numbers_are_strict() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"18446744073709551616", b"-1", b"+1", b"1 ", b"a"] {
            assert_eq!(parse_u64(wrong), None);
        }
        assert_eq!(parse_entry(b"12-3"), Some((12, 3)));
        for wrong in [&b""[..], b"12", b"-", b"12-", b"1-2-3"] {
            assert_eq!(parse_entry(wrong), None);
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = Reader::new(b"\x01\x02", "record")
            .u64("created_ms")
            .map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("record.created_ms: the record is damaged: 8 bytes needed at offset 0, 2 left".to_owned())
        );
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused() {
        assert!(Reader::new(b"\xff\xff\xff\xffabc", "envelope").block("extras").is_err());
    }
}
