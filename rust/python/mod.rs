//! `dtq._core`: the boundary to Python, one file for each part. Documentation for users is `python/dtq/_core.pyi`.
//!
//! Python owns the objects; nothing here detaches from the interpreter, and only `sync_loop` calls back into Python code.

// The names and signatures are those of the stub, which documents them; `mypy.stubtest` compares the two.
#![allow(missing_docs)]

mod claims;
mod enqueue;
mod payload;
mod records;
mod schedule;
mod slots;
mod sync_loop;
mod turn;

use crate::envelope::FOREVER_MS;
use crate::error::CoreError as Refused;
use crate::wire::WIRE_VERSION;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

create_exception!(
    dtq._core,
    CoreError,
    PyException,
    "Input was refused or bytes are damaged; `str()` names the field and the way out."
);

/// Default of arguments that take bytes.
const EMPTY: &[u8] = b"";

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        let error = CoreError::new_err(refused.to_string());
        Python::attach(|py| {
            let value = error.value(py);
            value.setattr("field", refused.field)?;
            value.setattr("kind", refused.kind.as_str())
        })
        .err()
        .unwrap_or(error)
    }
}

/// The item of a list as bytes; the error names the list and the position.
fn bytes_item<'a, 'py>(
    item: &'a Bound<'py, PyAny>,
    list: &str,
    index: usize,
) -> Result<&'a Bound<'py, PyBytes>, Refused> {
    item.cast_exact::<PyBytes>().map_err(|_| {
        let found = type_name(item);
        Refused::invalid(format!("{list}[{index}]"), format!("must be bytes, not {found}"))
    })
}

/// UTF-8 of a string; a lone surrogate is refused.
fn text<'a>(string: &'a Bound<'_, PyString>, field: &str) -> Result<&'a str, Refused> {
    string
        .to_str()
        .map_err(|_| Refused::invalid(field, "holds a lone surrogate, which UTF-8 cannot carry"))
}

/// Name of a value's type, for messages.
fn type_name(value: &Bound<'_, PyAny>) -> String {
    value
        .get_type()
        .name()
        .map_or_else(|_| "object".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Text of an id that may be any bytes: what is no UTF-8 comes as surrogate escapes, as in Python's file names.
fn lossless_text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => Ok(PyBytes::new(py, bytes)
            .call_method1("decode", ("utf-8", "surrogateescape"))?
            .cast_into()?),
    }
}

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let error = py.get_type::<CoreError>();
    error.setattr("field", "")?;
    error.setattr("kind", "invalid")?;
    module.add("CoreError", error)?;
    module.add("WIRE_VERSION", WIRE_VERSION)?;
    module.add("FOREVER_MS", FOREVER_MS)?;
    module.add("SOURCE_FINGERPRINT", env!("DTQ_SOURCE_FINGERPRINT"))?;
    module.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    payload::register(module)?;
    enqueue::register(module)?;
    records::register(module)?;
    claims::register(module)?;
    turn::register(module)?;
    schedule::register(module)?;
    slots::register(module)?;
    sync_loop::register(module)
}
