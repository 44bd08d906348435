"""How long things took, as commands show it: by task type since the queue exists, and over the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from dtq.history import BOUNDS_S, COUNTS, Minute, Timing, TypeTimings
from dtq.legible import duration

_QUANTILES = {"p50_seconds": 0.5, "p95_seconds": 0.95, "p99_seconds": 0.99}
SPREAD_FIELDS = "count, mean_seconds, p50_seconds, p95_seconds, p99_seconds"


@dataclass(frozen=True, slots=True)
class TypeFigures:
    """One task type of a queue."""

    queue: str
    task_type: str
    timings: TypeTimings

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "queue": self.queue,
            "task_type": self.task_type,
            "attempts": dict(self.timings.attempts),
            "wait": spread(self.timings.wait),
            "execution": spread(self.timings.execution),
            "duration": spread(self.timings.duration),
        }

    def row(self) -> list[object]:
        """The type as a line of a table: name, attempts, failures, how long it waited and ran."""
        attempts, execution, wait = self.timings.attempts, self.timings.execution, self.timings.wait
        failures = sum(attempts.get(result, 0) for result in ("failed", "dead_lettered", "retried"))
        return [
            *(self.task_type, execution.count, failures, _measured(execution.mean)),
            *(_estimated(execution.quantile(q)) for q in (0.5, 0.95, 0.99)),
            _estimated(wait.quantile(0.95)),
        ]


ROW = ("type", "runs", "failed", "mean", "p50", "p95", "p99", "wait p95")
TYPE_FIELDS = {
    "queue": "its queue",
    "task_type": "its name; (other) sums those beyond 200, (unknown) those that no handler could run",
    "attempts": "how many attempts ended succeeded, retried, failed, dead_lettered, cancelled, released",
    "wait": f"from being queued to the start: {SPREAD_FIELDS}",
    "execution": "how long handlers ran: the same",
    "duration": "from the making of a task to its end: the same",
}


def slowest_first(queue: str, timings: Mapping[str, TypeTimings]) -> list[TypeFigures]:
    """The types of a queue, the longest runs first."""
    figures = [TypeFigures(queue, name, found) for name, found in timings.items()]
    return sorted(figures, key=lambda one: (-one.timings.execution.quantile(0.95), one.task_type))


def spread(timing: Timing) -> dict[str, float]:
    """A timing as plain JSON values."""
    quantiles = {name: round(timing.quantile(q), 6) for name, q in _QUANTILES.items()}
    return {"count": timing.count, "mean_seconds": round(timing.mean, 6), **quantiles}


def hour(minutes: Iterable[Minute]) -> dict[str, Any]:
    """What happened within these minutes, as plain JSON values."""
    whole = reduce(add, minutes)
    counts = {name: getattr(whole, name) for name in COUNTS}
    return {**counts, "wait": spread(whole.wait), "execution": spread(whole.execution)}


def _estimated(quantile: float) -> str:
    """A quantile for people. In the first bucket nothing is known but its bound: half of it is no measurement."""
    return f"<{BOUNDS_S[0] * 1000:g} ms" if 0 < quantile < BOUNDS_S[0] else _measured(quantile)


def _measured(seconds: float) -> str:
    """A duration for people; "-" where nothing was measured."""
    return duration(seconds) if seconds > 0 else "-"
