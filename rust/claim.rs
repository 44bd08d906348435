//! The live value of a running task, which is also the token that its settle names.

use crate::wire::parse_u64;

/// A parsed `r:attempt:released:entry:consumer:seq:started_ms:tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveValue {
    /// The attempt that runs.
    pub attempt: u64,
    /// Attempts that were not charged.
    pub released: u64,
    /// The consumer's claim count.
    pub seq: u64,
    /// When it was claimed.
    pub started_ms: u64,
    /// Where the tail begins.
    pub tail_start: usize,
}

/// Reads a live value; None if it is not one of a running task.
#[must_use]
pub fn parse_live(value: &[u8]) -> Option<LiveValue> {
    let mut rest = value;
    let mut field = || {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let (field, after) = rest.split_at(colon);
        rest = &after[1..];
        Some(field)
    };
    if field()? != b"r" {
        return None;
    }
    let attempt = parse_u64(field()?)?;
    let released = parse_u64(field()?)?;
    let (_entry, _consumer) = (field()?, field()?);
    let seq = parse_u64(field()?)?;
    let started_ms = parse_u64(field()?)?;
    Some(LiveValue {
        attempt,
        released,
        seq,
        started_ms,
        tail_start: value.len() - rest.len(),
    })
}

/// The live value of a first attempt without options, as `turn.lua` writes it and leaves it out of its reply.
#[must_use]
pub fn plain_claim(entry: &[u8], consumer: &[u8], seq: u64, started_ms: &[u8]) -> Vec<u8> {
    let mut number = itoa::Buffer::new();
    [
        b"r:1:0:",
        entry,
        b":",
        consumer,
        b":",
        number.format(seq).as_bytes(),
        b":",
        started_ms,
        b":",
    ]
    .concat()
}

/// The fields of a tail that start with `letter`, without the letter.
fn fields(tail: &[u8], letter: u8) -> impl Iterator<Item = &[u8]> {
    tail.split(|byte| *byte == b';')
        .filter_map(move |field| field.strip_prefix(&[letter]))
}

/// Whether a record with the lines of earlier attempts exists (`h;`).
#[must_use]
pub fn has_history(tail: &[u8]) -> bool {
    !tail.is_empty() && fields(tail, b'h').any(<[u8]>::is_empty)
}

/// Whether the task is to be claimed alone (`s;`).
#[must_use]
pub fn is_solo(tail: &[u8]) -> bool {
    fields(tail, b's').any(<[u8]>::is_empty)
}

/// Whether a cancel was asked for (a last `c`).
#[must_use]
pub fn is_cancel_requested(tail: &[u8]) -> bool {
    tail.rsplit(|byte| *byte == b';').next() == Some(b"c")
}

/// The deadline (`d<ms>;`), 0 if there is none.
#[must_use]
pub fn deadline_ms(tail: &[u8]) -> u64 {
    fields(tail, b'd').find_map(parse_u64).unwrap_or(0)
}

/// When an attempt that begins at `now_ns` has to end: after its time limit (its own or, of 0 ms, the worker's), or at
/// its deadline (0: none) if that is earlier, but after its beginning. The offset ties Redis' clock, which deadlines
/// are told in, to the worker's: `redis = worker + offset`.
#[must_use]
pub fn limit_ns(now_ns: u64, own_timeout_ms: u32, timeout_ns: u64, deadline_ms: u64, clock_offset_ns: i64) -> u64 {
    let timeout_ns = match own_timeout_ms {
        0 => timeout_ns,
        own => u64::from(own) * 1_000_000,
    };
    let limit_ns = now_ns.saturating_add(timeout_ns);
    if deadline_ms == 0 {
        return limit_ns;
    }
    let deadline_ns = i128::from(deadline_ms) * 1_000_000 - i128::from(clock_offset_ns);
    let deadline_ns = u64::try_from(deadline_ns.max(0)).unwrap_or(u64::MAX);
    limit_ns.min(deadline_ns.max(now_ns.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::{LiveValue, deadline_ms, has_history, is_cancel_requested, is_solo, limit_ns, parse_live, plain_claim};

    #[test]
    fn an_attempt_ends_at_its_limit_or_its_deadline() {
        assert_eq!(limit_ns(100, 0, 50, 0, 7), 150);
        assert_eq!(limit_ns(100, 2, 50, 0, 7), 2_000_100);
        assert_eq!(limit_ns(100, 2, 50, 1, 0), 1_000_000);
        assert_eq!(limit_ns(100, 2, 50, 1, -500), 1_000_500);
        assert_eq!(limit_ns(100, 2, 50, 1, 999_999), 101, "a deadline that has passed");
        assert_eq!(limit_ns(100, 0, 50, u64::MAX, i64::MIN), 150);
        assert_eq!(limit_ns(u64::MAX, 1, 50, 1, i64::MAX), u64::MAX);
    }

    #[test]
    fn a_live_value_is_read() {
        let value = b"r:2:1:1700-3:host-abc.1.4:77:1701:d99;h;c";
        let live = LiveValue {
            attempt: 2,
            released: 1,
            seq: 77,
            started_ms: 1701,
            tail_start: 34,
        };
        assert_eq!(parse_live(value), Some(live));
        assert_eq!(&value[34..], b"d99;h;c");
    }

    #[test]
    fn a_plain_claim_reads_as_a_first_attempt() {
        let value = plain_claim(b"1700-3", b"host-abc.1.4", 77, b"1701");
        assert_eq!(value, b"r:1:0:1700-3:host-abc.1.4:77:1701:");
        let live = LiveValue {
            attempt: 1,
            released: 0,
            seq: 77,
            started_ms: 1701,
            tail_start: value.len(),
        };
        assert_eq!(parse_live(&value), Some(live));
    }

    #[test]
    fn other_values_are_not() {
        for wrong in [
            &b""[..],
            b"r",
            b"q:1:0:1-0:",
            b"r:1:0:1-0:c:1:2",
            b"r:x:0:1-0:c:1:2:",
            b"r:1:0:1-0:c:-1:2:",
        ] {
            assert_eq!(parse_live(wrong), None);
        }
    }

    #[test]
    fn the_tail_tells_what_is_set() {
        assert!(has_history(b"x5;h;") && is_solo(b"s;h;c") && is_cancel_requested(b"c") && is_cancel_requested(b"h;c"));
        assert!(!has_history(b"ihello;") && !is_solo(b"") && !is_cancel_requested(b"") && !is_cancel_requested(b"bc;"));
        assert_eq!(
            (deadline_ms(b"x1;d17;"), deadline_ms(b"x1;"), deadline_ms(b"dx;")),
            (17, 0, 0)
        );
    }
}
