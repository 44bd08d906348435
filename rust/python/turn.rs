//! The outcomes of a child, and the turn that takes them to Redis.

use super::claims::Claim;
use super::payload::encode;
use super::{EMPTY, bytes_item, text};
use crate::envelope::FOREVER_MS;
use crate::error::CoreError as Refused;
use crate::record::{Record, status};
use crate::turn::{OutcomeBuffer, Turn, head};
use crate::wire::parse_entry;
use crate::{ids, json};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

#[pyclass(module = "dtq._core")]
pub struct Outcomes {
    buffer: OutcomeBuffer,
    ids: Vec<Py<PyString>>,
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

fn saturated(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

impl Outcomes {
    /// Appends an outcome with a record; on an error the buffer is as it was.
    fn push(&mut self, claim: &Claim, head: &[u8], record: &Record<'_>, py: Python<'_>) -> PyResult<()> {
        let fixed = [claim.id_bytes.as_bytes(py), claim.token.as_bytes(py), head];
        self.buffer.push(fixed, record.byte_size(), |out| record.encode(out))?;
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
            success_head,
            scratch: Vec::new(),
        })
    }

    fn __len__(&self) -> usize {
        self.buffer.len()
    }

    #[getter]
    fn byte_size(&self) -> usize {
        self.buffer.byte_size()
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

    fn succeed(
        &mut self,
        claim: &Bound<'_, Claim>,
        result: &Bound<'_, PyAny>,
        ended_ms: u64,
        max_bytes: usize,
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
                let fixed = [claim.id_bytes.as_bytes(py), claim.token.as_bytes(py), &head];
                self.buffer.push(fixed, 0, |_| Ok::<(), Refused>(()))?;
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
        pushed
    }

    #[allow(clippy::too_many_arguments)] // What a record of a failed attempt holds.
    #[pyo3(signature = (claim, letter, ended_ms, amount_ms, detail, history = EMPTY, released = 0),
        text_signature = "($self, claim, letter, ended_ms, amount_ms, detail, history=b'', released=0)")]
    fn settle(
        &mut self,
        claim: &Bound<'_, Claim>,
        letter: &str,
        ended_ms: u64,
        amount_ms: i64,
        detail: &[u8],
        history: &[u8],
        released: u16,
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
        self.push(claim, &head(letter, claim.band, amount), &record, py)
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
    module.add_class::<Outcomes>()
}
