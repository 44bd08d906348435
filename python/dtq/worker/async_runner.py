"""Runs a child's async handlers: a uvloop loop in a second thread, a bounded number of attempts at a time."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtq._core import Claim, Slots
from dtq.clock import SYSTEM
from dtq.executor import Executor, Route, check_result
from dtq.models import Outcome
from dtq.worker.journal import LOGGER


@dataclass(slots=True)
class Attempt:
    """One async attempt on its way through the loop. `interruption` is set once it has been told to end.

    entered: its coroutine has begun; cancelled before that, it would end without a word.
    """

    place: int
    index: int
    claim: Claim
    route: Route
    started_ns: int
    task: asyncio.Task[None] | None = None
    entered: bool = False
    interruption: BaseException | None = None
    result: object = None
    ended_ns: int = 0

    @property
    def took_ns(self) -> int:
        """How long it was under way, once it has ended."""
        return self.ended_ns - self.started_ns


class AsyncRunner:
    """The loop and its thread. Ended attempts stand in `ended`, in order; `ring` is called after each.

    An attempt is `in_flight`, by its claim number, from `begin` until the child has taken it from `ended` and calls
    `free`. The thread starts with the first attempt, so a child of an app without async handlers has one thread only.
    """

    def __init__(self, executor: Executor, slots: Slots, number: int, places: int, ring: Callable[[], None]) -> None:
        self._executor = executor
        self._slots = slots
        self._number = number
        self._ring = ring
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: dict[int, Attempt] = {}
        self.ended: deque[Attempt] = deque()
        self.in_flight: dict[int, Attempt] = {}
        self.free_places = deque(range(1, places + 1))

    def begin(self, index: int, claim: Claim, route: Route, queue: str, now: int, limit: int) -> Outcome | None:
        """Start a claim in a free place; an Outcome where it cannot be run. index: of its queue; limit: boottime ns."""
        attempt = Attempt(self.free_places.popleft(), index, claim, route, now)
        self.in_flight[claim.seq] = attempt
        self.expect(attempt)
        row = (claim.entry, index, claim.band, claim.seq, claim.attempt, now, limit)
        self._slots.start(self._number, attempt.place, *row)
        outcome = self.start(attempt, queue)
        if outcome is not None:
            self._slots.finish(self._number, attempt.place)
            self.free(attempt)
        return outcome

    def free(self, attempt: Attempt) -> None:
        """Forget an attempt that has ended."""
        del self.in_flight[attempt.claim.seq]
        self.free_places.append(attempt.place)

    def expect(self, attempt: Attempt) -> None:
        """An attempt is about to start: from now on it can be interrupted. Before its row appears in the slots."""
        self._attempts[attempt.place] = attempt

    def start(self, attempt: Attempt, queue: str) -> Outcome | None:
        """Hand an expected attempt to the loop; an Outcome where it cannot be run."""

        def cancelled() -> bool:
            return attempt.interruption is not None

        call = self._executor.prepare(attempt.claim, attempt.route, queue, cancelled)
        if isinstance(call, Outcome):
            del self._attempts[attempt.place]
            return call
        self.loop().call_soon_threadsafe(self._begin, attempt, call)
        return None

    def interrupt(self, place: int, seq: int, error: BaseException) -> None:
        """Cancel the attempt, if it is still the one at this place; it ends as `error` says."""
        if self._loop is None:
            self._interrupt(place, seq, error)  # nothing runs yet; the first attempt may be about to
        else:
            self._loop.call_soon_threadsafe(self._interrupt, place, seq, error)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run something in a thread of the loop's pool after a while."""
        loop = self.loop()

        def later() -> None:
            loop.call_later(seconds, lambda: loop.run_in_executor(None, function))

        loop.call_soon_threadsafe(later)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        if self._loop is None:
            import uvloop

            self._loop = uvloop.new_event_loop()
            threading.Thread(target=self._serve, args=(self._loop,), name="dtq-async", daemon=True).start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
            except BaseException as error:
                # A task that a handler has started on its own raised SystemExit or KeyboardInterrupt, which end a
                # loop. The other handlers go on.
                LOGGER.warning("a background task of an async handler raised %s", type(error).__name__)

    def _begin(self, attempt: Attempt, call: Callable[[], Any]) -> None:
        attempt.task = self.loop().create_task(self._run(attempt, call))

    def _interrupt(self, place: int, seq: int, error: BaseException) -> None:
        attempt = self._attempts.get(place)
        if attempt is not None and attempt.claim.seq == seq and attempt.interruption is None:
            attempt.interruption = error
            if attempt.task is not None and attempt.entered:
                attempt.task.cancel()

    async def _run(self, attempt: Attempt, call: Callable[[], Any]) -> None:
        try:
            attempt.entered = True
            if attempt.interruption is not None:
                raise attempt.interruption
            result: object = await call()
            self._executor.end_if_forked(None)
            if (mistake := check_result(result)) is not None:
                result = self._executor.mistaken_result(attempt.claim, mistake)
        except BaseException as error:
            self._executor.end_if_forked(error)
            if isinstance(error, asyncio.CancelledError) and attempt.interruption is not None:
                error = attempt.interruption
            result = self._executor.classify(attempt.claim, attempt.route, error)
        attempt.result = result
        attempt.ended_ns = SYSTEM.boottime_ns()
        del self._attempts[attempt.place]
        self._slots.finish(self._number, attempt.place)
        self.ended.append(attempt)
        self._ring()
