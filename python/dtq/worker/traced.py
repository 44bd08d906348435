"""The executor of a child whose attempts are recorded with OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtq._core import Claim
from dtq.executor import Executor, Route
from dtq.models import Outcome
from dtq.registry import Registry
from dtq.settings import Settings
from dtq.telemetry import Telemetry


def executor_of(registry: Registry, settings: Settings, worker_id: str) -> Executor:
    """The executor that the settings ask for. Raises InvalidSettings."""
    if settings.otel:
        return TracedExecutor(registry, settings, worker_id, Telemetry())
    return Executor(registry, settings, worker_id)


class TracedExecutor(Executor):
    """A span around each call of a handler."""

    def __init__(self, registry: Registry, settings: Settings, worker_id: str, telemetry: Telemetry) -> None:
        super().__init__(registry, settings, worker_id)
        self._telemetry = telemetry
        self._worker = worker_id

    def run(self, claim: Claim, route: Route, queue: str) -> object:
        """As always, within a span."""
        with self._telemetry.attempt(claim, queue, self._worker) as span:
            result = super().run(claim, route, queue)
            self._telemetry.ended(span, result)
        return result

    def prepare(
        self, claim: Claim, route: Route, queue: str, cancelled: Callable[[], bool]
    ) -> Callable[[], Any] | Outcome:
        """The same for the loop: the span begins when the call is made, in the context of its asyncio task."""
        call = super().prepare(claim, route, queue, cancelled)
        if isinstance(call, Outcome):
            return call

        async def traced() -> object:
            with self._telemetry.attempt(claim, queue, self._worker):
                return await call()

        return traced

    def close(self) -> None:
        """Export what is held: this process ends without further ado."""
        self._telemetry.flush()
