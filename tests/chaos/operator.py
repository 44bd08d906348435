"""Pauses, resumes, purges, cancels in bulk, queues dead letters again and discards them, until it is stopped or killed.

python -m tests.chaos.operator SEED NUMBER: it writes into the same ledger as the producers. What an earlier operator
left paused, it resumes at its start.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from dtq.dead_letters import DeadLetter, DeadLetterFilter
from dtq.errors import BrokerUnavailable, DtqError
from dtq.models import TaskStatus
from tests.chaos.handlers import CANCELLED_IN_BULK, QUEUES, app
from tests.chaos.ledger import LedgerWriter, until_stopped

PAUSE_S = 0.3
"""Mean pause between two acts."""
MOST_AT_ONCE = 30
"""Dead letters of one bulk act."""
TYPES = ("quick", "nap", "flaky", "slow", "hopeless")


class Operator:
    """One seeded stream of an operator's acts."""

    def __init__(self, seed: int, number: int) -> None:
        self._dice = random.Random(f"operator {seed} {number}")
        self._ledger = LedgerWriter()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Act until stopped; then resume what is paused."""
        acts: list[tuple[float, Callable[[], None]]] = [
            (4, self._pause_queue), (6, self._pause_type), (0.3, self._purge), (8, self._requeue),
            (2, self._requeue_all), (2, self._discard), (0.5, self._discard_all),
            (3, self._cancel_matching), (2, self._listen),
        ]  # fmt: skip
        self._resume_all()
        while not stopped():
            self._dice.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
            until = time.monotonic() + self._dice.uniform(0, 2) * PAUSE_S
            while time.monotonic() < until:
                self._do_later()
                time.sleep(0.02)

    def _do_later(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def _noted(self, what: str, queue: str, call: Callable[[], Any], **facts: Any) -> None:
        """Make a call, between two lines in the ledger."""
        (name,) = self._ledger.ask([{"what": what, "queue": queue, **facts}])
        try:
            answer = call()
        except BrokerUnavailable:
            self._ledger.answer(name, "unknown")
        except DtqError as error:
            self._ledger.answer(name, "refused", why=type(error).__name__)
        else:
            self._ledger.answer(name, "unchanged" if answer is False else "done")

    def _queue(self) -> str:
        return self._dice.choice(QUEUES)

    # --- pause, resume, purge, cancel ----------------------------------------------------------------------------

    def _pause_queue(self) -> None:
        self._pause(self._queue(), "")

    def _pause_type(self) -> None:
        self._pause(self._queue(), self._dice.choice(TYPES))

    def _pause(self, queue: str, kind: str) -> None:
        self._noted("pause", queue, lambda: app.queue(queue).pause(kind or None), kind=kind)
        seconds = self._dice.choice([0.05, 0.3, 1, 3])
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), lambda: self._resume(queue, kind)))

    def _resume(self, queue: str, kind: str) -> None:
        self._noted("resume", queue, lambda: app.queue(queue).resume(kind or None), kind=kind)

    def _resume_all(self) -> None:
        for queue in QUEUES:
            try:
                counts = app.queue(queue).counts()
            except DtqError:
                continue
            for kind in (*([""] if counts.paused else []), *counts.paused_types):
                self._resume(queue, kind)

    def _purge(self) -> None:
        queue = self._queue()
        self._noted("purge", queue, lambda: app.queue(queue).purge())

    def _cancel_matching(self) -> None:
        queue, kind = self._queue(), self._dice.choice(CANCELLED_IN_BULK)
        statuses = self._dice.choice([
            [TaskStatus.QUEUED],
            [TaskStatus.PENDING, TaskStatus.QUEUED, TaskStatus.RETRYING],
            [TaskStatus.RUNNING],
        ])  # fmt: skip
        call = lambda: app.broker.cancel_matching(queue, task_type=kind, statuses=statuses)  # noqa: E731
        self._noted("cancel_matching", queue, call, kind=kind)

    def _listen(self) -> None:
        """For some time the scripts tell what they do, and take other ways for it."""
        with contextlib.suppress(DtqError):
            app.broker.listen(self._queue(), self._dice.choice([0.1, 1]))

    # --- dead letters --------------------------------------------------------------------------------------------

    def _some_letter(self, queue: str) -> DeadLetter | None:
        try:
            letters = list(itertools.islice(app.queue(queue).dead_letters(), 20))
        except DtqError:
            return None
        return self._dice.choice(letters) if letters else None

    def _requeue(self) -> None:
        queue = self._queue()
        letter = self._some_letter(queue)
        if letter is None or letter.task is None:
            return
        payload: dict[str, Any] | None = None
        if letter.task.task_type == "hopeless" and self._dice.random() < 0.5:
            payload = {**(letter.task.payload or {}), "mended": True}
        name = self._dice.choice([letter.task_id, letter.entry])
        call = lambda: app.queue(queue).requeue(name, payload=payload)  # noqa: E731
        self._noted("requeue", queue, call, id=letter.task_id, mended=payload is not None)

    def _requeue_all(self) -> None:
        """By filter, and sometimes at a rate; each one that it tells of is written down."""
        queue, rate = self._queue(), self._dice.choice([None, None, 40.0])
        which = DeadLetterFilter(task_type=self._dice.choice([None, "hopeless", "poison", "wrong"]))

        def call() -> None:
            for done in itertools.islice(app.queue(queue).requeue_all(which, rate=rate), MOST_AT_ONCE):
                if done.error is None:
                    self._ledger.done("requeue", queue, done.letter.task_id, asked)

        asked = time.monotonic()
        self._noted("requeue_all", queue, call, kind=which.task_type or "")

    def _discard(self) -> None:
        queue = self._queue()
        if (letter := self._some_letter(queue)) is not None:
            entry = letter.entry
            self._noted("discard", queue, lambda: app.queue(queue).discard(entry), id=letter.task_id)

    def _discard_all(self) -> None:
        queue = self._queue()
        if self._dice.random() < 0.3:
            self._noted("purge_dead_letters", queue, lambda: app.queue(queue).purge_dead_letters())
        else:
            which = DeadLetterFilter(task_type="poison")
            self._noted("discard_all", queue, lambda: list(app.queue(queue).discard_all(which)))


if __name__ == "__main__":
    until_stopped(Operator(int(sys.argv[1]), int(sys.argv[2])).run)
