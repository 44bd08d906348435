"""Enqueues in every way there is until it is told to stop or killed, and writes down what it was promised.

python -m tests.chaos.producer SEED PAUSE NUMBER: lines of JSON go to the file CHAOS_LEDGER; SIGTERM ends it. NUMBER
tells its tasks from those of all other producers.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dtq.app import App
from dtq.errors import (
    BrokerUnavailable,
    DtqError,
    IdempotencyInProgress,
    QueueFull,
    TaskIdConflict,
    UniqueConflict,
)
from tests.chaos.handlers import CANCELLED_IN_BULK, QUEUES, app
from tests.chaos.ledger import LedgerWriter, until_stopped

MANY_ATTEMPTS = 500
"""So that kills bury no task that is not meant to be buried."""

WEIGHTS = {
    "quick": 50, "slow": 6, "nap": 20, "flaky": 8, "flaky_nap": 4, "charge": 8, "hopeless": 1.5, "wrong": 1,
    "discarded": 1, "endless": 0.7, "endless_nap": 0.7, "deaf": 0.4, "poison": 1.0,
}  # fmt: skip
DEAD = ("hopeless", "wrong", "endless", "endless_nap", "deaf", "poison")
MOST_WAITING = 200


class Producer:
    """One seeded stream of enqueues."""

    def __init__(self, seed: int, pause_s: float, number: int) -> None:
        self._seed = seed
        self._dice = random.Random(f"{seed} {number}")
        self._pause_s = pause_s
        self._ledger = LedgerWriter()
        self._n = number * 1_000_000
        self._recent: deque[tuple[str, str]] = deque(maxlen=40)
        self._capped = App(max_queue_depth=MOST_WAITING // 2)
        self._look_at = 0.0
        self._stopped: Callable[[], bool] = lambda: False

    def run(self, stopped: Callable[[], bool]) -> None:
        """Enqueue until stopped."""
        self._stopped = stopped
        ways: list[tuple[float, Callable[[], None]]] = [
            (60, self._single), (18, self._bulk), (8, self._at_once), (5, self._given_id), (5, self._keyed),
            (5, self._unique), (6, self._cancel), (4, self._brief), (3, self._into_a_small_queue),
        ]  # fmt: skip
        while not stopped():
            self._dice.choices([way for _, way in ways], [weight for weight, _ in ways])[0]()
            time.sleep(self._dice.uniform(0.2, 1.8) * self._pause_s)
            self._hold_back()

    # --- what is enqueued ----------------------------------------------------------------------------------------

    def _plan(self, kind: str | None = None) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A kind with its payload and options."""
        dice = self._dice
        kind = kind or dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self._n += 1
        payload: dict[str, Any] = {"n": self._n}
        options: dict[str, Any] = {"max_attempts": MANY_ATTEMPTS, "queue": dice.choice(QUEUES)}
        if kind in ("slow", "nap"):  # sometimes longer than the lease
            most = dice.choice([0.02, 0.1, 0.4, 0.4, 1, 3] if kind == "slow" else [0.02, 0.1, 0.5, 1, 3, 5])
            payload["seconds"] = round(most * dice.random(), 3)
        elif kind in ("flaky", "flaky_nap"):
            payload["failures"] = dice.randint(1, 2)
        elif kind == "poison":
            payload["how"] = dice.choice(["SIGKILL", "SIGSEGV", "3"])
        if kind in DEAD:
            options["max_attempts"] = dice.randint(2, 3)
        if kind in ("endless", "endless_nap", "deaf"):
            options["timeout"] = 0.25
        if dice.random() < 0.3:
            options["priority"] = dice.randint(0, 9)
        # Cancelled ones are kept for a minute, whatever they say: too short to be judged by.
        if dice.random() < 0.3 and kind not in ("discarded", *CANCELLED_IN_BULK):
            options["retention"] = 0
        if dice.random() < 0.12:
            options["delay"] = round(dice.uniform(0.05, 2), 2)
        if dice.random() < 0.1:
            options["ttl"] = 3600
        return kind, payload, options

    def _ask(self, kind: str, options: dict[str, Any], numbers: list[int], expect: list[str] | None) -> list[str]:
        """Write down what is about to be enqueued."""
        facts = {"kind": kind, "queue": options["queue"], "id": options.get("task_id"), "expect": expect}
        facts |= {"max_attempts": options["max_attempts"], "kept": options.get("retention") != 0}
        facts["expect"] = expect or expected(kind)
        return self._ledger.ask({**facts, "n": n} for n in numbers)

    def _noted(
        self, kind: str, n: int, options: dict[str, Any], call: Callable[[], Any], *, expect: list[str] | None = None
    ) -> str | None:
        """Make the call, between two lines in the ledger; the id where the task was accepted."""
        return self._told(self._ask(kind, options, [n], expect)[0], call)

    def _told(self, name: str, call: Callable[[], Any]) -> str | None:
        try:
            handle = call()
        except BrokerUnavailable as error:
            self._ledger.answer(name, "unknown", why=str(error)[:100])
        except (QueueFull, UniqueConflict) as error:
            self._ledger.answer(name, "refused", why=type(error).__name__)
        except TaskIdConflict:
            self._ledger.answer(name, "conflict")
        except IdempotencyInProgress as error:
            self._ledger.answer(name, "duplicate", id=error.task_id)
        else:
            self._ledger.answer(name, "duplicate" if handle.duplicate else "accepted", id=handle.id)
            return None if handle.duplicate else str(handle.id)
        return None

    # --- ways to enqueue -----------------------------------------------------------------------------------------

    def _single(self) -> None:
        kind, payload, options = self._plan()
        task_id = self._noted(kind, payload["n"], options, lambda: app.enqueue(kind, payload, **options))
        if task_id and options.get("retention") != 0 and kind not in DEAD:
            self._recent.append((options["queue"], task_id))

    def _bulk(self) -> None:
        kind, _, options = self._plan(self._dice.choice(["quick", "quick", "nap", "flaky"]))
        payloads = [self._plan(kind)[1] for _ in range(self._dice.choice([3, 10, 60]))]
        names, done = self._ask(kind, options, [payload["n"] for payload in payloads], None), 0
        try:
            for item in app.enqueue_many(kind, payloads, **options):
                answer = "accepted" if item.ok else "refused"
                self._ledger.answer(names[item.index], answer, id=getattr(item, "id", None))
                done = item.index + 1
        except BrokerUnavailable:
            for name in names[done:]:
                self._ledger.answer(name, "unknown")

    def _at_once(self) -> None:
        """Async enqueues that share round trips."""
        plans = [self._plan(self._dice.choice(["quick", "nap", "flaky_nap"])) for _ in range(self._dice.randint(2, 8))]

        async def together() -> list[Any]:
            calls = (app.aenqueue(kind, payload, **options) for kind, payload, options in plans)
            return list(await asyncio.gather(*calls, return_exceptions=True))

        def give(answer: Any) -> Callable[[], Any]:
            def call() -> Any:
                if isinstance(answer, BaseException):
                    raise answer
                return answer

            return call

        names = [self._ask(kind, options, [payload["n"]], None)[0] for kind, payload, options in plans]
        for name, answer in zip(names, asyncio.run(together()), strict=True):
            self._told(name, give(answer))

    def _given_id(self) -> None:
        kind, payload, options = self._plan("quick")
        options |= {"task_id": f"chaos-{self._seed}-{payload['n']}", "retention": 86_400}
        if self._noted(kind, payload["n"], options, lambda: app.enqueue(kind, payload, **options)) is None:
            return
        if self._dice.random() < 0.5:
            self._noted(kind, -payload["n"], options, lambda: app.enqueue(kind, {"n": -payload["n"]}, **options))

    def _keyed(self) -> None:
        kind, payload, options = self._plan(self._dice.choice(["quick", "nap", "flaky", "hopeless"]))
        options |= {"idempotency_key": f"key {payload['n']}", "retention": 86_400}
        for _ in range(self._dice.randint(1, 3)):
            self._noted(kind, payload["n"], options, lambda: app.enqueue(kind, payload, **options))
            time.sleep(self._dice.choice([0, 0, 0.05]))

    def _unique(self) -> None:
        kind, payload, options = self._plan(self._dice.choice(["quick", "nap", "hopeless", "poison"]))
        options["unique"] = f"unique {self._n % 10}"
        self._noted(kind, payload["n"], options, lambda: app.enqueue(kind, payload, **options))

    def _brief(self) -> None:
        """A task that may expire before it starts."""
        kind, payload, options = self._plan(self._dice.choice(["quick", "flaky"]))
        options |= {"ttl": self._dice.choice([0.05, 0.3, 1]), "retention": 86_400}
        expect = ["succeeded", "expired"]
        self._noted(kind, payload["n"], options, lambda: app.enqueue(kind, payload, **options), expect=expect)

    def _into_a_small_queue(self) -> None:
        """With a bound on the queue's depth, which may refuse it."""
        kind, payload, options = self._plan("quick")
        self._noted(kind, payload["n"], options, lambda: self._capped.enqueue(kind, payload, **options))

    def _cancel(self) -> None:
        if not self._recent:
            return
        queue, task_id = self._dice.choice(list(self._recent))
        (name,) = self._ledger.ask([{"what": "cancel", "queue": queue, "id": task_id}])
        try:
            self._ledger.answer(name, app.broker.cancel(queue, task_id))
        except DtqError:
            self._ledger.answer(name, "unknown")

    def _hold_back(self) -> None:
        """Do not pile up more than the pool can do after the chaos."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + 1
        while not self._stopped():
            try:
                if all(app.broker.queue_counts(queue).waiting < MOST_WAITING for queue in QUEUES):
                    return
            except DtqError:
                return
            time.sleep(0.1)


def expected(kind: str) -> list[str]:
    """How a task of this kind has to end."""
    return ["dead_lettered"] if kind in DEAD else ["cancelled"] if kind == "discarded" else ["succeeded"]


if __name__ == "__main__":
    until_stopped(Producer(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])).run)
