//! Due tasks and their promotion.

use super::{bytes_item, lossless_text};
use crate::error::CoreError as Refused;
use crate::schedule::{examine, pack_promote, parse_score, score_from_float};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyList, PyString};

#[pyclass(frozen, module = "dtq._core")]
pub struct DueTask {
    #[pyo3(get)]
    id: Py<PyString>,
    /// The id as it came, which the promote call sends back.
    id_bytes: Py<PyBytes>,
    #[pyo3(get)]
    score: i64,
    #[pyo3(get)]
    band: u8,
    #[pyo3(get)]
    status: u8,
    #[pyo3(get)]
    error: Option<String>,
}

fn score(item: &Bound<'_, PyAny>) -> Option<i64> {
    if let Ok(bytes) = item.cast_exact::<PyBytes>() {
        parse_score(bytes.as_bytes())
    } else if let Ok(float) = item.cast_exact::<PyFloat>() {
        score_from_float(float.value())
    } else {
        item.extract().ok()
    }
}

/// The bytes of a record; None = there is none.
fn record<'a>(item: &'a Bound<'_, PyAny>, index: usize) -> Result<Option<&'a [u8]>, Refused> {
    if item.is_none() || matches!(item.extract::<bool>(), Ok(false)) {
        return Ok(None);
    }
    let bytes = bytes_item(item, "reply", index)?.as_bytes();
    Ok((!bytes.is_empty()).then_some(bytes))
}

#[pyfunction]
fn parse_due<'py>(reply: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
    let py = reply.py();
    if !reply.len().is_multiple_of(3) {
        return Err(Refused::invalid("reply", format!("has {} items, not 3 for each task", reply.len())).into());
    }
    let tasks = PyList::empty(py);
    let mut items = reply.iter().enumerate();
    while let (Some((at, id)), Some((score_at, score_item)), Some((record_at, record_item))) =
        (items.next(), items.next(), items.next())
    {
        let id = bytes_item(&id, "reply", at)?;
        let score = score(&score_item)
            .ok_or_else(|| Refused::invalid(format!("reply[{score_at}]"), "must be a number, the time in ms"))?;
        let due = examine(record(&record_item, record_at)?);
        tasks.append(DueTask {
            id: lossless_text(py, id.as_bytes())?.unbind(),
            id_bytes: id.clone().unbind(),
            score,
            band: due.band,
            status: due.status,
            error: due.error,
        })?;
    }
    Ok(tasks)
}

#[pyfunction]
fn encode_promote<'py>(due: &Bound<'py, PyList>, prefix: &[u8], prefix_count: usize) -> PyResult<Bound<'py, PyBytes>> {
    let py = due.py();
    let mut tasks = Vec::with_capacity(due.len());
    for (index, item) in due.iter().enumerate() {
        let task = item
            .cast_into::<DueTask>()
            .map_err(|_| Refused::invalid(format!("due[{index}]"), "must be a DueTask of parse_due"))?;
        tasks.push(task);
    }
    let arguments = tasks.iter().map(|task| {
        let task = task.get();
        (
            task.id_bytes.as_bytes(py),
            task.score,
            task.band,
            task.error.as_deref().unwrap_or_default().as_bytes(),
        )
    });
    Ok(PyBytes::new(py, &pack_promote(arguments, prefix, prefix_count)))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_due, module)?)?;
    module.add_function(wrap_pyfunction!(encode_promote, module)?)?;
    module.add_class::<DueTask>()
}
