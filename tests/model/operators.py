"""Rules of operators: purges slice by slice, dead letters queued again or discarded, pauses; and a queue beside."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.broker.driver import QUEUE, Child, enqueue
from tests.model.children import PICK, ChildrenAndProducers
from tests.model.producer import TYPES

BYSTANDER = "beside"
"""A queue in which tasks wait, run and have ended: nothing that is done to the other one may change a byte of it."""


class Operators(ChildrenAndProducers):
    """Verbs that change many tasks, or what becomes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.purging: Iterator[int] | None = None
        self.requeued: list[tuple[str, str]] = []

    @initialize()
    def fill_the_queue_beside(self) -> None:
        """One task of each kind."""
        self.broker.prepare_queue(BYSTANDER)
        worker = self.workers[0].id
        for place, letter in (("", "S"), ("", "R"), ("", "D"), ("", ""), ("w3600000;", ""), ("", None)):
            enqueue(self.broker, place=place, queue=BYSTANDER)
            if letter is not None and not place:
                child = Child(self.broker, worker, BYSTANDER)
                (claim,) = child.claim()
                if letter:
                    child.settle(claim, letter, delay_ms=3_600_000)
        self.beside = self._everything_beside()

    def _everything_beside(self) -> dict[bytes, bytes]:
        return {key: self.client.dump(key) for key in sorted(self.client.keys(f"*{{{BYSTANDER}}}*"))}

    # --- purge

    @precondition(lambda self: self.purging is not None or self.model.waiting())
    @rule(steps=st.integers(1, 6), gives_up=st.sampled_from([False, False, False, True]))
    def purge(self, steps: int, gives_up: bool) -> None:
        """Begin a purge, or go on with one: some slices, between which anything else may happen."""
        if self.purging is None:
            self.purging = self.broker.purge(QUEUE)
            self.model.purging = set(self.model.waiting())
        for _ in range(steps):
            before = self.model.counters["purged"]
            taken = next(self.purging, None)
            if taken is None:
                assert not self.model.purging, f"left by the purge: {self.model.purging}"
                self.purging = None
                return
            self._look("purge")
            assert self.model.counters["purged"] == before + taken
        if gives_up:
            self.purging, self.model.purging = None, set()

    # --- dead letters

    @precondition(lambda self: self.seen.dead)
    @rule(pick=PICK, again=st.booleans())
    def requeue(self, pick: int, again: bool) -> None:
        """Queue a dead letter again; `again`: the command comes twice."""
        entry, task_id = self.seen.dead[pick % len(self.seen.dead)]
        self._requeue(entry, task_id)
        self.requeued.append((entry, task_id))
        if again:
            self._requeue(entry, task_id)

    @precondition(lambda self: self.requeued)
    @rule(pick=PICK)
    def requeue_comes_late(self, pick: int) -> None:
        """A copy of an old requeue arrives: its dead letter is gone, whatever has become of the task."""
        self._requeue(*self.requeued[pick % len(self.requeued)])

    def _requeue(self, entry: str, task_id: str) -> None:
        offer = self.model.lives[task_id].offer
        expected = self.model.requeued(entry, task_id, self.seen)
        place = self.producer.place(offer).encode()
        assert self.broker.requeue(QUEUE, entry, task_id, offer.envelope, place) == expected
        if expected[0] == "requeued":
            self.model.revive(task_id)
        self._look("nothing")

    @precondition(lambda self: self.seen.dead)
    @rule(pick=PICK)
    def discard(self, pick: int) -> None:
        """Take a dead letter off its stream."""
        entry, task_id = self.seen.dead[pick % len(self.seen.dead)]
        assert self.broker.discard(QUEUE, [(entry, task_id.encode())]) == 1
        self.model.discard(task_id)
        assert self.broker.discard(QUEUE, [(entry, task_id.encode())]) == 0
        self._look("nothing")

    # --- pause and resume

    @rule(task_type=st.sampled_from(["", *TYPES]))
    def pause_or_resume(self, task_type: str) -> None:
        """The queue ('') or a task type of it."""
        if task_type in self.paused:
            assert self.broker.resume(QUEUE, task_type)
            self.paused.remove(task_type)
        else:
            assert self.broker.pause(QUEUE, task_type)
            self.paused.add(task_type)
        self._look("nothing")

    @rule()
    def unpark(self) -> None:
        """The leader's look at what resumed types had parked."""
        self.broker.unpark(QUEUE)
        self._look("nothing")

    def _resume_all(self) -> None:
        for task_type in sorted(self.paused):
            self.broker.resume(QUEUE, task_type)
        self.paused.clear()
