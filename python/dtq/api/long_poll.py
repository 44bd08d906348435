"""Waiting for the end of many tasks at once: one look for all of them, and an answer to each as it ends."""

from __future__ import annotations

from asyncio import Event, Future, Task, create_task, get_running_loop, sleep, timeout
from collections import defaultdict

from dtq.app import App
from dtq.errors import DtqError
from dtq.handles import Handle
from dtq.waiting import FIRST_PAUSE_S, FIRST_TERMINAL, LONGEST_PAUSE_S, SLICE, UNKNOWN


class LongPoll:
    """The requests of one process that wait, by queue and task."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: defaultdict[str, dict[str, set[Future[None]]]] = defaultdict(dict)
        self._watch: Task[None] | None = None
        self._more = Event()
        self._closed = False

    async def until_ended(self, handle: Handle[object], seconds: float) -> None:
        """Returns when the task has ended or is known no more, when the time is over, or when the server stops."""
        if self._closed:
            return
        future: Future[None] = get_running_loop().create_future()
        waiting = self._open[handle.queue].setdefault(handle.id, set())
        waiting.add(future)
        self._more.set()
        if self._watch is None:
            self._watch = create_task(self._look())
        try:
            async with timeout(seconds):
                await future
        except TimeoutError:
            pass
        finally:
            self._forget(handle.queue, handle.id, future)

    def close(self) -> None:
        """Send everybody home: the server stops."""
        self._closed = True
        for tasks in self._open.values():
            for futures in tasks.values():
                _wake(futures)

    def _forget(self, queue: str, task_id: str, future: Future[None]) -> None:
        tasks = self._open[queue]
        futures = tasks.get(task_id, set())
        futures.discard(future)
        if not futures:
            tasks.pop(task_id, None)
        if not tasks:
            self._open.pop(queue, None)

    async def _look(self) -> None:
        """Asks about all that is open, as long as something is; quickly at first after each new one."""
        pause = FIRST_PAUSE_S
        try:
            broker = await self._app.client.abroker()
            while self._open:
                for queue, tasks in list(self._open.items()):
                    ids = list(tasks)
                    for at in range(0, len(ids), SLICE):
                        part = ids[at : at + SLICE]
                        try:
                            codes = await broker.astates(queue, part)
                        except DtqError:
                            continue  # the outage may end in time; each request looks once more when its time is over
                        for task_id, code in zip(part, codes, strict=True):
                            if code >= FIRST_TERMINAL or code == UNKNOWN:
                                _wake(tasks.get(task_id, set()))
                await sleep(FIRST_PAUSE_S)  # however many come, no look follows the one before sooner
                try:
                    async with timeout(pause):
                        await self._more.wait()
                    self._more.clear()
                    pause = FIRST_PAUSE_S
                except TimeoutError:
                    pause = min(2 * pause, LONGEST_PAUSE_S)
        finally:
            self._watch = None


def _wake(futures: set[Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
