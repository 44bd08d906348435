//! Shared memory between a supervisor and its children: who may begin what, and what is executing.
//!
//! The only file with `unsafe`: memory that other processes write can only be reached through pointers. It is sound
//! because every access goes through [`Slots::at`], which hands out `AtomicU64`s inside the mapping and nothing else:
//! no reference to plain memory is ever made, and every bit pattern is a valid number. No lock is used, so a child that
//! is killed at any point leaves nothing held.
//!
//! In units of eight bytes: a header (magic, sizes, "lease safe until"), for each child a block (its word) and
//! a row for each place (version, entry ms and seq, claim seq, started, limit, numbers), each padded to 8: a cache line.
#![allow(unsafe_code)]

use crate::error::CoreError;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"dtqslot1");
const UNIT: usize = 8;
const BLOCK: usize = 8;
const WINDOW_BITS: u32 = 16;
const MAX_WINDOW: u64 = (1 << WINDOW_BITS) - 1;
const MAX_SEQ: u64 = (1 << 48) - 1;

const AT_MAGIC: usize = 0;
const AT_SIZES: usize = 1;
const AT_SAFE_UNTIL: usize = 2;
const AT_WORD: usize = 0;

/// What a row's version counter tells, in its two lowest bits.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const EXECUTING: u64 = 2;
const PHASES: u64 = 3;

/// An attempt that is executing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Stream entry.
    pub entry: (u64, u64),
    /// Which queue, by the supervisor's numbering.
    pub queue: u16,
    /// Band of the stream.
    pub band: u8,
    /// Claim number.
    pub seq: u64,
    /// Attempt.
    pub attempt: u32,
    /// CLOCK_BOOTTIME when the handler began.
    pub started_ns: u64,
    /// CLOCK_BOOTTIME when it must have ended; 0 = no limit.
    pub limit_ns: u64,
}

/// The mapping.
#[derive(Debug)]
pub struct Slots {
    map: MmapRaw,
    children: usize,
    places: usize,
}

/// Bytes that the mapping needs.
pub fn byte_size(children: usize, places: usize) -> Result<usize, CoreError> {
    for (field, number) in [("children", children), ("places", places)] {
        if !(1..=65_535).contains(&number) {
            return Err(CoreError::invalid(field, "must be 1 to 65535"));
        }
    }
    Ok(UNIT * BLOCK * (1 + children * (1 + places)))
}

impl Slots {
    /// Maps a file (a memfd); `create` sizes it and writes the header, else both are checked.
    pub fn new(fd: RawFd, children: usize, places: usize, create: bool) -> Result<Self, CoreError> {
        let size = byte_size(children, places)?;
        let failed = |error: std::io::Error| CoreError::invalid("fd", format!("cannot be mapped: {error}"));
        if fd < 0 {
            return Err(CoreError::invalid("fd", "must be an open file descriptor"));
        }
        // SAFETY: the descriptor is not -1, and it is only borrowed for the duplication, which fails if it is closed.
        let file = File::from(
            unsafe { BorrowedFd::borrow_raw(fd) }
                .try_clone_to_owned()
                .map_err(failed)?,
        );
        let found = file.metadata().map_err(failed)?.len();
        if create {
            file.set_len(size as u64).map_err(failed)?;
        } else if found < size as u64 {
            // Memory beyond the end of the file would kill whoever touches it.
            return Err(CoreError::invalid(
                "fd",
                format!("the file has {found} bytes, {size} are needed"),
            ));
        }
        let map = MmapOptions::new().len(size).map_raw(&file).map_err(failed)?;
        let slots = Self { map, children, places };
        let sizes = (children as u64) << 32 | places as u64;
        if create {
            (0..children).for_each(|child| slots.reset(child));
            slots.set_safe_until(0);
            slots.at(AT_SIZES).store(sizes, Ordering::Relaxed);
            slots.at(AT_MAGIC).store(MAGIC, Ordering::Release);
        } else if slots.at(AT_MAGIC).load(Ordering::Acquire) != MAGIC
            || slots.at(AT_SIZES).load(Ordering::Relaxed) != sizes
        {
            return Err(CoreError::invalid(
                "fd",
                "the file holds no slots for these numbers of children and places",
            ));
        }
        Ok(slots)
    }

    /// Number of children.
    #[must_use]
    pub fn children(&self) -> usize {
        self.children
    }

    /// Places of each child.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// The number at `index` (in units of eight bytes). The callers below compute it from a child and a place that
    /// the boundary has checked; an index beyond the mapping panics rather than reach outside.
    fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.map.len() / UNIT, "slot index out of range");
        // SAFETY: the index is inside the mapping (just checked), which lives as long as `self`; a mapping begins at
        // a page, so each unit is aligned; nobody in any process uses anything but atomic accesses.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(index)) }
    }

    fn block(&self, child: usize) -> usize {
        BLOCK * (1 + child * (1 + self.places))
    }

    fn row(&self, child: usize, place: usize) -> usize {
        self.block(child) + BLOCK * (1 + place)
    }

    fn word(&self, child: usize) -> &AtomicU64 {
        self.at(self.block(child) + AT_WORD)
    }

    /// Changes the word of a child by compare-and-swap, unless `change` gives None.
    fn change_word(&self, child: usize, change: impl Fn(u64, u64) -> Option<(u64, u64)>) -> Result<u64, u64> {
        self.word(child)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                change(word >> WINDOW_BITS, word & MAX_WINDOW)
                    .map(|(watermark, window)| watermark << WINDOW_BITS | window)
            })
    }

    /// Says until when the lease is safe.
    pub fn set_safe_until(&self, ns: u64) {
        self.at(AT_SAFE_UNTIL).store(ns, Ordering::Release);
    }

    /// Until when the lease is safe.
    #[must_use]
    pub fn safe_until(&self) -> u64 {
        self.at(AT_SAFE_UNTIL).load(Ordering::Acquire)
    }

    /// Lets claims begin: a new window if none is open, else more of it. What is below the watermark counts as begun.
    pub fn offer(&self, child: usize, first_seq: u64, count: u64) -> bool {
        if count > MAX_WINDOW || first_seq > MAX_SEQ - MAX_WINDOW {
            return false;
        }
        self.change_word(child, |watermark, window| {
            if window == 0 {
                (first_seq >= watermark).then_some((first_seq, count))
            } else {
                let fits = watermark + window == first_seq && window + count <= MAX_WINDOW;
                fits.then_some((watermark, window + count))
            }
        })
        .is_ok()
    }

    /// Marks a claim as begun; false if it may not begin.
    pub fn begin(&self, child: usize, seq: u64) -> bool {
        self.change_word(child, |watermark, window| {
            (watermark == seq && window > 0).then(|| (watermark + 1, window - 1))
        })
        .is_ok()
    }

    /// Closes the window; the claims, as a half-open range, that can no longer begin.
    pub fn revoke(&self, child: usize) -> (u64, u64) {
        let word = self.word(child).fetch_and(!MAX_WINDOW, Ordering::AcqRel);
        let watermark = word >> WINDOW_BITS;
        (watermark, watermark + (word & MAX_WINDOW))
    }

    /// The next claim to begin.
    #[must_use]
    pub fn watermark(&self, child: usize) -> u64 {
        self.word(child).load(Ordering::Acquire) >> WINDOW_BITS
    }

    /// How many claims may begin.
    #[must_use]
    pub fn window(&self, child: usize) -> u64 {
        self.word(child).load(Ordering::Acquire) & MAX_WINDOW
    }

    /// Prepares the slot for a new child; the old one must be dead.
    pub fn reset(&self, child: usize) {
        self.word(child).store(0, Ordering::Release);
        (0..self.places).for_each(|place| self.finish(child, place));
    }

    /// Writes the row of an attempt that is about to execute. Only the child itself writes its rows.
    pub fn start(&self, child: usize, place: usize, row: &Row) {
        let at = self.row(child, place);
        let version = (self.at(at).load(Ordering::Relaxed) & !PHASES).wrapping_add(PHASES + 1);
        self.at(at).store(version | WRITING, Ordering::Relaxed);
        // Readers that see any of the fields below also see that the row was being written.
        fence(Ordering::Release);
        let numbers = u64::from(row.queue) | u64::from(row.band) << 16 | u64::from(row.attempt) << 32;
        let fields = [row.entry.0, row.entry.1, row.seq, row.started_ns, row.limit_ns, numbers];
        for (offset, field) in fields.into_iter().enumerate() {
            self.at(at + 1 + offset).store(field, Ordering::Relaxed);
        }
        self.at(at).store(version | EXECUTING, Ordering::Release);
    }

    /// Empties the row.
    pub fn finish(&self, child: usize, place: usize) {
        let version = self.at(self.row(child, place));
        let next = (version.load(Ordering::Relaxed) & !PHASES).wrapping_add(PHASES + 1);
        version.store(next | FREE, Ordering::Release);
    }

    /// The row of a place where an attempt executes; one being written is empty still, as its handler has not begun.
    #[must_use]
    pub fn read_row(&self, child: usize, place: usize) -> Option<Row> {
        let at = self.row(child, place);
        // A row that changes eight times while it is read belongs to attempts of nanoseconds; any answer will do.
        for _ in 0..8 {
            let before = self.at(at).load(Ordering::Acquire);
            if before & PHASES != EXECUTING {
                return None;
            }
            let field = |offset: usize| self.at(at + offset).load(Ordering::Relaxed);
            let numbers = field(6);
            let row = Row {
                entry: (field(1), field(2)),
                seq: field(3),
                started_ns: field(4),
                limit_ns: field(5),
                queue: numbers as u16,
                band: (numbers >> 16) as u8,
                attempt: (numbers >> 32) as u32,
            };
            fence(Ordering::Acquire);
            if self.at(at).load(Ordering::Relaxed) == before {
                return Some(row);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SEQ, Row, Slots, byte_size};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn slots(children: usize, places: usize) -> Result<Slots, crate::error::CoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "dtq-slots-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let file = file.map_err(|error| crate::error::CoreError::invalid("test", error.to_string()))?;
        let _ = std::fs::remove_file(path);
        let slots = Slots::new(file.as_raw_fd(), children, places, true)?;
        assert!(Slots::new(file.as_raw_fd(), children, places, false).is_ok());
        assert!(Slots::new(file.as_raw_fd(), children + 1, places, false).is_err());
        Ok(slots)
    }

    #[test]
    fn claims_begin_in_order_and_once() -> Result<(), crate::error::CoreError> {
        let slots = slots(2, 1)?;
        assert!(!slots.begin(0, 0) && slots.offer(0, 5, 2) && !slots.begin(0, 6));
        assert!(slots.begin(0, 5) && !slots.begin(0, 5) && slots.offer(0, 7, 1) && !slots.offer(0, 9, 1));
        assert_eq!((slots.watermark(0), slots.window(0), slots.watermark(1)), (6, 2, 0));
        assert_eq!((slots.revoke(0), slots.revoke(0)), ((6, 8), (6, 6)));
        assert!(!slots.begin(0, 6) && !slots.offer(0, 5, 1) && slots.offer(0, 8, 1) && slots.begin(0, 8));
        Ok(())
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() -> Result<(), crate::error::CoreError> {
        let slots = slots(1, 1)?;
        assert!(!slots.offer(0, 1, 65_536) && !slots.offer(0, u64::MAX, 1) && !slots.offer(0, MAX_SEQ, 1));
        assert!(slots.offer(0, 1, 65_535) && !slots.offer(0, 65_536, 1));
        assert!(byte_size(0, 1).is_err() && byte_size(1, 0).is_err() && byte_size(65_536, 1).is_err());
        Ok(())
    }

    #[test]
    fn rows_show_what_is_executing() -> Result<(), crate::error::CoreError> {
        let slots = slots(2, 3)?;
        let row = Row {
            entry: (7, 9),
            queue: 300,
            band: 9,
            seq: 4,
            attempt: 70_000,
            started_ns: 5,
            limit_ns: u64::MAX,
        };
        slots.start(1, 2, &row);
        assert_eq!(slots.read_row(1, 2), Some(row));
        assert_eq!((slots.read_row(1, 1), slots.read_row(0, 2)), (None, None));
        slots.finish(1, 2);
        assert_eq!(slots.read_row(1, 2), None);
        Ok(())
    }

    #[test]
    fn a_reader_never_sees_half_a_row() -> Result<(), crate::error::CoreError> {
        let slots = slots(1, 1)?;
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200_000_u64 {
                    let row = Row {
                        entry: (number, number),
                        seq: number,
                        started_ns: number,
                        limit_ns: number,
                        ..Row::default()
                    };
                    slots.start(0, 0, &row);
                    if number % 3 == 0 {
                        slots.finish(0, 0);
                    }
                }
                stop.store(1, Ordering::Release);
            });
            while stop.load(Ordering::Acquire) == 0 {
                if let Some(row) = slots.read_row(0, 0) {
                    let number = row.seq;
                    assert_eq!(
                        (row.entry, row.started_ns, row.limit_ns),
                        ((number, number), number, number)
                    );
                }
            }
        });
        Ok(())
    }
}
