//! Shared memory for Python: checks child and place before the core touches memory.

use super::claims::Claim;
use crate::error::CoreError as Refused;
use crate::slots::{self, Row};
use crate::wire::parse_entry;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyclass(frozen, get_all, module = "dtq._core")]
pub struct SlotRow {
    place: usize,
    entry: Py<PyBytes>,
    queue: u16,
    band: u8,
    seq: u64,
    attempt: u32,
    started_ns: u64,
    limit_ns: u64,
}

#[pyclass(frozen, module = "dtq._core")]
pub struct Slots {
    slots: slots::Slots,
}

impl Slots {
    fn check_child(&self, child: usize) -> PyResult<()> {
        if child < self.slots.children() {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!(
            "child {child} of {}",
            self.slots.children()
        )))
    }

    pub fn check_place(&self, child: usize, place: usize) -> PyResult<()> {
        self.check_child(child)?;
        if place < self.slots.places() {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!(
            "place {place} of {}",
            self.slots.places()
        )))
    }
}

/// What a claim's own limit is made of, beside the claim.
pub struct Limits {
    /// The time limit of tasks that have none of their own; 0: no limit.
    pub timeout_ns: u64,
    /// Redis' clock less that of the rows.
    pub clock_offset_ns: i64,
}

impl Slots {
    pub fn inner(&self) -> &slots::Slots {
        &self.slots
    }

    /// Begins a claim and writes its row; `at`: child and place, which the caller has checked.
    pub fn enter_claim(
        &self,
        at: (usize, usize),
        claim: &Claim,
        queue: u16,
        now_ns: u64,
        limits: &Limits,
        py: Python<'_>,
    ) -> PyResult<bool> {
        let entry = parse_entry(claim.entry.as_bytes(py))
            .ok_or_else(|| Refused::invalid("entry", "must be a stream entry id, <ms>-<seq>"))?;
        if !self.slots.begin(at.0, claim.seq) {
            return Ok(false);
        }
        self.slots.start(
            at.0,
            at.1,
            &Row {
                entry,
                queue,
                band: claim.band,
                seq: claim.seq,
                attempt: u32::try_from(claim.attempt).unwrap_or(u32::MAX),
                started_ns: now_ns,
                limit_ns: claim.limit_ns(py, now_ns, limits.timeout_ns, limits.clock_offset_ns),
            },
        );
        Ok(true)
    }
}

#[pymethods]
impl Slots {
    #[new]
    #[pyo3(signature = (fd, children, places, create = false))]
    fn new(fd: i32, children: usize, places: usize, create: bool) -> PyResult<Self> {
        Ok(Self {
            slots: slots::Slots::new(fd, children, places, create)?,
        })
    }

    #[staticmethod]
    fn byte_size(children: usize, places: usize) -> PyResult<usize> {
        Ok(slots::byte_size(children, places)?)
    }

    #[getter]
    fn children(&self) -> usize {
        self.slots.children()
    }

    #[getter]
    fn places(&self) -> usize {
        self.slots.places()
    }

    fn set_safe_until(&self, ns: u64) {
        self.slots.set_safe_until(ns);
    }

    fn safe_until(&self) -> u64 {
        self.slots.safe_until()
    }

    fn offer(&self, child: usize, first_seq: u64, count: u64) -> PyResult<bool> {
        self.check_child(child)?;
        Ok(self.slots.offer(child, first_seq, count))
    }

    fn begin(&self, child: usize, seq: u64) -> PyResult<bool> {
        self.check_child(child)?;
        Ok(self.slots.begin(child, seq))
    }

    fn revoke(&self, child: usize) -> PyResult<(u64, u64)> {
        self.check_child(child)?;
        Ok(self.slots.revoke(child))
    }

    fn watermark(&self, child: usize) -> PyResult<u64> {
        self.check_child(child)?;
        Ok(self.slots.watermark(child))
    }

    fn window(&self, child: usize) -> PyResult<u64> {
        self.check_child(child)?;
        Ok(self.slots.window(child))
    }

    fn reset(&self, child: usize) -> PyResult<()> {
        self.check_child(child)?;
        self.slots.reset(child);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // The fields of a row.
    fn start(
        &self,
        child: usize,
        place: usize,
        entry: &[u8],
        queue: u16,
        band: u8,
        seq: u64,
        attempt: u32,
        started_ns: u64,
        limit_ns: u64,
    ) -> PyResult<()> {
        self.check_place(child, place)?;
        let entry =
            parse_entry(entry).ok_or_else(|| Refused::invalid("entry", "must be a stream entry id, <ms>-<seq>"))?;
        self.slots.start(
            child,
            place,
            &Row {
                entry,
                queue,
                band,
                seq,
                attempt,
                started_ns,
                limit_ns,
            },
        );
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // What a row needs beside its claim.
    fn enter(
        &self,
        child: usize,
        place: usize,
        claim: &Bound<'_, Claim>,
        queue: u16,
        now_ns: u64,
        timeout_ns: u64,
        clock_offset_ns: i64,
    ) -> PyResult<bool> {
        self.check_place(child, place)?;
        let limits = Limits {
            timeout_ns,
            clock_offset_ns,
        };
        self.enter_claim((child, place), claim.get(), queue, now_ns, &limits, claim.py())
    }

    fn finish(&self, child: usize, place: usize) -> PyResult<()> {
        self.check_place(child, place)?;
        self.slots.finish(child, place);
        Ok(())
    }

    fn rows(&self, py: Python<'_>, child: usize) -> PyResult<Vec<SlotRow>> {
        self.check_child(child)?;
        let rows =
            (0..self.slots.places()).filter_map(|place| self.slots.read_row(child, place).map(|row| (place, row)));
        Ok(rows
            .map(|(place, row)| SlotRow {
                place,
                entry: PyBytes::new(py, format!("{}-{}", row.entry.0, row.entry.1).as_bytes()).unbind(),
                queue: row.queue,
                band: row.band,
                seq: row.seq,
                attempt: row.attempt,
                started_ns: row.started_ns,
                limit_ns: row.limit_ns,
            })
            .collect())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Slots>()?;
    module.add_class::<SlotRow>()
}
