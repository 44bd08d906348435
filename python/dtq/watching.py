"""Events as they happen: what becomes of tasks, told by pub/sub while somebody watches (spec §9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dtq.clock import SYSTEM, Clock
from dtq.errors import InvalidTask
from dtq.off_loop import in_thread
from dtq.options import check_queue

if TYPE_CHECKING:
    from dtq.broker import Broker, Subscription

EVENT_TYPES = (
    *("TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED", "TASK_FAILED", "TASK_RETRY_SCHEDULED", "TASK_RETRIED"),
    *("TASK_DEAD_LETTERED", "TASK_CANCELLED", "TASK_EXPIRED", "TASK_DUPLICATE_ABSORBED", "TASK_RELEASED"),
    *("WORKER_STARTED", "WORKER_STOPPED", "WORKER_STALE", "CONFIGURATION_CHANGED"),
)
"""What an event may tell, as its `type`."""
LISTEN_S = 15.0
"""So long the scripts of a queue go on publishing after the last word of a watcher."""
_AGAIN_S = 5.0
"""How often that word is given, and known queues are looked up."""
_STEP_S = 1.0


def check_event_types(names: Iterable[str]) -> frozenset[str]:
    """These names as a set. Raises InvalidTask for one that is no event."""
    types = frozenset(names)
    if unknown := sorted(types.difference(EVENT_TYPES)):
        raise InvalidTask("types", f"{unknown[0]!r} is no event; use some of {', '.join(EVENT_TYPES)}")
    return types


def ask_for_events(broker: Broker, queues: Iterable[str] | None) -> None:
    """Make the scripts of these queues publish for LISTEN_S seconds; None: of all known ones.

    Raises BrokerUnavailable, for a queue that was named also where its keys were damaged by hand.
    """
    if queues is None:
        broker.listen_many(broker.queues(), LISTEN_S)
        return
    for queue in queues:
        broker.listen(queue, LISTEN_S)


def is_meant(event: Mapping[str, Any], queues: Collection[str] | None, types: Collection[str] | None) -> bool:
    """Whether an event is of these queues and types; None: of all."""
    if types is not None and event.get("type") not in types:
        return False
    return queues is None or event.get("queue") in queues


class Events:
    """A watcher of events: iterate it with `for` or `async for`, or ask with `get`; close it after use, or use `with`.

    queues: only of these; None: of all, new ones too. types: only these (EVENT_TYPES). An event is a dict: event_id,
    ts (ms, the server's clock), type, task_id, queue, task_type, attempt, worker_id; those of workers belong to no
    queue. What happens while the connection is lost, or before the first `get`, is not told. For one thread.
    Raises InvalidTask for a queue or a type that cannot be.
    """

    def __init__(
        self,
        broker: Broker,
        queues: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._broker = broker
        self._queues = None if queues is None else [check_queue(queue) for queue in queues]
        self._types = None if types is None else check_event_types(types)
        self._clock = clock
        self._subscription: Subscription | None = None
        self._listen_at = 0.0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, timeout: float = _STEP_S) -> list[dict[str, Any]]:
        """The events of the next message that has any of those meant; none where none comes within `timeout` seconds.

        Raises BrokerUnavailable; the next call connects anew.
        """
        until = self._clock.monotonic() + timeout
        try:
            subscription = self._subscription
            if subscription is None:
                subscription = self._subscription = self._broker.subscribe()
                self._listen_at = 0.0
            while True:
                now = self._clock.monotonic()
                if now >= self._listen_at:
                    self._listen()
                    self._listen_at = now + _AGAIN_S
                found = subscription.get(max(0.0, min(until - now, _STEP_S)))
                if meant := [event for event in found if is_meant(event, self._queues, self._types)]:
                    return meant
                if self._closed or self._clock.monotonic() >= until:
                    return []
        except BaseException:
            self._let_go()
            raise

    def _listen(self) -> None:
        ask_for_events(self._broker, self._queues)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self._closed:
            yield from self.get()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        from asyncio import ensure_future, shield, wait

        while not self._closed:
            step = ensure_future(in_thread(self.get))
            try:
                found = await shield(step)
            except BaseException:
                await wait([step])  # a step that has begun cannot be stopped, only awaited: a second at most
                raise
            for event in found:
                yield event

    async def aget(self, timeout: float = _STEP_S) -> list[dict[str, Any]]:
        """`get` without blocking the loop."""
        return await in_thread(self.get, timeout)

    def close(self) -> None:
        """Stop listening. An iteration ends at its next step."""
        self._closed = True
        self._let_go()

    async def aclose(self) -> None:
        """`close` without blocking the loop."""
        await in_thread(self.close)

    def _let_go(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
