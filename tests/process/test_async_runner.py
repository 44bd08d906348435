"""Async attempts, interrupted at every moment of their short life: each ends once, as it was told to."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

import dtq
from dtq._core import Slots
from dtq.executor import Executor
from dtq.models import Outcome
from dtq.settings import Settings
from dtq.worker.async_runner import AsyncRunner, Attempt
from tests.process.test_executor import cancelled, claim

SEQ = 7
"""The claim number in the claims that `claim` makes."""


class Loop:
    """A runner with one place for the handler `t`, which sleeps for a minute."""

    def __init__(self) -> None:
        app = dtq.App()

        @app.task(name="t")
        async def sleeper() -> None:
            await asyncio.sleep(60)

        descriptor = os.memfd_create("slots")
        self.slots = Slots(descriptor, 1, 2, create=True)
        os.close(descriptor)
        self.executor = Executor(app.registry, Settings(), "worker")
        self.ended = threading.Event()
        self.runner = AsyncRunner(self.executor, self.slots, 0, 1, self.ended.set)

    def expect(self) -> Attempt:
        """An attempt with its row in the slots, not started yet."""
        attempt = Attempt(1, 0, claim({}), self.executor.routes["t"], 1)
        self.runner.expect(attempt)
        self.slots.start(0, 1, b"1-1", 0, 5, SEQ, 1, 1, 0)
        return attempt

    def outcome(self) -> Outcome:
        """How the attempt ended."""
        assert self.ended.wait(5), "the attempt did not end"
        self.ended.clear()
        (attempt,) = self.runner.ended
        self.runner.ended.clear()
        assert not self.slots.rows(0)
        assert isinstance(attempt.result, Outcome)
        return attempt.result


@pytest.fixture
def loop() -> Loop:
    """A loop in a thread of its own, which lives on idle."""
    return Loop()


@pytest.mark.parametrize("first", [True, False])
def test_an_attempt_interrupted_before_its_start_ends(loop: Loop, first: bool) -> None:
    """Its row is there, the loop has not heard of it; also where the loop itself does not run yet."""
    if not first:
        loop.runner.loop()
    attempt = loop.expect()
    loop.runner.interrupt(1, SEQ, cancelled())
    assert loop.runner.start(attempt, "q") is None
    assert loop.outcome().letter == "C"


def test_an_attempt_interrupted_right_behind_its_start_ends(loop: Loop) -> None:
    """Start and interrupt reach the loop together, before the coroutine has begun; again and again."""
    for _ in range(300):
        attempt = loop.expect()
        assert loop.runner.start(attempt, "q") is None
        loop.runner.interrupt(1, SEQ, cancelled())
        assert loop.outcome().letter == "C"


def test_an_interrupt_of_another_claim_is_ignored(loop: Loop) -> None:
    """The place is the same, the number is not."""
    attempt = loop.expect()
    loop.runner.start(attempt, "q")
    loop.runner.interrupt(1, SEQ + 1, cancelled())
    assert not loop.ended.wait(0.05)
    loop.runner.interrupt(1, SEQ, dtq.TaskTimeout("late"))
    assert loop.outcome().cause == "timeout"
