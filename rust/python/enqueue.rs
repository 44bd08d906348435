//! Ids, envelopes and the chunk of an enqueue call.

use super::payload::encode_payload;
use super::{EMPTY, text};
use crate::envelope::{self, Head};
use crate::error::CoreError as Refused;
use crate::ids;
use crate::resp::{put_array, put_bulk, put_integer};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

fn known_time(now_ms: u64) -> Result<u64, Refused> {
    if now_ms > ids::MAX_MS {
        return Err(Refused::invalid("now_ms", "must fit 48 bits"));
    }
    Ok(now_ms)
}

fn seed(random: &[u8]) -> Result<[u8; ids::RANDOM_LENGTH], Refused> {
    let problem = || format!("{} bytes given, an id needs {}", random.len(), ids::RANDOM_LENGTH);
    random.try_into().map_err(|_| Refused::invalid("random", problem()))
}

#[pyfunction]
fn new_ids<'py>(py: Python<'py>, now_ms: u64, random: &[u8], count: usize) -> PyResult<Bound<'py, PyList>> {
    let now_ms = known_time(now_ms)?;
    let (seeds, _) = random.as_chunks::<{ ids::RANDOM_LENGTH }>();
    if seeds.len() < count {
        let problem = format!(
            "{} bytes given, {} needed for each of {count} ids",
            random.len(),
            ids::RANDOM_LENGTH
        );
        return Err(Refused::invalid("random", problem).into());
    }
    let list = PyList::empty(py);
    for seed in &seeds[..count] {
        let id = ids::new_id(now_ms, *seed);
        list.append(PyString::from_bytes(py, &id)?)?;
    }
    Ok(list)
}

#[pyfunction]
fn id_time_ms(id: &Bound<'_, PyString>) -> Option<u64> {
    id.to_str().ok().and_then(|id| ids::time_ms(id.as_bytes()))
}

#[pyclass(frozen, module = "dtq._core")]
pub struct EnvelopeHead {
    bytes: Vec<u8>,
}

impl EnvelopeHead {
    /// Replaces `out` with the envelope of a payload.
    fn write(&self, payload: &Bound<'_, PyAny>, max_bytes: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
        out.clear();
        out.extend_from_slice(&self.bytes);
        encode_payload(payload, max_bytes, out)
    }
}

#[pymethods]
impl EnvelopeHead {
    #[new]
    #[pyo3(signature = (task_type, band, max_attempts, timeout_ms, retention_ms, dead_letter = true, extras = EMPTY),
        text_signature = "(task_type, band, max_attempts, timeout_ms, retention_ms, dead_letter=True, extras=b'')")]
    fn new(
        task_type: &Bound<'_, PyString>,
        band: i64,
        max_attempts: i64,
        timeout_ms: i64,
        retention_ms: i64,
        dead_letter: bool,
        extras: &[u8],
    ) -> PyResult<Self> {
        let max_attempts = match u16::try_from(max_attempts) {
            Ok(number) if number > 0 => number,
            _ => return Err(Refused::invalid("max_attempts", "must be 1 to 65535").into()),
        };
        let head = Head {
            task_type: text(task_type, "task_type")?,
            band: u8::try_from(band).unwrap_or(u8::MAX),
            max_attempts,
            timeout_ms: u32::try_from(timeout_ms)
                .map_err(|_| Refused::invalid("timeout_ms", "must be 0 to 4294967295 (about 49 days)"))?,
            retention_ms: u64::try_from(retention_ms).unwrap_or(u64::MAX),
            dead_letter,
            extras,
        };
        Ok(Self { bytes: head.encode()? })
    }

    fn encode<'py>(&self, payload: &Bound<'py, PyAny>, max_bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::with_capacity(self.bytes.len() + 256);
        self.write(payload, max_bytes, &mut out)?;
        Ok(PyBytes::new(payload.py(), &out))
    }

    fn pack_task<'py>(
        &self,
        prefix: &[u8],
        now_ms: u64,
        random: &[u8],
        payload: &Bound<'py, PyAny>,
        max_bytes: usize,
    ) -> PyResult<(Bound<'py, PyString>, Bound<'py, PyBytes>)> {
        let py = payload.py();
        let id = ids::new_id(known_time(now_ms)?, seed(random)?);
        let mut envelope = Vec::with_capacity(self.bytes.len() + 256);
        self.write(payload, max_bytes, &mut envelope)?;
        let mut out = Vec::with_capacity(prefix.len() + id.len() + envelope.len() + 32);
        out.extend_from_slice(prefix);
        put_bulk(&mut out, &id);
        put_bulk(&mut out, &envelope);
        Ok((PyString::from_bytes(py, &id)?, PyBytes::new(py, &out)))
    }

    fn encode_raw<'py>(&self, py: Python<'py>, payload_json: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &[self.bytes.as_slice(), payload_json].concat())
    }
}

#[pyclass(frozen, get_all, module = "dtq._core")]
pub struct Envelope {
    version: u8,
    task_type: Py<PyString>,
    band: u8,
    max_attempts: u16,
    timeout_ms: u32,
    retention_ms: u64,
    dead_letter: bool,
    extras: Py<PyBytes>,
    payload: Py<PyBytes>,
}

#[pyfunction]
fn parse_envelope(py: Python<'_>, envelope: &[u8]) -> PyResult<Envelope> {
    let parsed = envelope::parse(envelope)?;
    Ok(Envelope {
        version: crate::wire::WIRE_VERSION,
        task_type: PyString::new(py, parsed.head.task_type).unbind(),
        band: parsed.head.band,
        max_attempts: parsed.head.max_attempts,
        timeout_ms: parsed.head.timeout_ms,
        retention_ms: parsed.head.retention_ms,
        dead_letter: parsed.head.dead_letter,
        extras: PyBytes::new(py, parsed.head.extras).unbind(),
        payload: PyBytes::new(py, &envelope[parsed.payload_start..]).unbind(),
    })
}

#[pyclass(module = "dtq._core")]
#[derive(Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    ids: Vec<Py<PyString>>,
    /// Places, each with how many tasks in a row it stands for: most chunks have one.
    places: Vec<(Vec<u8>, usize)>,
    /// Bytes of the places and their counts, about.
    places_size: usize,
    /// Where an envelope is made before its length is known.
    scratch: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, id: &Bound<'_, PyString>, id_text: &str, envelope: &[u8], place: &[u8]) {
        self.bytes.reserve(id_text.len() + envelope.len() + 32);
        put_bulk(&mut self.bytes, id_text.as_bytes());
        put_bulk(&mut self.bytes, envelope);
        match self.places.last_mut() {
            Some((last, count)) if last == place => *count += 1,
            _ => {
                self.places.push((place.to_vec(), 1));
                self.places_size += place.len() + 20;
            }
        }
        self.ids.push(id.clone().unbind());
    }

    fn push_payload(
        &mut self,
        id: &Bound<'_, PyString>,
        head: &EnvelopeHead,
        payload: &Bound<'_, PyAny>,
        max_bytes: usize,
        place: &[u8],
    ) -> Result<(), Refused> {
        let id_text = text(id, "id")?;
        let mut envelope = std::mem::take(&mut self.scratch);
        let written = head.write(payload, max_bytes, &mut envelope);
        if written.is_ok() {
            self.push(id, id_text, &envelope, place);
        }
        self.scratch = envelope;
        written
    }
}

#[pymethods]
impl Chunk {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.ids.len()
    }

    #[getter]
    fn byte_size(&self) -> usize {
        self.bytes.len() + self.places_size
    }

    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.ids)
    }

    fn add(&mut self, id: &Bound<'_, PyString>, envelope: &[u8], place: &[u8]) -> PyResult<()> {
        self.push(id, text(id, "id")?, envelope, place);
        Ok(())
    }

    fn add_payload(
        &mut self,
        id: &Bound<'_, PyString>,
        head: &EnvelopeHead,
        payload: &Bound<'_, PyAny>,
        max_bytes: usize,
        place: &[u8],
    ) -> PyResult<()> {
        Ok(self.push_payload(id, head, payload, max_bytes, place)?)
    }

    fn extend(
        &mut self,
        ids: &Bound<'_, PyList>,
        head: &EnvelopeHead,
        payloads: &Bound<'_, PyList>,
        max_bytes: usize,
        place: &[u8],
    ) -> PyResult<Vec<(usize, PyErr)>> {
        if ids.len() != payloads.len() {
            let problem = format!("{} ids for {} payloads; give one each", ids.len(), payloads.len());
            return Err(Refused::invalid("ids", problem).into());
        }
        // Before anything is appended: a wrong id is a mistake of the caller, not one bad item.
        if let Some(index) = ids.iter().position(|id| !id.is_instance_of::<PyString>()) {
            return Err(Refused::invalid(format!("ids[{index}]"), "must be a str").into());
        }
        let mut refused = Vec::new();
        for (index, (id, payload)) in ids.iter().zip(payloads.iter()).enumerate() {
            let id = id
                .cast::<PyString>()
                .map_err(|_| Refused::invalid(format!("ids[{index}]"), "must be a str"))?;
            if let Err(error) = self.push_payload(id, head, &payload, max_bytes, place) {
                refused.push((index, PyErr::from(error)));
            }
        }
        Ok(refused)
    }

    fn pack<'py>(&self, py: Python<'py>, prefix: &[u8], prefix_count: usize) -> Bound<'py, PyBytes> {
        let mut out = Vec::with_capacity(prefix.len() + self.byte_size() + 32);
        put_array(&mut out, prefix_count + 1 + 2 * (self.places.len() + self.ids.len()));
        out.extend_from_slice(prefix);
        put_integer(&mut out, self.places.len());
        for (place, count) in &self.places {
            put_bulk(&mut out, place);
            put_integer(&mut out, *count);
        }
        out.extend_from_slice(&self.bytes);
        PyBytes::new(py, &out)
    }

    fn pack_one<'py>(&self, py: Python<'py>, prefix: &[u8], prefix_count: usize) -> PyResult<Bound<'py, PyBytes>> {
        let ([_], [(place, _)]) = (self.ids.as_slice(), self.places.as_slice()) else {
            let problem = format!("has {} tasks; pack_one takes one", self.ids.len());
            return Err(Refused::invalid("chunk", problem).into());
        };
        let mut out = Vec::with_capacity(prefix.len() + self.bytes.len() + place.len() + 32);
        put_array(&mut out, prefix_count + 3);
        out.extend_from_slice(prefix);
        put_bulk(&mut out, place);
        out.extend_from_slice(&self.bytes);
        Ok(PyBytes::new(py, &out))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(new_ids, module)?)?;
    module.add_function(wrap_pyfunction!(id_time_ms, module)?)?;
    module.add_function(wrap_pyfunction!(parse_envelope, module)?)?;
    module.add_class::<EnvelopeHead>()?;
    module.add_class::<Envelope>()?;
    module.add_class::<Chunk>()
}
