"""Whether work can be done: Redis, its version, its scripts, and that they may write."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from dtq.app import App
from dtq.broker import Broker
from dtq.errors import BrokerUnavailable, DtqError
from dtq.off_loop import in_thread

LONGEST_S = 1.5
"""How long all questions together may take before the answer is no."""
MOST_QUEUES = 50


@dataclass(frozen=True, slots=True)
class Finding:
    """problem: why no work can be done, None where it can. server: name and version. queues: how many are known.

    degraded: those whose keys something else has written. The others work, and a load balancer that took this process
    away for one queue would take them away as well, with every process that it asks.
    """

    problem: DtqError | None
    server: str = ""
    queues: int = 0
    degraded: tuple[str, ...] = ()


class Readiness:
    """Asks Redis; however many want to know, once at a time."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._asking: asyncio.Task[Finding] | None = None
        self._broker: Broker | None = None

    def close(self) -> None:
        """Give its connections back."""
        if self._broker is not None:
            self._broker.close()

    async def find(self) -> Finding:
        """The answer, or that there was none in time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(in_thread(self._examine))
        try:
            return await asyncio.wait_for(asyncio.shield(self._asking), LONGEST_S)
        except TimeoutError:
            return Finding(DtqError(f"Redis did not answer all questions within {LONGEST_S:g} s"))

    def _examine(self) -> Finding:
        """In a thread: looks at everything that an enqueue needs; nothing is written but the number of the layout."""
        try:
            if self._broker is None:
                # Connections of its own with short time-outs: a probe has no second to spare for a retry.
                url = self._app.broker.url
                self._broker = Broker(replace(self._app.settings, redis_url=url, enqueue_deadline_s=1.0))
            broker = self._broker
            server = broker.check_server()
            broker.check_layout()  # which shows that this user may write
            queues = broker.queues()
            degraded = tuple(
                queue for queue in sorted({self._app.settings.queue, *queues[:MOST_QUEUES]}) if _damaged(broker, queue)
            )
        except DtqError as error:
            return Finding(error)
        return Finding(None, f"{server.name} {server.version}", len(queues), degraded)


def _damaged(broker: Broker, queue: str) -> bool:
    """Whether the keys of a queue are damaged. Raises DtqError for whatever concerns more than this queue."""
    try:
        if queue == broker.settings.queue:
            broker.cancel(queue, "dtq-ready")  # no such task: looked up by a script, nothing changes
        broker.queue_counts(queue)
    except BrokerUnavailable as error:
        if not error.damaged:
            raise
        return True
    return False
