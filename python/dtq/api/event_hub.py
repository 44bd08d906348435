"""One watcher of Redis for all clients of this process, as long as there is one."""

from __future__ import annotations

from asyncio import Task, create_task, sleep
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import orjson

from dtq.api.errors import ApiError
from dtq.api.event_buffer import EventBuffer
from dtq.app import App
from dtq.errors import DtqError
from dtq.off_loop import in_thread
from dtq.options import check_queue
from dtq.watching import Events, ask_for_events, check_event_types

MOST_CLIENTS = 500
_AGAIN_S = 1.0


class EventHub:
    """Hands events out to the buffers of its clients."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._buffers: set[EventBuffer] = set()
        self._pump: Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def listen(self, queues: str | None, types: str | None) -> AsyncGenerator[EventBuffer]:
        """A buffer that gets what happens from now on. queues, types: names with commas between, None for all.

        Raises InvalidTask, ApiError for one client too many, BrokerUnavailable.
        """
        chosen, kinds = _names(queues), _names(types)
        for name in chosen or ():
            check_queue(name)
        buffer = EventBuffer(chosen, None if kinds is None else check_event_types(kinds))
        if len(self._buffers) >= MOST_CLIENTS or self._closed:
            raise ApiError(503, "TOO_MANY_CLIENTS", "events: as many listen as this process serves; try again later")
        self._buffers.add(buffer)
        try:
            joins = self._watches
            if not joins:
                await self._watch()
            if joins or buffer.queues is not None:
                # At once: the watcher asks every few seconds, of the queues that it knew then.
                await in_thread(ask_for_events, self._app.broker, buffer.queues)
            yield buffer
        finally:
            self._buffers.discard(buffer)

    @property
    def _watches(self) -> bool:
        return self._pump is not None

    async def _watch(self) -> None:
        """Subscribe, and hand out what comes from here on."""
        events = self._app.events()
        try:
            await events.aget(0.0)
        except BaseException:
            await events.aclose()
            raise
        if self._watches:
            await events.aclose()  # another client was quicker
        else:
            self._pump = create_task(self._run(events))

    def close(self) -> None:
        """The server stops: every client is told."""
        self._closed = True
        for buffer in self._buffers:
            buffer.end()

    async def _run(self, events: Events) -> None:
        """Until the last client has left."""
        try:
            while self._buffers:
                try:
                    found = await events.aget()
                except DtqError:
                    for buffer in self._buffers:
                        buffer.interrupt()
                    await sleep(_AGAIN_S)
                    continue
                for event in found:
                    told = None
                    for buffer in self._buffers:
                        if buffer.wants(event):
                            told = told or (str(event.get("type")), orjson.dumps(event))
                            buffer.put(told)
        except Exception:
            for buffer in self._buffers:
                buffer.end()
            raise
        finally:
            self._pump = None  # at once: who comes while the watcher is closed needs another one
            await events.aclose()


def _names(text: str | None) -> frozenset[str] | None:
    return frozenset(name.strip() for name in (text or "").split(",") if name.strip()) or None
