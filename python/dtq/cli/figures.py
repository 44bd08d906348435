"""What `dtq top` shows at one moment: queues with their rates, workers, the slowest task types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtq.bodies import moment, queue_body
from dtq.cli.timings import TypeFigures, slowest_first
from dtq.clock import SYSTEM, Clock
from dtq.workers import Worker

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.broker import QueueCounts

_TIMED = 20
"""Of so many queues the times of task types are read at each look."""
_SLOWEST = 50

RATES: Mapping[str, tuple[str, ...]] = {
    "submitted": ("submitted",),
    "succeeded": ("succeeded",),
    "failed": ("failed", "dead_lettered"),
    "retried": ("retried",),
}
"""Each rate, and the counters whose growth it is."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue now, and what happened in it each second since the look before."""

    counts: QueueCounts
    rates: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**queue_body(self.counts), "rates": dict(self.rates)}


@dataclass(frozen=True, slots=True)
class Figures:
    """One look. at_ms: by the clock of this host. seconds: since the look before; 0 for the first one.

    slowest: task types of the busiest queues, the longest runs first.
    """

    at_ms: int
    seconds: float
    queues: tuple[QueueFigures, ...]
    workers: tuple[Worker, ...]
    slowest: tuple[TypeFigures, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "at": moment(self.at_ms),
            "seconds": round(self.seconds, 3),
            "queues": [queue.as_dict() for queue in self.queues],
            "workers": [worker.as_dict() for worker in self.workers],
            "slowest": [one.as_dict() for one in self.slowest],
        }

    def rate(self, name: str) -> float:
        """A rate over all queues."""
        return sum(queue.rates[name] for queue in self.queues)


class Look:
    """Looks again and again, and knows what it saw before."""

    def __init__(self, app: App, clock: Clock = SYSTEM) -> None:
        self._app = app
        self._clock = clock
        self._before: dict[str, Mapping[str, int]] = {}
        self._at = 0.0

    def take(self) -> Figures:
        """One look. Raises BrokerUnavailable."""
        counts = self._app.queue_counts()
        now = self._clock.monotonic()
        seconds = now - self._at if self._at else 0.0
        queues = tuple(QueueFigures(one, self._rates(one, seconds)) for one in counts)
        self._before = {one.queue: one.totals for one in counts}
        self._at = now
        return Figures(self._clock.now_ms(), seconds, queues, tuple(self._app.workers()), self._slowest(queues))

    def _slowest(self, queues: Iterable[QueueFigures]) -> tuple[TypeFigures, ...]:
        """Task types by how long they run, of the queues that have most to do."""
        busy = sorted(queues, key=lambda one: -one.counts.running - one.counts.waiting - sum(one.rates.values()))
        names = [one.counts.queue for one in busy[:_TIMED]]
        found = zip(names, self._app.broker.timings(names) if names else [], strict=True)
        types = [one for name, timings in found for one in slowest_first(name, timings)]
        return tuple(sorted(types, key=lambda one: -one.timings.execution.quantile(0.95))[:_SLOWEST])

    def _rates(self, counts: QueueCounts, seconds: float) -> dict[str, float]:
        before = self._before.get(counts.queue)
        if before is None or seconds <= 0:
            return dict.fromkeys(RATES, 0.0)
        grown = {
            rate: sum(counts.totals.get(name, 0) - before.get(name, 0) for name in names)
            for rate, names in RATES.items()
        }
        return {rate: round(max(0, more) / seconds, 2) for rate, more in grown.items()}
