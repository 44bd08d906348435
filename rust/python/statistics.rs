//! The histogram of durations.

use crate::histogram;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyclass(module = "dtq._core")]
#[derive(Default)]
pub struct Histogram {
    inner: histogram::Histogram,
}

#[pymethods]
impl Histogram {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter]
    fn count(&self) -> u64 {
        self.inner.count()
    }

    #[getter]
    fn total_ns(&self) -> u64 {
        self.inner.total_ns()
    }

    fn record(&mut self, ns: i64) {
        self.inner.record(u64::try_from(ns).unwrap_or(0));
    }

    fn merge(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) {
        // A copy first: the other one may be this very object.
        let theirs = other.borrow().inner.clone();
        slf.borrow_mut().inner.merge(&theirs);
    }

    fn percentile(&self, percent: f64) -> u64 {
        self.inner.percentile(percent)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.to_bytes())
    }

    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        Ok(Self {
            inner: histogram::Histogram::from_bytes(data)?,
        })
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Histogram>()
}
