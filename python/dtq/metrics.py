"""The metrics of all queues as Prometheus text, made of what Redis holds: the same whichever process is asked.

Counters are kept by the scripts that move tasks; times are told by children, once a second. Needs `prometheus-client`
(the extra `metrics`, or `api`), which is imported at the first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from dtq.broker.counting import REASONS
from dtq.errors import DtqError
from dtq.history import BOUNDS_S, OTHER, RESULTS, Timing, TypeTimings
from dtq.models import TERMINAL_STATUSES

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    from dtq.app import App
    from dtq.broker import Broker, QueueCounts

    Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_PAIRS: Final = 2000
"""With more pairs of queue and task type, timings are told by queue alone (the label `task_type` is empty)."""

MOST_QUEUES: Final = 1000
"""With more queues, those with the fewest submits are told of as one, `(other)`: whoever submits names queues."""

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values by what stands in the labels behind `queue`."""

AllTimings = Mapping[str, Mapping[str, "TypeTimings"]]
"""By queue and task type."""
_SUMMED = ("waiting", "running", "scheduled", "retrying", "dead")
_ATTEMPTS: Mapping[str, str] = {
    "succeeded": "succeeded",
    "retried": "retried",
    "failed": "attempts_failed",
    "dead_lettered": "attempts_dead_lettered",
    "cancelled": "attempts_cancelled",
    "released": "released",
    "lost": "attempts_lost",
}


@dataclass(frozen=True)
class QueueMetric:
    """A counter or gauge of each queue. labels: those behind `queue`."""

    name: str
    kind: str
    meaning: str
    samples: Callable[[QueueCounts], Samples]
    labels: tuple[str, ...] = ()


def _total(name: str) -> Callable[[QueueCounts], Samples]:
    return lambda counts: [((), counts.totals.get(name, 0))]


def _totals(fields: Mapping[str, str]) -> Callable[[QueueCounts], Samples]:
    return lambda counts: [((label,), counts.totals.get(name, 0)) for label, name in fields.items()]


def _counter(name: str, total: str, meaning: str) -> QueueMetric:
    return QueueMetric(name, "counter", meaning, _total(total))


def _gauge(name: str, value: Callable[[QueueCounts], float], meaning: str) -> QueueMetric:
    return QueueMetric(name, "gauge", meaning, lambda counts: [((), value(counts))])


QUEUE_METRICS: Final[tuple[QueueMetric, ...]] = (
    _counter("dtq_tasks_submitted_total", "submitted", "Tasks that were accepted."),
    _counter(
        "dtq_tasks_started_total",
        "started",
        "Claims of tasks, each attempt its own; what was claimed and handed back unbegun counts as well.",
    ),
    _counter("dtq_tasks_succeeded_total", "succeeded", "Tasks that ended `succeeded`."),
    _counter("dtq_tasks_failed_total", "failed", "Tasks that ended `failed` (dead letters are off)."),
    _counter("dtq_tasks_retried_total", "retried", "Attempts that failed and were followed by a retry."),
    _counter("dtq_tasks_dead_lettered_total", "dead_lettered", "Tasks that ended `dead_lettered`."),
    QueueMetric(
        "dtq_tasks_completed_total", "counter", "Tasks that ended, by status.",
        _totals({status.value: status.value for status in TERMINAL_STATUSES}), ("status",),
    ),
    QueueMetric(
        "dtq_task_attempts_total", "counter",
        "Attempts that ended: by their outcome, `released` by a drain, or `lost` by the death of a child or worker.",
        _totals(_ATTEMPTS), ("result",),
    ),
    QueueMetric(
        "dtq_ingest_rejected_total", "counter",
        "Enqueues that were refused: by the scripts for any producer, by the HTTP API for what it refuses itself.",
        _totals({reason: f"rejected:{reason}" for reason in REASONS}), ("reason",),
    ),
    _counter("dtq_tasks_requeued_total", "requeued", "Dead letters that were queued again."),
    _counter("dtq_duplicates_absorbed_total", "absorbed", "Stream entries of tasks that had ended; nothing ran."),
    _counter("dtq_dead_letters_trimmed_total", "dead_letters_trimmed", "Dead letters that gave way to newer ones."),
    _gauge("dtq_queue_depth", lambda counts: counts.waiting, "Tasks in status `queued`."),
    _gauge("dtq_queue_pending", lambda counts: counts.scheduled - counts.retrying, "Tasks in status `pending`."),
    _gauge("dtq_retry_scheduled", lambda counts: counts.retrying, "Tasks in status `retrying`."),
    _gauge("dtq_dlq_depth", lambda counts: counts.dead, "Dead letters that stand."),
    _gauge("dtq_worker_inflight", lambda counts: counts.running, "Tasks in status `running`."),
    _gauge(
        "dtq_queue_oldest_age_seconds",
        lambda counts: (counts.oldest_ms or 0) / 1000,
        "How long the oldest queued task has waited; 0 where none waits.",
    ),
    _gauge("dtq_queue_paused", lambda counts: counts.paused, "1 while the queue is paused."),
)  # fmt: skip
WORKERS: Final = ("dtq_workers_active", "Workers that hold a lease.")
OUTCOMES: Final = (
    "dtq_task_outcomes_total",
    "Attempts by their outcome and task type, as children told: without the last second of those that were killed.",
)
HISTOGRAMS: Final[Mapping[str, tuple[str, Callable[[TypeTimings], Timing]]]] = {
    "dtq_task_wait_seconds": (
        "From being queued (or due) to the start of the handler; not after a death or a release.",
        lambda timings: timings.wait,
    ),
    "dtq_task_execution_seconds": ("How long handlers ran, each attempt.", lambda timings: timings.execution),
    "dtq_task_duration_seconds": (
        "From the making of a task (its producer's clock) to its end by a handler.",
        lambda timings: timings.duration,
    ),
}


def render(app: App) -> bytes:
    """All metrics of the app's server and prefix, in the text format of Prometheus; `CONTENT_TYPE` goes with it.

    Blocking; its cost grows with the number of known queues, of which each adds a few commands and no scan.

    Raises:
        DtqError: prometheus-client is not installed.
        BrokerUnavailable: no answer from the server.
    """
    return exposition(app.broker)


def exposition(broker: Broker) -> bytes:
    """As render, for who has no App."""
    try:
        from prometheus_client import generate_latest
    except ImportError:
        raise DtqError('metrics need prometheus-client; pip install "dtq[metrics]"') from None
    names = broker.queues()
    figures = broker.many_counts(names)
    timings = dict(zip(names, broker.timings(names), strict=True))
    return generate_latest(_Families(*_bounded(figures, timings), len(broker.workers())))


def _bounded(figures: Sequence[QueueCounts], timings: AllTimings) -> tuple[Sequence[QueueCounts], AllTimings]:
    """The same of at most MOST_QUEUES queues, and the sums of the others."""
    if len(figures) <= MOST_QUEUES:
        return figures, timings
    ranked = sorted(figures, key=lambda counts: -counts.totals.get("submitted", 0))
    others = ranked[MOST_QUEUES:]
    totals: Counter[str] = Counter()
    for counts in others:
        totals.update(counts.totals)
    other = replace(
        others[0],
        queue=OTHER,
        oldest_ms=max(counts.oldest_ms or 0 for counts in others),
        paused=all(counts.paused for counts in others),
        totals=dict(totals),
        **{name: sum(getattr(counts, name) for counts in others) for name in _SUMMED},
    )
    types = [timing for counts in others for timing in timings[counts.queue].values()]
    kept = sorted(ranked[:MOST_QUEUES], key=lambda counts: counts.queue)
    told = {counts.queue: timings[counts.queue] for counts in kept}
    return [*kept, other], {**told, **({OTHER: {"": _sum(types)}} if types else {})}


class _Families:
    """What generate_latest asks for its metrics."""

    def __init__(self, figures: Sequence[QueueCounts], timings: AllTimings, workers: int) -> None:
        self._figures = figures
        self._workers = workers
        self._timings = timings
        if sum(map(len, timings.values())) > MOST_PAIRS:
            self._timings = {queue: {"": _sum(types.values())} for queue, types in timings.items() if types}

    def collect(self) -> Iterable[Family]:
        """Every family, queue by queue."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in QUEUE_METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=("queue", *metric.labels))
            for counts in self._figures:
                for labels, value in metric.samples(counts):
                    family.add_metric((counts.queue, *labels), value)
            yield family
        yield GaugeMetricFamily(*WORKERS, value=self._workers)
        outcomes = CounterMetricFamily(*OUTCOMES, labels=("queue", "task_type", "result"))
        for queue, name, timing in self._pairs():
            for result in RESULTS:
                outcomes.add_metric((queue, name, result), timing.attempts[result])
        yield outcomes
        for metric_name, (meaning, of) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(metric_name, meaning, labels=("queue", "task_type"))
            for queue, name, timing in self._pairs():
                measured = of(timing)
                counted = list(zip(_BOUND_LABELS, accumulate(measured.buckets), strict=True))
                histogram.add_metric((queue, name), counted, measured.total_seconds)
            yield histogram

    def _pairs(self) -> Iterable[tuple[str, str, TypeTimings]]:
        return ((queue, name, timing) for queue, types in self._timings.items() for name, timing in types.items())


_BOUND_LABELS = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]


def _sum(types: Iterable[TypeTimings]) -> TypeTimings:
    return reduce(
        lambda one, other: TypeTimings(
            {result: one.attempts[result] + other.attempts[result] for result in RESULTS},
            one.wait + other.wait,
            one.execution + other.execution,
            one.duration + other.duration,
        ),
        types,
    )
