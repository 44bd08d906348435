//! The record: what is kept of a task that is not in a stream (scheduled, finished, dead), or of its earlier attempts.

use crate::error::CoreError;
use crate::wire::{Reader, WIRE_VERSION, put_block};

/// Status codes of a record, in the byte that Lua reads.
pub mod status {
    /// The task is live; the record only holds the lines of earlier attempts.
    pub const HISTORY_ONLY: u8 = 0;
    /// Waits for a later attempt.
    pub const RETRYING: u8 = 4;
    /// Ended well.
    pub const SUCCEEDED: u8 = 5;
    /// Ended badly, dead-lettering off.
    pub const FAILED: u8 = 6;
    /// Ended badly; an entry stands in the dead letters.
    pub const DEAD_LETTERED: u8 = 7;
    /// Cancelled.
    pub const CANCELLED: u8 = 8;
    /// Its time had passed before it ran.
    pub const EXPIRED: u8 = 9;
}

/// A record; 0 in a time means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// One of [`status`].
    pub status: u8,
    /// The attempt it tells of.
    pub attempt: u16,
    /// Attempts that were not charged.
    pub released: u16,
    /// When the task was made.
    pub created_ms: u64,
    /// When the attempt began.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Dead-letter entry id, or empty.
    pub place: &'a [u8],
    /// The live value that wrote the record.
    pub token: &'a [u8],
    /// A JSON object.
    pub detail: &'a [u8],
    /// The task's envelope.
    pub envelope: &'a [u8],
    /// Lines of JSON, one for each earlier attempt.
    pub history: &'a [u8],
}

impl Record<'_> {
    /// Bytes that `encode` appends.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let parts = [self.place, self.token, self.detail, self.envelope, self.history];
        43 + parts.iter().map(|part| part.len()).sum::<usize>()
    }

    /// Appends the bytes; on an error `out` holds a part of them.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), CoreError> {
        if self.status > status::EXPIRED {
            return Err(CoreError::invalid("status", "must be 0 to 9"));
        }
        let place_length =
            u8::try_from(self.place.len()).map_err(|_| CoreError::invalid("place", "must have at most 255 bytes"))?;
        out.extend_from_slice(&[WIRE_VERSION, self.status]);
        out.extend_from_slice(&self.attempt.to_le_bytes());
        out.extend_from_slice(&self.released.to_le_bytes());
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&self.started_ms.to_le_bytes());
        out.extend_from_slice(&self.ended_ms.to_le_bytes());
        out.push(place_length);
        out.extend_from_slice(self.place);
        put_block(out, self.token, "token")?;
        put_block(out, self.detail, "detail")?;
        put_block(out, self.envelope, "envelope")?;
        out.extend_from_slice(self.history);
        Ok(())
    }
}

/// Reads a record; what is inside the blocks is not looked at.
pub fn parse(bytes: &[u8]) -> Result<Record<'_>, CoreError> {
    let mut reader = Reader::new(bytes, "record");
    reader.version()?;
    let status = reader.u8("status")?;
    if status > status::EXPIRED {
        return Err(reader.damaged("status", "it must be 0 to 9"));
    }
    let attempt = reader.u16("attempt")?;
    let released = reader.u16("released")?;
    let created_ms = reader.u64("created_ms")?;
    let started_ms = reader.u64("started_ms")?;
    let ended_ms = reader.u64("ended_ms")?;
    let place_length = reader.u8("place")?;
    let place = reader.take(usize::from(place_length), "place")?;
    let token = reader.block("token")?;
    let detail = reader.block("detail")?;
    let envelope = reader.block("envelope")?;
    let history = reader.rest();
    Ok(Record {
        status,
        attempt,
        released,
        created_ms,
        started_ms,
        ended_ms,
        place,
        token,
        detail,
        envelope,
        history,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Record, parse, status};

    pub(crate) fn record() -> Record<'static> {
        Record {
            status: status::DEAD_LETTERED,
            attempt: 3,
            released: 1,
            created_ms: 1,
            started_ms: 2,
            ended_ms: 3,
            place: b"12-0",
            token: b"r:3:1:9-0:w.1.1:7:2:",
            detail: b"{\"cause\":\"error\"}",
            envelope: b"envelope",
            history: b"{}\n{}\n",
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        assert_eq!(record().encode(&mut bytes), Ok(()));
        assert_eq!(bytes.len(), record().byte_size());
        assert_eq!(parse(&bytes), Ok(record()));
    }

    #[test]
    fn every_cut_is_refused() {
        let mut bytes = Vec::new();
        let record = Record {
            history: b"",
            ..record()
        };
        assert_eq!(record.encode(&mut bytes), Ok(()));
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err());
        }
    }
}
