//! Task records and plain Redis commands.

use super::{EMPTY, text, type_name};
use crate::error::CoreError as Refused;
use crate::record::{self, Record as Fields};
use crate::resp::{put_array, put_bulk, put_integer};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};

#[pyclass(frozen, get_all, module = "dtq._core")]
pub struct Record {
    status: u8,
    attempt: u16,
    released: u16,
    created_ms: u64,
    started_ms: u64,
    ended_ms: u64,
    place: Py<PyBytes>,
    token: Py<PyBytes>,
    detail: Py<PyBytes>,
    envelope: Py<PyBytes>,
    history: Py<PyBytes>,
}

#[pyfunction]
fn parse_record(py: Python<'_>, record: &[u8]) -> PyResult<Record> {
    let fields = record::parse(record)?;
    let bytes = |bytes| PyBytes::new(py, bytes).unbind();
    Ok(Record {
        status: fields.status,
        attempt: fields.attempt,
        released: fields.released,
        created_ms: fields.created_ms,
        started_ms: fields.started_ms,
        ended_ms: fields.ended_ms,
        place: bytes(fields.place),
        token: bytes(fields.token),
        detail: bytes(fields.detail),
        envelope: bytes(fields.envelope),
        history: bytes(fields.history),
    })
}

/// A number that fits its field.
fn fit<T: TryFrom<i64>>(number: i64, field: &str) -> Result<T, Refused> {
    T::try_from(number).map_err(|_| {
        let bits = 8 * size_of::<T>();
        Refused::invalid(field, format!("{number} does not fit {bits} bits without sign"))
    })
}

#[pyfunction]
#[pyo3(signature = (
    status, attempt, released, created_ms, started_ms, ended_ms, token, detail, envelope, history = EMPTY,
    place = EMPTY
), text_signature = "(status, attempt, released, created_ms, started_ms, ended_ms, token, detail, envelope, history=b'', place=b'')")]
#[allow(clippy::too_many_arguments)] // The fields of a record, in its order.
fn encode_record<'py>(
    py: Python<'py>,
    status: i64,
    attempt: i64,
    released: i64,
    created_ms: i64,
    started_ms: i64,
    ended_ms: i64,
    token: &[u8],
    detail: &[u8],
    envelope: &[u8],
    history: &[u8],
    place: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let fields = Fields {
        status: fit(status, "status")?,
        attempt: fit(attempt, "attempt")?,
        released: fit(released, "released")?,
        created_ms: fit(created_ms, "created_ms")?,
        started_ms: fit(started_ms, "started_ms")?,
        ended_ms: fit(ended_ms, "ended_ms")?,
        place,
        token,
        detail,
        envelope,
        history,
    };
    let mut out = Vec::with_capacity(fields.byte_size());
    fields.encode(&mut out)?;
    Ok(PyBytes::new(py, &out))
}

/// Appends the arguments of a command.
fn put_args(args: &Bound<'_, PyList>, out: &mut Vec<u8>) -> Result<(), Refused> {
    for (index, arg) in args.iter().enumerate() {
        if let Ok(bytes) = arg.cast::<PyBytes>() {
            put_bulk(out, bytes.as_bytes());
        } else if let Ok(string) = arg.cast::<PyString>() {
            put_bulk(out, text(string, &format!("args[{index}]"))?.as_bytes());
        } else if let Some(number) = arg
            .cast_exact::<PyInt>()
            .ok()
            .and_then(|number| number.extract::<i128>().ok())
        {
            put_integer(out, number);
        } else {
            let problem = format!("must be bytes, str or int (up to 128 bits), not {}", type_name(&arg));
            return Err(Refused::invalid(format!("args[{index}]"), problem));
        }
    }
    Ok(())
}

#[pyfunction]
fn pack_command<'py>(args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::with_capacity(256);
    put_array(&mut out, args.len());
    put_args(args, &mut out)?;
    Ok(PyBytes::new(args.py(), &out))
}

#[pyfunction]
fn pack_args<'py>(args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::with_capacity(256);
    put_args(args, &mut out)?;
    Ok(PyBytes::new(args.py(), &out))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_record, module)?)?;
    module.add_function(wrap_pyfunction!(encode_record, module)?)?;
    module.add_function(wrap_pyfunction!(pack_command, module)?)?;
    module.add_function(wrap_pyfunction!(pack_args, module)?)?;
    module.add_class::<Record>()
}
