//! How long attempts waited, ran and took in all, by task type: what `observe.lua` adds up for all children.

use std::collections::BTreeMap;

/// Upper bounds of the buckets but the last, which takes the rest.
pub const BOUNDS_NS: [u64; 18] = [
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
    900_000_000_000,
    3_600_000_000_000,
];
/// Buckets of each measure.
pub const BUCKETS: usize = BOUNDS_NS.len() + 1;
/// Letters of outcomes, in the order in which they are counted.
pub const LETTERS: [u8; 6] = *b"SRFDCL";

/// Counts of durations, each bucket without those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; BUCKETS],
    total_ns: u64,
}

impl Durations {
    /// Adds a duration; the sum saturates.
    pub fn record(&mut self, ns: u64) {
        self.counts[BOUNDS_NS.partition_point(|bound| *bound < ns)] += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
    }
}

/// What is known of one attempt's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// From the moment it was queued to the start of its handler.
    pub wait_ns: Option<u64>,
    /// How long its handler ran.
    pub execution_ns: Option<u64>,
    /// From the making of the task to its end, where this attempt is the last.
    pub duration_ns: Option<u64>,
}

/// Attempts of one task type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    results: [u64; LETTERS.len()],
    measures: [Durations; 3],
}

impl Cell {
    /// Little-endian u64 each: attempts by result, then of wait, execution and duration the buckets and the sum in us.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let measures = self
            .measures
            .iter()
            .flat_map(|measure| measure.counts.iter().copied().chain([measure.total_ns / 1000]));
        self.results
            .iter()
            .copied()
            .chain(measures)
            .flat_map(u64::to_le_bytes)
            .collect()
    }
}

/// What one child has gathered of one queue since it last told.
#[derive(Debug, Default)]
pub struct Timings {
    names: BTreeMap<String, usize>,
    cells: Vec<(String, Cell)>,
    /// Where the last attempt was counted: mostly the next one is of the same type.
    last: usize,
}

impl Timings {
    /// Counts an attempt that ended by an outcome's letter.
    pub fn record(&mut self, task_type: &str, letter: u8, attempt: Attempt) {
        let cell = self.cell(task_type);
        if let Some(place) = LETTERS.iter().position(|known| *known == letter) {
            cell.results[place] += 1;
        }
        let [wait, execution, duration] = &mut cell.measures;
        for (measure, ns) in [
            (wait, attempt.wait_ns),
            (execution, attempt.execution_ns),
            (duration, attempt.duration_ns),
        ] {
            if let Some(ns) = ns {
                measure.record(ns);
            }
        }
    }

    fn cell(&mut self, task_type: &str) -> &mut Cell {
        if self.cells.get(self.last).is_none_or(|(name, _)| name != task_type) {
            self.last = self.names.get(task_type).copied().unwrap_or(self.cells.len());
            if self.last == self.cells.len() {
                self.names.insert(task_type.to_owned(), self.last);
                self.cells.push((task_type.to_owned(), Cell::default()));
            }
        }
        &mut self.cells[self.last].1
    }

    /// Hands out what was gathered, by task type in order of first sight, and begins anew.
    pub fn take(&mut self) -> Vec<(String, Cell)> {
        self.names.clear();
        self.last = 0;
        std::mem::take(&mut self.cells)
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, BOUNDS_NS, BUCKETS, Durations, LETTERS, Timings};

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for (bucket, bound) in BOUNDS_NS.into_iter().enumerate() {
            let mut durations = Durations::default();
            durations.record(bound);
            durations.record(bound + 1);
            assert_eq!((durations.counts[bucket], durations.counts[bucket + 1]), (1, 1));
        }
        let mut durations = Durations::default();
        [0, u64::MAX, u64::MAX].into_iter().for_each(|ns| durations.record(ns));
        assert_eq!((durations.counts[0], durations.counts[BUCKETS - 1]), (1, 2));
        assert_eq!(durations.total_ns, u64::MAX);
    }

    #[test]
    fn types_are_told_apart_and_handed_out_once() {
        let mut timings = Timings::default();
        let ran = Attempt {
            wait_ns: Some(2_000_000),
            execution_ns: Some(5_000),
            duration_ns: None,
        };
        for (task_type, letter) in [("a", b'S'), ("b", b'R'), ("a", b'S'), ("a", b'L'), ("b", b'?')] {
            timings.record(task_type, letter, ran);
        }
        let taken = timings.take();
        assert!(timings.take().is_empty());
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let (a, b) = (&taken[0].1, &taken[1].1);
        assert_eq!((a.results, b.results), ([2, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0]));
        assert_eq!((a.measures[0].counts[1], a.measures[1].counts[0]), (3, 3));
        assert_eq!(a.measures[2], Durations::default());
        let bytes = a.to_bytes();
        assert_eq!(bytes.len(), 8 * (LETTERS.len() + 3 * (BUCKETS + 1)));
        assert_eq!(bytes[..8], 2_u64.to_le_bytes());
        let wait_sum = 8 * (LETTERS.len() + BUCKETS);
        assert_eq!(bytes[wait_sum..wait_sum + 8], 6000_u64.to_le_bytes());
    }
}
