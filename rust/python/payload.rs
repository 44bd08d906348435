//! Python values to JSON, refusing whatever would not come back as it was.

use super::type_name;
use crate::error::{CoreError as Refused, Size};
use crate::json::{MAX_DEPTH, Refusal, Step, put_float, put_integer, put_string};
use crate::raw_json;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

/// The metaclass of enums. Looked up when the module is loaded: an import during an encode could run other code.
static ENUM_TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

type Encoded = Result<(), Box<Refusal>>;

/// Up to here the size of a value that is too large is counted: a few lists within each other can stand for more than
/// any memory holds.
const COUNTED_MOST: usize = 64 * 1024 * 1024;

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// Length of `out` before the value.
    start: usize,
    /// Length that `out` must not exceed.
    limit: usize,
    /// Set while a value is only counted: the bytes that have been dropped from `out`.
    counted: Option<usize>,
}

/// Appends the JSON of `value`; on an error `out` is as it was. `root` names the value in errors.
pub fn encode(
    value: &Bound<'_, PyAny>,
    root: &str,
    max_bytes: Option<usize>,
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    let start = out.len();
    let max_bytes = max_bytes.unwrap_or(usize::MAX);
    let mut encoder = Encoder {
        start,
        limit: start.saturating_add(max_bytes),
        counted: None,
        out,
    };
    encoder
        .value(value, 0)
        .and_then(|()| encoder.check_size(0))
        .map_err(|refusal| {
            let error = if refusal.too_large {
                Refused::too_large(root, max_bytes, encoder.measure(value))
            } else {
                refusal.into_error(root)
            };
            encoder.out.truncate(start);
            error
        })
}

/// The same for a payload, which must be a dict.
pub fn encode_payload(payload: &Bound<'_, PyAny>, max_bytes: usize, out: &mut Vec<u8>) -> Result<(), Refused> {
    if !payload.is_instance_of::<PyDict>() {
        return Err(Refused::invalid(
            "payload",
            format!("must be a dict, not {}", type_name(payload)),
        ));
    }
    encode(payload, "payload", Some(max_bytes), out)
}

/// The value as a `T`, if that is its very type. Unlike `cast_exact` alone it makes no error object when it is not.
fn exact<'a, 'py, T: PyTypeInfo>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, T>> {
    if value.is_exact_instance_of::<T>() {
        value.cast_exact().ok()
    } else {
        None
    }
}

impl Encoder<'_> {
    /// Called where output grows without bound, so that a huge value ends early.
    fn check_size(&mut self, more: usize) -> Encoded {
        if self.out.len().saturating_add(more) > self.limit {
            self.outgrown(more)
        } else {
            Ok(())
        }
    }

    /// The end of a value; one that is only counted goes on, without what it has written.
    #[cold]
    fn outgrown(&mut self, more: usize) -> Encoded {
        let Some(counted) = &mut self.counted else {
            return Err(Refusal::too_large());
        };
        *counted += self.out.len() - self.start;
        self.out.truncate(self.start);
        if counted.saturating_add(more) > COUNTED_MOST {
            *counted = counted.saturating_add(more);
            return Err(Refusal::too_large());
        }
        Ok(())
    }

    /// The size of a value that was found too large: it is walked again, for the error only.
    #[cold]
    fn measure(&mut self, value: &Bound<'_, PyAny>) -> Size {
        self.out.truncate(self.start);
        self.counted = Some(0);
        let walked = self.value(value, 0);
        let bytes = self.counted.unwrap_or(0) + self.out.len() - self.start;
        match walked {
            Ok(()) => Size::Exactly(bytes),
            Err(_) => Size::MoreThan(bytes),
        }
    }

    fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Encoded {
        if let Some(string) = exact::<PyString>(value) {
            self.string(string)
        } else if let Some(integer) = exact::<PyInt>(value) {
            self.integer(integer)
        } else if let Some(dict) = exact::<PyDict>(value) {
            self.dict(dict, depth)
        } else if let Some(list) = exact::<PyList>(value) {
            self.sequence(list.iter(), depth)
        } else if let Some(truth) = exact::<PyBool>(value) {
            self.out
                .extend_from_slice(if truth.is_true() { b"true" } else { b"false" });
            Ok(())
        } else if value.is_none() {
            self.out.extend_from_slice(b"null");
            Ok(())
        } else if let Some(float) = exact::<PyFloat>(value) {
            self.float(float)
        } else if let Some(tuple) = exact::<PyTuple>(value) {
            self.sequence(tuple.iter(), depth)
        } else {
            self.other(value, depth)
        }
    }

    /// Subclasses, and everything that is refused.
    #[cold]
    fn other(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Encoded {
        if is_enum(value) {
            return Err(Refusal::new(format!(
                "{} is an enum and would come back as its value; pass .value",
                type_name(value)
            )));
        }
        if let Ok(string) = value.cast::<PyString>() {
            self.string(string)
        } else if let Ok(integer) = value.cast::<PyInt>() {
            self.integer(integer)
        } else if let Ok(dict) = value.cast::<PyDict>() {
            self.dict(dict, depth)
        } else if let Ok(list) = value.cast::<PyList>() {
            self.sequence(list.iter(), depth)
        } else if let Ok(float) = value.cast::<PyFloat>() {
            self.float(float)
        } else if value.is_instance_of::<PyTuple>() {
            Err(Refusal::new(format!(
                "{} is a named tuple and would come back as a list; pass a dict or a list",
                type_name(value)
            )))
        } else {
            Err(Refusal::new(format!(
                "{} is not JSON; pass a dict, list, str, int, float, bool or None",
                type_name(value)
            )))
        }
    }

    fn string(&mut self, string: &Bound<'_, PyString>) -> Encoded {
        let text = string.to_str().map_err(|_| lone_surrogate("the string"))?;
        self.check_size(text.len())?;
        put_string(self.out, text);
        Ok(())
    }

    fn integer(&mut self, integer: &Bound<'_, PyInt>) -> Encoded {
        if let Ok(number) = integer.extract::<i64>() {
            put_integer(self.out, number);
        } else if let Ok(number) = integer.extract::<u64>() {
            put_integer(self.out, number);
        } else {
            return Err(Refusal::new(
                "the integer is outside -2**63 ... 2**64-1; pass it as a string".to_owned(),
            ));
        }
        Ok(())
    }

    fn float(&mut self, float: &Bound<'_, PyFloat>) -> Encoded {
        let number = float.value();
        if put_float(self.out, number) {
            return Ok(());
        }
        let name = if number.is_nan() { "NaN" } else { "infinity" };
        Err(Refusal::new(format!("{name} is not JSON; use None or a string")))
    }

    fn enter(&mut self, depth: usize) -> Encoded {
        if depth >= MAX_DEPTH {
            return Err(Refusal::new(format!(
                "nested deeper than {MAX_DEPTH} levels (or in a cycle); flatten it"
            )));
        }
        self.check_size(0)
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>, depth: usize) -> Encoded {
        self.enter(depth)?;
        self.out.push(b'{');
        for (index, (key, value)) in dict.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let key = key_string(&key)?;
            let text = key.to_str().map_err(|_| lone_surrogate("a key"))?;
            self.check_size(text.len())?;
            put_string(self.out, text);
            self.out.push(b':');
            self.value(&value, depth + 1)
                .map_err(|refusal| refusal.inside(Step::Key(text.to_owned())))?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn sequence<'py>(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> Encoded {
        self.enter(depth)?;
        self.out.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.value(&item, depth + 1)
                .and_then(|()| self.check_size(0))
                .map_err(|refusal| refusal.inside(Step::Index(index)))?;
        }
        self.out.push(b']');
        Ok(())
    }
}

fn key_string<'a, 'py>(key: &'a Bound<'py, PyAny>) -> Result<&'a Bound<'py, PyString>, Box<Refusal>> {
    if let Some(string) = exact(key) {
        return Ok(string);
    }
    match key.cast::<PyString>() {
        Ok(string) if !is_enum(key) => Ok(string),
        Ok(_) => Err(Refusal::new(format!(
            "a key is the enum {}; use its .value",
            type_name(key)
        ))),
        Err(_) => Err(Refusal::new(format!(
            "a key is {}, keys must be str; convert it",
            type_name(key)
        ))),
    }
}

fn is_enum(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let metaclass = value.get_type().get_type();
    ENUM_TYPE
        .get(py)
        .is_some_and(|enum_type| metaclass.is_subclass(enum_type.bind(py)).unwrap_or(false))
}

#[cold]
fn lone_surrogate(what: &str) -> Box<Refusal> {
    Refusal::new(format!(
        "{what} holds a lone surrogate, which UTF-8 cannot carry; clean it, or decode it otherwise"
    ))
}

#[pyfunction]
#[pyo3(signature = (value, root = "payload", max_bytes = None))]
fn encode_json<'py>(value: &Bound<'py, PyAny>, root: &str, max_bytes: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::with_capacity(256);
    encode(value, root, max_bytes, &mut out)?;
    Ok(PyBytes::new(value.py(), &out))
}

#[pyfunction]
#[pyo3(signature = (text, root = "payload"))]
fn check_json(text: &[u8], root: &str) -> PyResult<()> {
    Ok(raw_json::check(text, root)?)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    ENUM_TYPE.import(py, "enum", "EnumMeta")?;
    module.add_function(wrap_pyfunction!(encode_json, module)?)?;
    module.add_function(wrap_pyfunction!(check_json, module)?)
}
