//! The loop that runs sync handlers one after the other. It makes no object of its own for a success: in Python the
//! same steps took a child two thirds of its time (docs/decisions/0014).
//!
//! What it may not decide goes back to the caller: to settle, to begin an async handler, to leave. What is no success
//! is worked out by Python code, called from here.

use super::claims::Claim;
use super::slots::{Limits, Slots};
use super::turn::Outcomes;
use crate::recent;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Before a handler that takes longer than this, outcomes that wait are settled.
const SLOW_NS: i64 = 1_000_000;
/// No outcome waits longer than this for its settle, if handlers are quick.
const OLD_NS: u64 = 5_000_000;
/// The place of sync handlers in the slots.
const PLACE: usize = 0;

/// How long the handlers of a child took of late.
#[pyclass(frozen, module = "dtq._core")]
pub struct Average {
    /// The bits of a float.
    bits: AtomicU64,
}

#[pymethods]
impl Average {
    #[new]
    fn new() -> Self {
        Self {
            bits: AtomicU64::new(0f64.to_bits()),
        }
    }

    #[getter]
    fn ns(&self) -> f64 {
        f64::from_bits(self.bits.load(Relaxed))
    }

    #[allow(clippy::cast_precision_loss)] // 2^53 ns are 104 days
    fn ran(&self, took_ns: u64) {
        let average = recent::of_child(self.ns(), took_ns as f64);
        self.bits.store(average.to_bits(), Relaxed);
    }
}

/// What one task type needs for each of its attempts: read from its route once for all claims in a row that are of it.
struct Route<'py> {
    route: Bound<'py, PyAny>,
    task_type: Bound<'py, PyString>,
    function: Bound<'py, PyAny>,
    names: Vec<Bound<'py, PyAny>>,
    is_async: bool,
    wants_context: bool,
    recent_ns: i64,
}

impl<'py> Route<'py> {
    fn of(route: Bound<'py, PyAny>, task_type: &Bound<'py, PyString>) -> PyResult<Self> {
        let py = route.py();
        let names = route.getattr(intern!(py, "names"))?.cast_into::<PyFrozenSet>()?;
        Ok(Self {
            task_type: task_type.clone(),
            function: route.getattr(intern!(py, "function"))?,
            names: names.iter().collect(),
            is_async: route.getattr(intern!(py, "is_async"))?.is_truthy()?,
            wants_context: route.getattr(intern!(py, "wants_context"))?.is_truthy()?,
            recent_ns: route.getattr(intern!(py, "recent_ns"))?.extract()?,
            route,
        })
    }

    fn remember(&self) -> PyResult<()> {
        self.route
            .setattr(intern!(self.route.py(), "recent_ns"), self.recent_ns)
    }

    /// Whether the payload holds what the handler needs, and nothing else.
    fn fits(&self, arguments: &Bound<'py, PyDict>) -> PyResult<bool> {
        if arguments.len() != self.names.len() {
            return Ok(false);
        }
        for name in &self.names {
            if !arguments.contains(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[pyclass(frozen, module = "dtq._core")]
pub struct SyncLoop {
    slots: Py<Slots>,
    child: usize,
    average: Py<Average>,
    executor: Py<PyAny>,
    routes: Py<PyDict>,
    loads: Py<PyAny>,
    boottime_ns: Py<PyAny>,
    collect: Py<PyAny>,
    collects: bool,
    inlines: bool,
    timeout_ns: u64,
    claim_max: usize,
    result_max_bytes: usize,
    process: u32,
    executing: AtomicU64,
    done: AtomicU64,
    oldest_ns: AtomicU64,
    leaving: AtomicBool,
}

/// Where the claims of one call come from and where their outcomes go.
struct Work<'a, 'py> {
    outcomes: &'a Bound<'py, Outcomes>,
    noted: Option<&'a Bound<'py, PyList>>,
    index: u16,
    queue: &'a Bound<'py, PyString>,
    limits: Limits,
}

impl SyncLoop {
    fn now_ns(&self, py: Python<'_>) -> PyResult<u64> {
        self.boottime_ns.bind(py).call0()?.extract()
    }

    /// Calls the handler; its result, or what stands for an attempt that did not succeed.
    fn attempt<'py>(
        &self,
        claim: &Bound<'py, Claim>,
        route: &Route<'py>,
        queue: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = claim.py();
        let executor = self.executor.bind(py);
        // An interruption flies wherever Python code runs from here on, also where arguments are compared.
        let called = self.arguments(claim, route).and_then(|found| match found {
            Some(arguments) if route.wants_context => {
                let context = executor.call_method1(intern!(py, "context"), (claim, queue))?;
                route.function.call((context,), Some(&arguments))
            }
            Some(arguments) => route.function.call((), Some(&arguments)),
            None => executor.call_method1(intern!(py, "run"), (claim, &route.route, queue)),
        });
        // Neither may an interruption that comes from here on hit what is no handler, nor its exit be taken for its end.
        self.executing.store(0, Relaxed);
        match called {
            Ok(result) if std::process::id() == self.process => {
                if is_plain(&result) {
                    return Ok(result);
                }
                executor.call_method1(intern!(py, "checked"), (claim, result))
            }
            Ok(_) => executor.call_method1(intern!(py, "end_if_forked"), (py.None(),)),
            // Also what stands around a handler, as a trace: its attempt has failed, the child goes on.
            Err(error) => executor.call_method1(intern!(py, "raised"), (claim, &route.route, error.into_value(py))),
        }
    }

    /// The arguments of a call from here; None where the executor is to do all of it.
    fn arguments<'py>(&self, claim: &Bound<'py, Claim>, route: &Route<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let py = claim.py();
        if !self.inlines {
            return Ok(None);
        }
        let Ok(decoded) = self.loads.bind(py).call1((claim.get().payload(py),)) else {
            return Ok(None); // the executor says what is wrong with it
        };
        let Ok(arguments) = decoded.cast_into_exact::<PyDict>() else {
            return Ok(None);
        };
        if !route.fits(&arguments)? {
            let handler = route.route.getattr(intern!(py, "handler"))?;
            if !handler.call_method1(intern!(py, "problem"), (&arguments,))?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(arguments))
    }

    /// Keeps how an attempt ended.
    fn keep<'py>(
        &self,
        claim: &Bound<'py, Claim>,
        result: &Bound<'py, PyAny>,
        ended_ms: u64,
        took_ns: i64,
        work: &Work<'_, 'py>,
    ) -> PyResult<()> {
        let py = claim.py();
        if self.collects && is_plain(result) {
            let mut outcomes = work.outcomes.try_borrow_mut()?;
            let place = outcomes.__len__();
            let kept = outcomes.succeed(claim, result, ended_ms, self.result_max_bytes, Some(took_ns));
            drop(outcomes);
            if kept.is_ok() {
                if let Some(noted) = work.noted {
                    noted.append((place, claim, py.None(), took_ns))?;
                }
                return Ok(());
            }
        }
        self.collect
            .bind(py)
            .call1((work.index, claim, result, ended_ms, took_ns))?;
        Ok(())
    }
}

/// Whether a result is of a type that is surely no forgotten generator or coroutine, and no outcome.
fn is_plain(result: &Bound<'_, PyAny>) -> bool {
    result.is_none()
        || result.is_exact_instance_of::<PyDict>()
        || result.is_exact_instance_of::<PyList>()
        || result.is_exact_instance_of::<PyString>()
        || result.is_exact_instance_of::<PyInt>()
        || result.is_exact_instance_of::<PyBool>()
        || result.is_exact_instance_of::<PyFloat>()
        || result.is_exact_instance_of::<PyTuple>()
}

#[pymethods]
impl SyncLoop {
    #[allow(clippy::too_many_arguments)] // What a child hands to its loop, by name.
    #[new]
    #[pyo3(signature = (*, slots, child, average, executor, routes, loads, boottime_ns, collect, collects, inlines, timeout_ns,
        claim_max, result_max_bytes))]
    fn new(
        slots: Py<Slots>,
        child: usize,
        average: Py<Average>,
        executor: Py<PyAny>,
        routes: Py<PyDict>,
        loads: Py<PyAny>,
        boottime_ns: Py<PyAny>,
        collect: Py<PyAny>,
        collects: bool,
        inlines: bool,
        timeout_ns: u64,
        claim_max: usize,
        result_max_bytes: usize,
    ) -> PyResult<Self> {
        slots.get().check_place(child, PLACE)?;
        Ok(Self {
            slots,
            child,
            average,
            executor,
            routes,
            loads,
            boottime_ns,
            collect,
            collects,
            inlines,
            timeout_ns,
            claim_max,
            result_max_bytes,
            process: std::process::id(),
            executing: AtomicU64::new(0),
            done: AtomicU64::new(0),
            oldest_ns: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
        })
    }

    #[getter]
    fn executing(&self) -> u64 {
        self.executing.load(Relaxed)
    }

    #[setter]
    fn set_executing(&self, seq: u64) {
        self.executing.store(seq, Relaxed);
    }

    #[getter]
    fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    #[setter]
    fn set_done(&self, done: u64) {
        self.done.store(done, Relaxed);
    }

    #[getter]
    fn oldest_ns(&self) -> u64 {
        self.oldest_ns.load(Relaxed)
    }

    #[setter]
    fn set_oldest_ns(&self, ns: u64) {
        self.oldest_ns.store(ns, Relaxed);
    }

    #[getter]
    fn leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    #[setter]
    fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Relaxed);
    }

    #[allow(clippy::too_many_arguments)] // Of one batch.
    fn run<'py>(
        &self,
        claims: &Bound<'py, PyAny>,
        index: u16,
        queue: &Bound<'py, PyString>,
        outcomes: &Bound<'py, Outcomes>,
        noted: Option<&Bound<'py, PyList>>,
        clock_offset_ns: i64,
        most: i64,
    ) -> PyResult<&'static str> {
        let most = u64::try_from(most).unwrap_or(0);
        let work = Work {
            outcomes,
            noted,
            index,
            queue,
            limits: Limits {
                timeout_ns: self.timeout_ns,
                clock_offset_ns,
            },
        };
        let mut route = None;
        let stopped = self.run_all(claims, &work, most, &mut route);
        if let Some(route) = route {
            route.remember()?;
        }
        stopped
    }
}

impl SyncLoop {
    /// As `run`; leaves the route of the last claim behind, whose times are not yet written to it.
    fn run_all<'py>(
        &self,
        claims: &Bound<'py, PyAny>,
        work: &Work<'_, 'py>,
        most: u64,
        route: &mut Option<Route<'py>>,
    ) -> PyResult<&'static str> {
        let py = claims.py();
        let popleft = claims.getattr(intern!(py, "popleft"))?;
        let slots = self.slots.get();
        let mut left = claims.len()?;
        let mut now = self.now_ns(py)?;
        let until = self.done.load(Relaxed).saturating_add(most);
        while left > 0 && self.done.load(Relaxed) < until {
            // A handler written in C would let no signal through.
            py.check_signals()?;
            let first = claims.get_item(0)?;
            let claim = first.cast::<Claim>()?;
            self.route_of(claim, route)?;
            let recent_ns = route.as_ref().map_or(0, |known| known.recent_ns);
            let oldest = self.oldest_ns.load(Relaxed);
            if oldest != 0
                && (!(0..=SLOW_NS).contains(&recent_ns)
                    || now.saturating_sub(oldest) > OLD_NS
                    || work
                        .outcomes
                        .try_borrow() // not while another thread settles them, or adds to them
                        .is_ok_and(|outcomes| outcomes.__len__() >= self.claim_max))
            {
                return Ok("settle");
            }
            if self.leaving.load(Relaxed) || now >= slots.inner().safe_until() {
                return Ok("stop");
            }
            let Some(known) = route.as_mut().filter(|known| !known.is_async) else {
                return Ok("elsewhere");
            };
            if claim.get().error.is_some() {
                return Ok("elsewhere");
            }
            popleft.call0()?;
            left -= 1;
            // The mark stands before the row, which the supervisor reads and may ask an interruption for.
            self.executing.store(claim.get().seq, Relaxed);
            if !slots.enter_claim((self.child, PLACE), claim.get(), work.index, now, &work.limits, py)? {
                self.executing.store(0, Relaxed);
                return Ok("revoked");
            }
            let result = self.attempt(claim, known, work.queue)?;
            let ended = self.now_ns(py)?;
            slots.inner().finish(self.child, PLACE);
            let took = ended.saturating_sub(now);
            let took_ns = i64::try_from(took).unwrap_or(i64::MAX);
            known.recent_ns = recent::of_type(known.recent_ns, took_ns);
            self.average.get().ran(took);
            let ended_ms = ended.saturating_add_signed(work.limits.clock_offset_ns) / 1_000_000;
            self.keep(claim, &result, ended_ms, took_ns, work)?;
            if oldest == 0 {
                self.oldest_ns.store(ended, Relaxed);
            }
            self.done.fetch_add(1, Relaxed);
            // Whoever collects beside another thread may have waited for its lock.
            now = if self.collects { ended } else { self.now_ns(py)? };
        }
        Ok("used")
    }

    /// Looks the claim's type up, unless the claim before it was of the same.
    fn route_of<'py>(&self, claim: &Bound<'py, Claim>, route: &mut Option<Route<'py>>) -> PyResult<()> {
        let py = claim.py();
        let task_type = claim.get().task_type.bind(py);
        if route.as_ref().is_some_and(|known| known.task_type.is(task_type)) {
            return Ok(());
        }
        if let Some(known) = route.take() {
            known.remember()?;
        }
        if let Some(found) = self.routes.bind(py).get_item(task_type)? {
            *route = Some(Route::of(found, task_type)?);
        }
        Ok(())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Average>()?;
    module.add_class::<SyncLoop>()
}
