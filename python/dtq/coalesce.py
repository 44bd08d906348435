"""Async enqueue: the calls of one loop share a script call; while one is in flight, the rest gather into the next."""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, CancelledError, Future, Task, get_running_loop
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any

from dtq import _core
from dtq.client import CHUNK_BYTES, CHUNK_TASKS, Client
from dtq.errors import DtqError, from_core
from dtq.handles import Handle
from dtq.plan import Plan

if TYPE_CHECKING:
    from dtq.telemetry import Telemetry

MOST_SPARE_IDS = 64


class Coalescers:
    """The coalescers of one client: one for each running loop and queue."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[AbstractEventLoop, str], Coalescer] = {}
        self._owner = os.getpid()

    def submit(self, plan: Plan, payload: object) -> Future[Handle[Any]]:
        """Hands one task to the running loop's next chunk; the future brings its handle or error."""
        if self._owner != os.getpid():
            self._known = {}  # the parent's loops do not run here, and its spare ids are its own
            self._owner = os.getpid()
        loop = get_running_loop()
        coalescer = self._known.get((loop, plan.queue))
        if coalescer is None:
            self._known = {key: kept for key, kept in self._known.items() if not key[0].is_closed()}
            coalescer = self._known[loop, plan.queue] = Coalescer(self._client, loop, plan.queue)
        telemetry = self._client.telemetry
        if telemetry is None:
            return coalescer.submit(plan, payload)
        return _traced(telemetry, coalescer, plan, payload)


def _traced(telemetry: Telemetry, coalescer: Coalescer, plan: Plan, payload: object) -> Future[Handle[Any]]:
    """The same within a span that ends with the answer."""
    plan, span = telemetry.sending(plan)

    def end(answered: Future[Handle[Any]]) -> None:
        error = CancelledError() if answered.cancelled() else answered.exception()
        telemetry.sent(span, None if error is not None else answered.result().id, error)

    try:
        future = coalescer.submit(plan, payload)
    except BaseException as error:
        telemetry.sent(span, error=error)
        raise
    future.add_done_callback(end)
    return future


class _Batch:
    """A chunk that is being filled, and who waits for it, in the chunk's order."""

    __slots__ = ("chunk", "deadline", "futures", "plans")

    def __init__(self) -> None:
        self.chunk = _core.Chunk()
        self.deadline = 0.0
        self.futures: list[Future[Handle[Any]]] = []
        self.plans: list[Plan] = []


class Coalescer:
    """The calls of one loop for one queue."""

    def __init__(self, client: Client, loop: AbstractEventLoop, queue: str) -> None:
        self._client = client
        self._loop = loop
        self._queue = queue
        self._clock = client.clock
        self._batches: deque[_Batch] = deque()
        self._open: _Batch | None = None
        self._sender: Task[None] | None = None
        # Room for the largest task that is accepted; a limit raised beyond it leaves a quarter of the chunk at least.
        self._full_bytes = max(CHUNK_BYTES - client.settings.max_payload_bytes - 16_384, CHUNK_BYTES // 4)
        self._ids: list[str] = []
        self._ids_ms = 0
        self._ids_count = 1

    def submit(self, plan: Plan, payload: object) -> Future[Handle[Any]]:
        """Encodes the task now (the caller may change the payload later) and sends it with its neighbours."""
        batch = self._open
        if batch is None or len(batch.futures) >= CHUNK_TASKS or batch.chunk.byte_size >= self._full_bytes:
            batch = self._open = _Batch()
            self._batches.append(batch)
        now_ms = self._clock.now_ms()
        ids = self._ids
        if not ids or self._ids_ms != now_ms:
            ids = self._make_ids(now_ms)
        if plan.plain:
            try:
                batch.chunk.add_payload(ids.pop(), plan.head, payload, plan.max_payload_bytes, plan.place)
            except _core.CoreError as error:
                raise from_core(error) from None
        else:
            self._client.add(batch.chunk, plan, payload, now_ms, ids.pop())
        future: Future[Handle[Any]] = self._loop.create_future()
        if not batch.futures:  # it may have been opened long ago, for a payload that was refused
            batch.deadline = self._clock.monotonic() + self._client.settings.enqueue_deadline_s
        batch.futures.append(future)
        batch.plans.append(plan)
        if self._sender is None:
            self._sender = self._loop.create_task(self._send_all())
        return future

    def _make_ids(self, now_ms: int) -> list[str]:
        """Ids of this millisecond: more at a time while they are used up, one at a time where calls are rare."""
        self._ids_count = (
            min(2 * self._ids_count, MOST_SPARE_IDS)
            if self._ids_ms == now_ms
            else 1 + (self._ids_count // 2 if not self._ids else self._ids_count // 4)
        )
        self._ids_ms = now_ms
        self._ids = _core.new_ids(now_ms, os.urandom(10 * self._ids_count), self._ids_count)
        self._ids.reverse()  # taken from the end; they sort by time only
        return self._ids

    async def _send_all(self) -> None:
        try:
            while self._batches:
                batch = self._batches.popleft()
                if batch is self._open:
                    self._open = None
                if batch.futures:
                    await self._send(batch)
        finally:
            self._sender = None
            # Left over only when the loop shuts down and this task is cancelled.
            for batch in self._batches:
                for future in batch.futures:
                    future.cancel()
            self._batches.clear()
            self._open = None

    async def _send(self, batch: _Batch) -> None:
        client, futures = self._client, batch.futures
        try:
            answers = await client.asend(self._queue, batch.chunk, batch.deadline)
        except Exception as error:
            for future in futures:
                if not future.done():
                    # Each caller raises its own copy: a shared one would gather the tracebacks of all.
                    future.set_exception(copy(error))
            return
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        queue = self._queue
        for future, plan, task_id, answer in zip(futures, batch.plans, batch.chunk.ids, answers, strict=True):
            if future.done():
                continue  # its caller was cancelled; the task stands
            if answer.code == "a":
                future.set_result(Handle(client, task_id, queue, plan.retention_ms))
                continue
            try:
                future.set_result(client.settle(plan, task_id, answer))
            except DtqError as error:
                future.set_exception(error)
