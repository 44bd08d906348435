//! Due tasks: what their records say, and the call that promotes them.

use crate::resp::{put_array, put_bulk, put_integer};
use crate::{envelope, record};

/// What the promote call tells the script about one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Band of the task's envelope, 0 when there is an error.
    pub band: u8,
    /// Status of the record, 0 when there is an error.
    pub status: u8,
    /// Why the task cannot be promoted.
    pub error: Option<String>,
}

/// Reads the record of a due task; None = there is no record.
#[must_use]
pub fn examine(bytes: Option<&[u8]>) -> Due {
    let parsed = match bytes {
        None => Err("record: the scheduled task has no record".to_owned()),
        Some(bytes) => record::parse(bytes)
            .and_then(|record| envelope::parse(record.envelope).map(|parsed| (record.status, parsed.head.band)))
            .map_err(|error| error.to_string()),
    };
    match parsed {
        Ok((status, band)) => Due {
            band,
            status,
            error: None,
        },
        Err(error) => Due {
            band: 0,
            status: 0,
            error: Some(error),
        },
    }
}

/// A schedule score (a time in ms) as Redis writes it; None if it is no number.
#[must_use]
pub fn parse_score(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse()
        .ok()
        .or_else(|| text.parse().ok().and_then(score_from_float))
}

/// A score that came as a float; None if it is not finite.
#[must_use]
pub fn score_from_float(number: f64) -> Option<i64> {
    // `as` saturates: a score beyond i64 is as far away as can be told.
    number.is_finite().then_some(number as i64)
}

/// The promote command: after the prefix id, score, band, error text of each task.
#[must_use]
pub fn pack_promote<'a>(
    due: impl ExactSizeIterator<Item = (&'a [u8], i64, u8, &'a [u8])>,
    prefix: &[u8],
    prefix_count: usize,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefix.len() + 80 * due.len() + 16);
    put_array(&mut out, prefix_count + 4 * due.len());
    out.extend_from_slice(prefix);
    for (id, score, band, error) in due {
        put_bulk(&mut out, id);
        put_integer(&mut out, score);
        put_integer(&mut out, band);
        put_bulk(&mut out, error);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Due, examine, pack_promote, parse_score};
    use crate::record::{Record, status};

    #[test]
    fn band_and_status_are_read() {
        let envelope = crate::envelope::tests::bytes();
        let mut bytes = Vec::new();
        let record = Record {
            status: status::RETRYING,
            envelope: &envelope,
            ..Record::default()
        };
        assert_eq!(record.encode(&mut bytes), Ok(()));
        assert_eq!(
            examine(Some(&bytes)),
            Due {
                band: 5,
                status: status::RETRYING,
                error: None
            }
        );
    }

    #[test]
    fn damage_is_told() {
        for bytes in [None, Some(&b""[..]), Some(b"\x09"), Some(b"\x01\x01")] {
            let due = examine(bytes);
            assert!(due.error.is_some() && due.band == 0 && due.status == 0);
        }
    }

    #[test]
    fn scores_come_in_redis_forms() {
        assert_eq!(parse_score(b"1700000000000"), Some(1_700_000_000_000));
        assert_eq!(parse_score(b"1.7e+12"), Some(1_700_000_000_000));
        assert_eq!(
            (parse_score(b"inf"), parse_score(b""), parse_score(b"\xff")),
            (None, None, None)
        );
    }

    #[test]
    fn four_arguments_for_each_task() {
        let due = [(&b"id"[..], 12, 5, &b""[..])];
        let packed = pack_promote(due.into_iter(), b"$1\r\nX\r\n", 1);
        assert_eq!(
            packed,
            b"*5\r\n$1\r\nX\r\n$2\r\nid\r\n$2\r\n12\r\n$1\r\n5\r\n$0\r\n\r\n"
        );
    }
}
