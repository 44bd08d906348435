//! Claims: the reply of a turn as objects.
//!
//! A claim keeps the bytes objects of the reply and cuts out payload, extras and tail only when asked.

use super::{bytes_item, lossless_text};
use crate::claim::{deadline_ms, has_history, is_cancel_requested, is_solo, limit_ns, parse_live, plain_claim};
use crate::delivery;
use crate::envelope;
use crate::error::CoreError as Refused;
use crate::wire::parse_u64;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::ops::Range;

/// Items of the reply before the claims: codes and the server's time.
const FRONT: usize = 2;

#[pyclass(frozen, module = "dtq._core")]
pub struct Claim {
    #[pyo3(get)]
    pub id: Py<PyString>,
    /// The id as it came, which an outcome sends back.
    pub id_bytes: Py<PyBytes>,
    #[pyo3(get)]
    pub entry: Py<PyBytes>,
    #[pyo3(get)]
    pub token: Py<PyBytes>,
    #[pyo3(get)]
    pub envelope: Py<PyBytes>,
    #[pyo3(get)]
    pub band: u8,
    #[pyo3(get)]
    pub attempt: u64,
    #[pyo3(get)]
    pub released: u64,
    #[pyo3(get)]
    pub seq: u64,
    #[pyo3(get)]
    pub started_ms: u64,
    #[pyo3(get)]
    pub task_type: Py<PyString>,
    #[pyo3(get)]
    max_attempts: u16,
    #[pyo3(get)]
    timeout_ms: u32,
    #[pyo3(get)]
    pub retention_ms: u64,
    #[pyo3(get)]
    dead_letter: bool,
    #[pyo3(get)]
    pub error: Option<Py<PyString>>,
    extras: Range<usize>,
    payload_start: usize,
    tail_start: usize,
}

impl Claim {
    /// The end of the live value: what is set for this task only.
    pub fn tail_bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.token.as_bytes(py).get(self.tail_start..).unwrap_or_default()
    }

    /// Whether it is to be claimed alone, as after a death.
    pub fn is_alone(&self, py: Python<'_>) -> bool {
        is_solo(self.tail_bytes(py))
    }

    /// Whether a record with the lines of earlier attempts exists.
    pub fn has_history(&self, py: Python<'_>) -> bool {
        has_history(self.tail_bytes(py))
    }
}

#[pymethods]
impl Claim {
    #[getter]
    pub fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(
            py,
            self.envelope.as_bytes(py).get(self.payload_start..).unwrap_or_default(),
        )
    }

    #[getter]
    fn extras<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(
            py,
            self.envelope.as_bytes(py).get(self.extras.clone()).unwrap_or_default(),
        )
    }

    #[getter]
    fn tail<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.tail_bytes(py))
    }

    #[getter]
    fn deadline_ms(&self, py: Python<'_>) -> u64 {
        deadline_ms(self.tail_bytes(py))
    }

    pub fn limit_ns(&self, py: Python<'_>, now_ns: u64, timeout_ns: u64, clock_offset_ns: i64) -> u64 {
        limit_ns(
            now_ns,
            self.timeout_ms,
            timeout_ns,
            deadline_ms(self.tail_bytes(py)),
            clock_offset_ns,
        )
    }

    #[getter]
    fn history(&self, py: Python<'_>) -> bool {
        self.has_history(py)
    }

    #[getter]
    fn solo(&self, py: Python<'_>) -> bool {
        self.is_alone(py)
    }

    #[getter]
    fn cancel_requested(&self, py: Python<'_>) -> bool {
        is_cancel_requested(self.tail_bytes(py))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "<Claim {} {} attempt {}>",
            self.id.bind(py),
            self.task_type.bind(py),
            self.attempt
        )
    }
}

#[pyclass(frozen, get_all, module = "dtq._core")]
pub struct TurnReply {
    codes: Py<PyBytes>,
    claims: Py<PyList>,
    late: bool,
    envelope_bytes: usize,
}

/// Strings that most claims of a batch share.
struct Shared<'py> {
    empty: Bound<'py, PyString>,
    task_type: Bound<'py, PyString>,
    task_type_text: String,
}

impl<'py> Shared<'py> {
    fn new(py: Python<'py>) -> Self {
        let empty = PyString::new(py, "");
        Self {
            task_type: empty.clone(),
            empty,
            task_type_text: String::new(),
        }
    }

    fn task_type(&mut self, text: &str) -> Py<PyString> {
        if self.task_type_text != text {
            self.task_type = PyString::new(self.empty.py(), text);
            text.clone_into(&mut self.task_type_text);
        }
        self.task_type.clone().unbind()
    }
}

/// One claim's items as they came: entry, id, token, band, envelope; the token of a plain claim is made here.
struct Items<'py> {
    entry: Bound<'py, PyBytes>,
    id: Bound<'py, PyBytes>,
    token: Bound<'py, PyBytes>,
    band: u8,
    envelope: Bound<'py, PyBytes>,
}

/// What the live values of plain claims have in common.
struct Plain<'a> {
    consumer: &'a [u8],
    now_ms: Bound<'a, PyBytes>,
}

/// Reads the items of the claim that begins at `at` and moves `at` behind them.
fn take_items<'py>(reply: &Bound<'py, PyList>, at: &mut usize, plain: &Plain<'_>, seq: u64) -> PyResult<Items<'py>> {
    let start = *at;
    let item = |offset: usize| -> PyResult<Bound<'py, PyAny>> {
        reply.get_item(start + offset).map_err(|_| {
            let problem = format!("has {} items; the claim at {start} is not complete", reply.len());
            Refused::invalid("reply", problem).into()
        })
    };
    let bytes = |offset: usize| -> PyResult<Bound<'py, PyBytes>> {
        Ok(bytes_item(&item(offset)?, "reply", start + offset)?.clone())
    };
    let (entry, id) = (bytes(0)?, bytes(1)?);
    let third = item(2)?;
    let is_plain = !third.is_instance_of::<PyBytes>();
    let (band_at, token) = if is_plain {
        (
            2,
            plain_claim(entry.as_bytes(), plain.consumer, seq, plain.now_ms.as_bytes()),
        )
    } else {
        (3, Vec::new())
    };
    let band = band_number(&item(band_at)?).ok_or_else(|| {
        Refused::invalid(
            format!("reply[{}]", start + band_at),
            "must be a band, 0 to 9, as int or bytes",
        )
    })?;
    *at = start + band_at + 2;
    Ok(Items {
        token: if is_plain {
            PyBytes::new(reply.py(), &token)
        } else {
            bytes(2)?
        },
        envelope: bytes(band_at + 1)?,
        entry,
        id,
        band,
    })
}

/// Builds one claim from its items.
fn claim<'py>(items: Items<'py>, shared: &mut Shared<'py>) -> PyResult<Claim> {
    let py = items.entry.py();
    let Items {
        entry,
        id,
        token,
        band,
        envelope,
    } = items;
    let mut claim = Claim {
        id: lossless_text(py, id.as_bytes())?.unbind(),
        id_bytes: id.unbind(),
        entry: entry.unbind(),
        token: token.clone().unbind(),
        envelope: envelope.clone().unbind(),
        band,
        attempt: 0,
        released: 0,
        seq: 0,
        started_ms: 0,
        task_type: shared.empty.clone().unbind(),
        max_attempts: 0,
        timeout_ms: 0,
        retention_ms: 0,
        dead_letter: true,
        error: None,
        extras: 0..0,
        payload_start: usize::MAX,
        tail_start: usize::MAX,
    };
    match envelope::parse(envelope.as_bytes()) {
        Ok(parsed) => {
            claim.task_type = shared.task_type(parsed.head.task_type);
            claim.max_attempts = parsed.head.max_attempts;
            claim.timeout_ms = parsed.head.timeout_ms;
            claim.retention_ms = parsed.head.retention_ms;
            claim.dead_letter = parsed.head.dead_letter;
            claim.extras = parsed.extras;
            claim.payload_start = parsed.payload_start;
        }
        Err(error) => claim.error = Some(PyString::new(py, &error.to_string()).unbind()),
    }
    if let Some(live) = parse_live(token.as_bytes()) {
        claim.attempt = live.attempt;
        claim.released = live.released;
        claim.seq = live.seq;
        claim.started_ms = live.started_ms;
        claim.tail_start = live.tail_start;
    } else {
        claim.error =
            Some(PyString::new(py, "token: the live value is damaged or not that of a running task").unbind());
    }
    Ok(claim)
}

fn band_number(band: &Bound<'_, PyAny>) -> Option<u8> {
    let number = match band.cast_exact::<PyBytes>() {
        Ok(digits) => parse_u64(digits.as_bytes()).and_then(|number| u8::try_from(number).ok()),
        Err(_) => band.extract().ok(),
    };
    number.filter(|number| *number <= envelope::MAX_BAND)
}

#[pyfunction]
#[pyo3(signature = (reply, consumer = "", first_seq = 0))]
fn parse_claims(reply: &Bound<'_, PyList>, consumer: &str, first_seq: u64) -> PyResult<TurnReply> {
    let py = reply.py();
    let count = reply.len();
    if count == 0 {
        return Err(Refused::invalid("reply", "is empty; the codes of the outcomes are missing").into());
    }
    let codes = bytes_item(&reply.get_item(0)?, "reply", 0)?.clone();
    let late = count == 1 && codes.as_bytes() == b"late";
    let mut claims = Vec::new();
    let mut envelope_bytes = 0;
    if count > FRONT {
        let now_ms = bytes_item(&reply.get_item(1)?, "reply", 1)?.clone();
        let consumer = consumer.as_bytes();
        let plain = Plain { consumer, now_ms };
        let mut shared = Shared::new(py);
        let (mut at, mut seq) = (FRONT, first_seq);
        claims.reserve((count - FRONT) / 4);
        while at < count {
            let items = take_items(reply, &mut at, &plain, seq)?;
            envelope_bytes += items.envelope.as_bytes().len();
            claims.push(Bound::new(py, claim(items, &mut shared)?)?);
            seq += 1;
        }
    }
    Ok(TurnReply {
        codes: if late {
            PyBytes::new(py, b"").unbind()
        } else {
            codes.unbind()
        },
        claims: PyList::new(py, claims)?.unbind(),
        late,
        envelope_bytes,
    })
}

#[pyfunction]
fn parse_delivery(py: Python<'_>, answers: &[u8]) -> PyResult<Option<Claim>> {
    let Some(adopted) = delivery::parse(answers) else {
        return Ok(None);
    };
    let items = Items {
        entry: PyBytes::new(py, adopted.entry),
        id: PyBytes::new(py, adopted.id),
        token: PyBytes::new(py, adopted.token),
        band: adopted.band,
        envelope: PyBytes::new(py, adopted.envelope),
    };
    claim(items, &mut Shared::new(py)).map(Some)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_claims, module)?)?;
    module.add_function(wrap_pyfunction!(parse_delivery, module)?)?;
    module.add_class::<Claim>()?;
    module.add_class::<TurnReply>()
}
