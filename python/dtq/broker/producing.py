"""The verbs of producers: enqueue, look at tasks, hear of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from dtq._core import pack_args
from dtq.broker.calls import Calls
from dtq.broker.values import Answer, Snapshot
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable
from dtq.scripts import script
from dtq.transport import translated

if TYPE_CHECKING:
    from dtq._core import Chunk

_ARGUMENTS_OF_ONE = 7
"""Of the short script's command, up to its keys."""
_SHORTEST_S = 0.001
"""The time-out of a second question where the first has used up all of it."""
WITH_DETAIL = "uid"
STATES_A_CALL = 5000  # unpack in Lua takes 8 000 values at most


class Producing(Calls):
    """Verbs of producers and of those who wait for results."""

    def enqueue(
        self,
        queue: str,
        chunk: Chunk,
        *,
        repeat: bool = False,
        timeout_s: float | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Answer]:
        """Offer a chunk of tasks of one queue, atomically.

        Args:
            queue: its name.
            chunk: tasks in wire form, at most 500 and 1 MiB.
            repeat: this chunk may have been applied before (its reply was lost): what stands counts as accepted.
            timeout_s: how long the reply may take.
            meanwhile: called while the server works on a chunk of more than one task; must not raise.

        Returns:
            One Answer a task, in order.

        Raises:
            BrokerUnavailable: no answer; the chunk may have been applied. Repeat it with `repeat=True`.
        """
        call = self.front("enqueue", queue)
        reply = self.transport.call(self._pack(queue, chunk, repeat), call.script, timeout_s, meanwhile)
        return _answers(reply)

    async def aenqueue(
        self, queue: str, chunk: Chunk, *, repeat: bool = False, timeout_s: float | None = None
    ) -> list[Answer]:
        """As enqueue, without blocking the loop."""
        if len(chunk) == 1 and not repeat and not self.settings.max_queue_depth:
            one = script("enqueue_one")
            command = chunk.pack_one(self._front_of_one(queue), _ARGUMENTS_OF_ONE)
            began_s = SYSTEM.monotonic()
            if await self.async_transport.call(command, one, timeout_s):
                return [_PLAIN["a"]]
            if timeout_s is not None:
                timeout_s = max(_SHORTEST_S, timeout_s - (SYSTEM.monotonic() - began_s))
        call = self.front("enqueue", queue)
        reply = await self.async_transport.call(self._pack(queue, chunk, repeat), call.script, timeout_s)
        return _answers(reply)

    def _pack(self, queue: str, chunk: Chunk, repeat: bool) -> bytes:
        key = ("enqueue repeat" if repeat else "enqueue ready", queue)
        front = self._enqueue_fronts.get(key)
        if front is None:
            call = self.front("enqueue", queue)
            own = pack_args([self.settings.max_queue_depth, self.settings.max_scheduled, int(repeat)])
            front = self._enqueue_fronts[key] = (call.prefix + own, call.count + 3)
        return chunk.pack(*front)

    def front_of_single(self, queue: str, place: bytes) -> bytes | None:
        """What `EnvelopeHead.pack_task` needs to make a command for `enqueue_single`.

        None where the short script will not do: it knows neither depth caps nor a place that says more than the band.
        """
        front = self._single_fronts.get((queue, place))
        if front is None and len(place) == 1 and not self.settings.max_queue_depth:
            front = b"*%d\r\n" % (_ARGUMENTS_OF_ONE + 3) + self._front_of_one(queue) + pack_args([place])
            self._single_fronts[queue, place] = front
        return front

    def enqueue_single(self, command: bytes) -> bool:
        """Offer one new task; False: nothing was done, it needs `enqueue`.

        Raises:
            BrokerUnavailable: no answer; it may have been applied. Offer it to `enqueue` with `repeat=True`.
        """
        return bool(self.transport.call(command, script("enqueue_one"), awake=self.spin.awake()))

    @staticmethod
    def envelope_of_single(front: bytes, command: bytes) -> bytes:
        """What was sent, for `enqueue`: the payload may have been changed since, by another thread or a signal."""
        _, _, _, envelope = command[len(front) :].split(b"\r\n", 3)  # lengths and the id hold no line end
        return envelope[:-2]

    def _front_of_one(self, queue: str) -> bytes:
        front = self._one_fronts.get(queue)
        if front is None:
            keys = self.keys
            named = [keys.live(queue), keys.meta(queue), keys.stream(queue, 0)[:-1], keys.task(queue, "")]
            front = self._one_fronts[queue] = pack_args(["EVALSHA", script("enqueue_one").sha, 4, *named])
        return front

    def states(self, queue: str, ids: Sequence[str]) -> bytes:
        """One status code digit per id (models.TaskStatus.code), `0` where nothing is known (any more)."""
        out = bytearray()
        for at in range(0, len(ids), STATES_A_CALL):
            out += self.run("states", queue, *ids[at : at + STATES_A_CALL])
        return bytes(out)

    def holders(self, queues: Sequence[str], task_id: str) -> list[str]:
        """Which of these queues know a task of this id, in their order; in few round trips.

        A queue whose keys were damaged by hand is passed over where another one knows it. Raises BrokerUnavailable.
        """
        found: list[str] = []
        damaged: BrokerUnavailable | None = None
        for queue, reply in zip(queues, self.run_each("states", queues, task_id), strict=True):
            if not isinstance(reply, BrokerUnavailable):
                found += [queue] if reply != b"0" else []
            elif not reply.damaged:
                raise reply
            else:
                damaged = reply
        if damaged is not None and not found:
            raise damaged
        return found

    async def astates(self, queue: str, ids: Sequence[str]) -> bytes:
        """As states, without blocking the loop."""
        call = self.front("states", queue)
        out = bytearray()
        for at in range(0, len(ids), STATES_A_CALL):
            out += await self.async_transport.call(call.pack(list(ids[at : at + STATES_A_CALL])), call.script)
        return bytes(out)

    def inspect(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """All that is known of some tasks of one queue; None where nothing is."""
        return _snapshots(self.run("inspect", queue, *ids)) if ids else []

    async def ainspect(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """As inspect, without blocking the loop."""
        if not ids:
            return []
        call = self.front("inspect", queue)
        return _snapshots(await self.async_transport.call(call.pack(list(ids)), call.script))

    def listen(self, queue: str, seconds: float = 10.0) -> None:
        """Ask the scripts of a queue to publish events for the next `seconds`."""
        self.run("listen", queue, int(seconds * 1000))

    def listen_many(self, queues: Sequence[str], seconds: float = 10.0) -> None:
        """The same of many queues; those whose keys were damaged by hand are passed over."""
        for reply in self.run_each("listen", queues, int(seconds * 1000)):
            if isinstance(reply, BrokerUnavailable) and not reply.damaged:
                raise reply

    def announce(
        self,
        kind: str,
        *,
        queue: str | None = None,
        worker_id: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish an event that is no task's.

        Events are for watching: where the server does not answer, or forbids it, nobody hears, and nothing is raised.

        Args:
            kind: WORKER_STARTED, WORKER_STOPPED, WORKER_STALE or CONFIGURATION_CHANGED.
            queue: where, if in one.
            worker_id: of which worker, if of one.
            facts: what else there is to tell (JSON values, small).
        """
        try:
            seconds, microseconds = self.command("TIME")
            now = int(seconds) * 1000 + int(microseconds) // 1000
            event = {"event_id": f"{worker_id or queue}/0/{kind}/{now}", "ts": now, "type": kind, "task_id": None}
            about = {"queue": queue, "task_type": None, "attempt": None, "worker_id": worker_id, "metadata": facts}
            self.command("PUBLISH", self.keys.events(), orjson.dumps([{**event, **about}]))
        except BrokerUnavailable:
            return

    def subscribe(self) -> Subscription:
        """Hear the events of all queues that somebody listens to, from now on. Raises BrokerUnavailable."""
        return Subscription(self)


class Subscription:
    """One subscriber of the events channel; use from one thread, close it after use."""

    def __init__(self, broker: Calls) -> None:
        self._broker = broker
        self._client: Any = broker.transport.client()
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True)
        try:
            with translated(broker.transport):
                self._pubsub.subscribe(broker.keys.events())
        except BaseException:
            self.close()
            raise

    def get(self, timeout_s: float) -> list[dict[str, Any]]:
        """The events of the next message, or nothing when none comes within `timeout_s`. Raises BrokerUnavailable."""
        with translated(self._broker.transport):
            message = self._pubsub.get_message(timeout=timeout_s)
        if message is None or message.get("type") != "message":
            return []
        events: list[dict[str, Any]] = orjson.loads(message["data"])
        return events

    def close(self) -> None:
        """Give the connection back."""
        self._pubsub.close()
        self._client.close()


def _answers(reply: list[bytes]) -> list[Answer]:
    codes = reply[0].decode()
    if len(reply) == 1:
        return [_PLAIN[code] for code in codes]
    details = iter(reply[1:])
    return [Answer(code, next(details).decode()) if code in WITH_DETAIL else _PLAIN[code] for code in codes]


_PLAIN = {code: Answer(code) for code in "aefpuird"}


def _snapshots(reply: list[bytes]) -> list[Snapshot | None]:
    out: list[Snapshot | None] = []
    for at in range(0, len(reply), 4):
        live, envelope, record, due = reply[at : at + 4]
        found = live or record
        out.append(
            Snapshot(live or None, envelope or None, record or None, int(float(due)) if due else None)
            if found
            else None
        )
    return out
