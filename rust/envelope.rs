//! The envelope: what a worker must know about a task, and its payload; never changed after the enqueue.

use crate::error::CoreError;
use crate::wire::{Reader, WIRE_VERSION};
use std::ops::Range;

/// `retention_ms` of a result that never expires: 2**53 - 1, the largest integer that Lua holds exactly.
pub const FOREVER_MS: u64 = (1 << 53) - 1;
/// Highest priority band.
pub const MAX_BAND: u8 = 9;

const NO_DEAD_LETTER: u8 = 1;

/// The fields in front of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Name of the task.
    pub task_type: &'a str,
    /// Priority band, 0-9.
    pub band: u8,
    /// Most attempts that are charged.
    pub max_attempts: u16,
    /// Time limit of an attempt; 0 = none.
    pub timeout_ms: u32,
    /// How long the result is kept: 0 = not at all, at most [`FOREVER_MS`].
    pub retention_ms: u64,
    /// Whether a final failure goes to the dead letters.
    pub dead_letter: bool,
    /// A JSON object, or empty.
    pub extras: &'a [u8],
}

impl Head<'_> {
    /// The bytes in front of the payload.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        let name = self.task_type.as_bytes();
        let name_length = match u8::try_from(name.len()) {
            Ok(length) if length > 0 => length,
            _ => {
                return Err(CoreError::invalid(
                    "task_type",
                    "the name must have 1 to 255 bytes of UTF-8",
                ));
            }
        };
        if self.band > MAX_BAND {
            return Err(CoreError::invalid("band", "must be 0 to 9"));
        }
        if self.retention_ms > FOREVER_MS {
            return Err(CoreError::invalid(
                "retention_ms",
                format!("must be 0 to {FOREVER_MS} (for ever)"),
            ));
        }
        let mut out = Vec::with_capacity(22 + name.len() + self.extras.len());
        out.extend_from_slice(&[WIRE_VERSION, self.band]);
        out.extend_from_slice(&self.max_attempts.to_le_bytes());
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        out.extend_from_slice(&self.retention_ms.to_le_bytes());
        out.extend_from_slice(&[if self.dead_letter { 0 } else { NO_DEAD_LETTER }, name_length]);
        out.extend_from_slice(name);
        crate::wire::put_block(&mut out, self.extras, "extras")?;
        Ok(out)
    }
}

/// A parsed envelope; `extras` and `payload` are ranges of the bytes it was parsed from, so that they can be cut out
/// when somebody asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The fields in front of the payload.
    pub head: Head<'a>,
    /// Where the extras are.
    pub extras: Range<usize>,
    /// Where the payload begins.
    pub payload_start: usize,
}

/// Reads an envelope; the payload is not looked at.
pub fn parse(bytes: &[u8]) -> Result<Envelope<'_>, CoreError> {
    let mut reader = Reader::new(bytes, "envelope");
    reader.version()?;
    let band = reader.u8("band")?;
    if band > MAX_BAND {
        return Err(reader.damaged("band", "it must be 0 to 9"));
    }
    let max_attempts = reader.u16("max_attempts")?;
    let timeout_ms = reader.u32("timeout_ms")?;
    let retention_ms = reader.u64("retention_ms")?;
    if retention_ms > FOREVER_MS {
        return Err(reader.damaged("retention_ms", "it is larger than `for ever`"));
    }
    let flags = reader.u8("flags")?;
    let name_length = reader.u8("task_type")?;
    let name = reader.take(usize::from(name_length), "task_type")?;
    let Ok(task_type) = std::str::from_utf8(name) else {
        return Err(reader.damaged("task_type", "it is not UTF-8"));
    };
    if task_type.is_empty() {
        return Err(reader.damaged("task_type", "it is empty"));
    }
    let extras = reader.block("extras")?;
    let payload_start = reader.position();
    Ok(Envelope {
        head: Head {
            task_type,
            band,
            max_attempts,
            timeout_ms,
            retention_ms,
            dead_letter: flags & NO_DEAD_LETTER == 0,
            extras,
        },
        extras: payload_start - extras.len()..payload_start,
        payload_start,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{FOREVER_MS, Head, parse};

    pub(crate) fn head() -> Head<'static> {
        Head {
            task_type: "mail.send",
            band: 5,
            max_attempts: 3,
            timeout_ms: 60_000,
            retention_ms: FOREVER_MS,
            dead_letter: false,
            extras: b"{\"headers\":{}}",
        }
    }

    pub(crate) fn bytes() -> Vec<u8> {
        let mut bytes = head().encode().unwrap_or_default();
        bytes.extend_from_slice(b"{\"to\":1}");
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = bytes();
        let envelope = parse(&bytes);
        assert_eq!(envelope.as_ref().map(|envelope| envelope.head.clone()), Ok(head()));
        assert_eq!(
            envelope.map(|envelope| &bytes[envelope.payload_start..]),
            Ok(&b"{\"to\":1}"[..])
        );
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let expected =
            b"\x01\x05\x03\x00\x60\xea\x00\x00\xff\xff\xff\xff\xff\xff\x1f\x00\x01\x09mail.send\x0e\x00\x00\x00";
        assert!(bytes().starts_with(expected));
    }

    #[test]
    fn every_cut_is_refused() {
        let length = head().encode().map(|bytes| bytes.len());
        let bytes = bytes();
        for cut in 0..length.unwrap_or_default() {
            assert!(parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn both_versions_are_named() {
        let error = parse(b"\x07rest").map_err(|error| error.to_string());
        let expected = "envelope.version: unknown envelope version 7; this dtq reads version 1: \
                        run workers and clients of one release";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = "x".repeat(256);
        for (wrong, field) in [
            (
                Head {
                    task_type: "",
                    ..head()
                },
                "task_type",
            ),
            (
                Head {
                    task_type: &long,
                    ..head()
                },
                "task_type",
            ),
            (Head { band: 10, ..head() }, "band"),
            (
                Head {
                    retention_ms: FOREVER_MS + 1,
                    ..head()
                },
                "retention_ms",
            ),
        ] {
            assert_eq!(wrong.encode().map_err(|error| error.field), Err(field.to_owned()));
        }
    }
}
