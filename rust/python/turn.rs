//! The outcomes of a child, and the turn that takes them to Redis.

use super::claims::Claim;
use super::payload::encode;
use super::{EMPTY, bytes_item, text};
use crate::envelope::FOREVER_MS;
use crate::error::CoreError as Refused;
use crate::record::{Record, status};
use crate::timings::{Attempt, BOUNDS_NS, Timings};
use crate::turn::{Outcome, OutcomeBuffer, Turn, head};
use crate::wire::parse_entry;
use crate::{ids, json};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

#[pyclass(module = "dtq._core")]
pub struct Outcomes {
    buffer: OutcomeBuffer,
    ids: Vec<Py<PyString>>,
    timings: Timings,
    /// The detail of a success up to its result.
    success_head: Vec<u8>,
    /// Where a detail is made before its length is known.
    scratch: Vec<u8>,
}

/// When the task was made, as well as a worker can tell: from an id of ours, or from the entry of a first attempt.
fn created_ms(claim: &Claim, py: Python<'_>) -> u64 {
    ids::time_ms(claim.id_bytes.as_bytes(py)).unwrap_or_else(|| match parse_entry(claim.entry.as_bytes(py)) {
        Some((ms, _)) if claim.attempt == 1 => ms,
        _ => 0,
    })
}

fn outcome_of<'a>(claim: &'a Claim, head: &'a [u8], py: Python<'a>) -> Outcome<'a> {
    Outcome {
        id: claim.id_bytes.as_bytes(py),
        token: claim.token.as_bytes(py),
        entry: claim.entry.as_bytes(py),
        head,
    }
}

fn saturated(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Stands for the type of what no handler could run: its names may come from anybody, and be any number.
const UNKNOWN: &str = "(unknown)";

impl Outcomes {
    /// Counts an attempt, and its times. took_ns: None counts nothing; negative: no handler has run.
    fn observe(&mut self, claim: &Claim, letter: u8, ended_ms: u64, took_ns: Option<i64>, py: Python<'_>) {
        let Some(took_ns) = took_ns else { return };
        let execution_ns = u64::try_from(took_ns).ok();
        let ended_ns = ended_ms.saturating_mul(1_000_000);
        // After a death, or given up by a drain, it has the entry of an attempt before it, whose time this is not.
        let queued_ms = match parse_entry(claim.entry.as_bytes(py)) {
            Some((ms, _)) if claim.released == 0 && !claim.is_alone(py) => Some(ms),
            _ => None,
        };
        let since = |ms: u64| ended_ns.saturating_sub(ms.saturating_mul(1_000_000));
        let is_end = matches!(letter, b'S' | b'F' | b'D' | b'C');
        let attempt = Attempt {
            wait_ns: execution_ns.and_then(|took| Some(since(queued_ms?).saturating_sub(took))),
            execution_ns,
            duration_ns: Some(created_ms(claim, py)).filter(|ms| is_end && *ms > 0).map(since),
        };
        let task_type = claim.task_type.bind(py).to_str().unwrap_or(UNKNOWN);
        let task_type = if execution_ns.is_none() { UNKNOWN } else { task_type };
        self.timings.record(task_type, letter, attempt);
    }

    /// Appends an outcome with a record; on an error the buffer is as it was.
    fn push(&mut self, claim: &Claim, head: &[u8], record: &Record<'_>, py: Python<'_>) -> PyResult<()> {
        self.buffer
            .push(outcome_of(claim, head, py), record.byte_size(), |out| {
                record.encode(out)
            })?;
        self.ids.push(claim.id.clone_ref(py));
        Ok(())
    }

    fn record<'a>(claim: &'a Claim, status: u8, ended_ms: u64, detail: &'a [u8], py: Python<'a>) -> Record<'a> {
        Record {
            status,
            attempt: saturated(claim.attempt),
            released: saturated(claim.released),
            created_ms: created_ms(claim, py),
            started_ms: claim.started_ms,
            ended_ms,
            place: b"",
            token: claim.token.as_bytes(py),
            detail,
            envelope: claim.envelope.as_bytes(py),
            history: b"",
        }
    }
}

#[pymethods]
impl Outcomes {
    #[new]
    fn new(worker_id: &Bound<'_, PyString>) -> PyResult<Self> {
        let mut success_head = b"{\"worker_id\":".to_vec();
        json::put_string(&mut success_head, text(worker_id, "worker_id")?);
        success_head.extend_from_slice(b",\"result\":");
        Ok(Self {
            buffer: OutcomeBuffer::default(),
            ids: Vec::new(),
            timings: Timings::default(),
            success_head,
            scratch: Vec::new(),
        })
    }

    pub fn __len__(&self) -> usize {
        self.buffer.len()
    }

    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.ids)
    }

    #[pyo3(signature = (count = None))]
    fn clear(&mut self, count: Option<usize>) {
        let count = count.unwrap_or(usize::MAX).min(self.ids.len());
        self.buffer.forget(count);
        self.ids.drain(..count);
    }

    #[pyo3(signature = (claim, result, ended_ms, max_bytes, took_ns = None))]
    pub fn succeed(
        &mut self,
        claim: &Bound<'_, Claim>,
        result: &Bound<'_, PyAny>,
        ended_ms: u64,
        max_bytes: usize,
        took_ns: Option<i64>,
    ) -> PyResult<()> {
        let py = claim.py();
        let claim = claim.get();
        let mut detail = std::mem::take(&mut self.scratch);
        detail.clear();
        detail.extend_from_slice(&self.success_head);
        let encoded = encode(result, "result", Some(max_bytes), &mut detail).map_err(PyErr::from);
        let pushed = encoded.and_then(|()| {
            detail.push(b'}');
            let amount = match claim.retention_ms {
                FOREVER_MS => -1,
                retention_ms => i64::try_from(retention_ms).unwrap_or(-1),
            };
            let head = head(b'S', claim.band, amount);
            if amount == 0 && !claim.has_history(py) {
                self.buffer
                    .push(outcome_of(claim, &head, py), 0, |_| Ok::<(), Refused>(()))?;
                self.ids.push(claim.id.clone_ref(py));
                return Ok(());
            }
            self.push(
                claim,
                &head,
                &Self::record(claim, status::SUCCEEDED, ended_ms, &detail, py),
                py,
            )
        });
        self.scratch = detail;
        if pushed.is_ok() {
            self.observe(claim, b'S', ended_ms, took_ns, py);
        }
        pushed
    }

    #[allow(clippy::too_many_arguments)] // What a record of a failed attempt holds.
    #[pyo3(signature = (claim, letter, ended_ms, amount_ms, detail, history = EMPTY, released = 0, took_ns = None),
        text_signature = "($self, claim, letter, ended_ms, amount_ms, detail, history=b'', released=0, took_ns=None)")]
    fn settle(
        &mut self,
        claim: &Bound<'_, Claim>,
        letter: &str,
        ended_ms: u64,
        amount_ms: i64,
        detail: &[u8],
        history: &[u8],
        released: u16,
        took_ns: Option<i64>,
    ) -> PyResult<()> {
        let (letter, status) = match letter {
            "R" => (b'R', status::RETRYING),
            "F" => (b'F', status::FAILED),
            "D" => (b'D', status::DEAD_LETTERED),
            "C" => (b'C', status::CANCELLED),
            "L" => (b'L', status::HISTORY_ONLY),
            _ => return Err(Refused::invalid("letter", "must be one of R, F, D, C, L").into()),
        };
        if amount_ms < 0 {
            return Err(Refused::invalid("amount_ms", "must not be negative").into());
        }
        let py = claim.py();
        let claim = claim.get();
        let record = Record {
            history,
            released: saturated(claim.released).saturating_add(released),
            ..Self::record(claim, status, ended_ms, detail, py)
        };
        let amount = if letter == b'R' { amount_ms } else { 0 };
        self.push(claim, &head(letter, claim.band, amount), &record, py)?;
        self.observe(claim, letter, ended_ms, took_ns, py);
        Ok(())
    }

    fn take_timings<'py>(&mut self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        let taken = self.timings.take().into_iter();
        taken
            .map(|(task_type, cell)| (task_type, PyBytes::new(py, &cell.to_bytes())))
            .collect()
    }

    #[allow(clippy::too_many_arguments)] // The arguments of the turn script, in its order.
    fn pack_turn<'py>(
        &self,
        py: Python<'py>,
        prefix: &[u8],
        prefix_count: usize,
        consumer: &Bound<'py, PyString>,
        send: u64,
        first_seq: u64,
        want: u64,
        max_bytes: u64,
        flags: u8,
        adopts: Vec<(u8, Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        held: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let held_items: Vec<Bound<'py, PyAny>> = held.iter().collect();
        let held = held_items
            .iter()
            .enumerate()
            .map(|(index, entry)| Ok(bytes_item(entry, "held", index)?.as_bytes()));
        let turn = Turn {
            prefix,
            prefix_count,
            consumer: text(consumer, "consumer")?.as_bytes(),
            send,
            first_seq,
            want,
            max_bytes,
            flags,
            adopts: adopts
                .iter()
                .map(|(band, entry, id)| (*band, entry.as_bytes(), id.as_bytes()))
                .collect(),
            held: held.collect::<PyResult<_>>()?,
        };
        Ok(PyBytes::new(py, &self.buffer.pack(&turn)))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TIMING_BOUNDS_NS", PyTuple::new(module.py(), BOUNDS_NS)?)?;
    module.add_class::<Outcomes>()
}
