//! Durations in logarithmic buckets of constant number.

use crate::error::CoreError;
use crate::wire::{Reader, WIRE_VERSION};

/// Buckets of each power of two: a bucket is at most 1/16 of its value wide.
const STEPS: usize = 16;
const BUCKETS: usize = 61 * STEPS;

/// Counts of durations; sums saturate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    total_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            total_ns: 0,
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros() as usize;
    (exponent - 3) * STEPS + ((ns >> (exponent - 4)) as usize & (STEPS - 1))
}

fn upper_edge(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let lower = ((STEPS + bucket % STEPS) as u64) << shift;
    lower + ((1 << shift) - 1)
}

impl Histogram {
    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Adds a duration.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }

    /// Upper edge of the bucket that holds the given percentile; 0 when empty.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0_u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if *count > 0 && seen >= wanted {
                return upper_edge(bucket);
            }
        }
        // Only rounding of a huge count leads here.
        self.counts.iter().rposition(|count| *count > 0).map_or(0, upper_edge)
    }

    /// Version byte, u64 sum, then u16 bucket and u64 count of each bucket in use.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![WIRE_VERSION];
        out.extend_from_slice(&self.total_ns.to_le_bytes());
        for (bucket, count) in (0_u16..).zip(&self.counts) {
            if *count > 0 {
                out.extend_from_slice(&bucket.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
        out
    }

    /// Reads `to_bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CoreError> {
        let mut reader = Reader::new(bytes, "histogram");
        reader.version()?;
        let mut histogram = Self {
            total_ns: reader.u64("total_ns")?,
            ..Self::default()
        };
        let mut next = 0;
        while reader.position() < bytes.len() {
            let bucket = usize::from(reader.u16("bucket")?);
            let count = reader.u64("count")?;
            if bucket < next || bucket >= BUCKETS || count == 0 {
                return Err(reader.damaged("bucket", "buckets must ascend and be in use"));
            }
            histogram.counts[bucket] = count;
            histogram.count = histogram.count.saturating_add(count);
            next = bucket + 1;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, bucket, upper_edge};

    #[test]
    fn buckets_touch_and_are_narrow() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(upper_edge(index)), index);
            if index + 1 < BUCKETS {
                assert_eq!(bucket(upper_edge(index) + 1), index + 1);
            }
        }
        assert_eq!((bucket(u64::MAX), upper_edge(BUCKETS - 1)), (BUCKETS - 1, u64::MAX));
    }

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value * 1000));
        for (percent, exact) in [(0.0, 1000), (50.0, 500_000), (99.0, 990_000), (100.0, 1_000_000)] {
            let told = histogram.percentile(percent);
            assert!(told >= exact && told - exact <= exact / 16);
        }
        assert_eq!(Histogram::default().percentile(50.0), 0);
    }

    #[test]
    fn bytes_come_back() {
        let mut histogram = Histogram::default();
        [0, 5, 1_000_000, u64::MAX]
            .into_iter()
            .for_each(|ns| histogram.record(ns));
        assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), Ok(histogram.clone()));
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.count(), twice.total_ns()), (8, u64::MAX));
        assert!(Histogram::from_bytes(b"\x01123").is_err());
    }
}
