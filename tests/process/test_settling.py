"""A settle that travels while the next handler runs: what it meets on its way, and what then becomes of the tasks.

A child sends it before a handler that took some milliseconds lately. So the first task of each test is one of those
(`linger`), and the next ones are claimed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.process.gate import Hold
from tests.process.harness import WorkerProcess
from tests.process.scene import KILLED, ONCE, Fate, Scene
from tests.process.test_windows import settles


def linger(scene: Scene, name: str, **options: Any) -> Any:
    """Enqueue a task that takes some milliseconds and runs until `go`."""
    return scene.stage.app.enqueue("linger", {"name": name}, **options)


AT_ONCE = {"claim_budget_s": 10.0}
"""Slow tasks are claimed together from the first turn on."""


def prelude(scene: Scene) -> None:
    """Enqueue what comes first: from it the child learns how long this handler takes."""
    scene.go("prelude")
    linger(scene, "prelude")


def started_once(scene: Scene, handle: Any, name: str) -> None:
    """It ended well and was started once; it may have been handed back before, which is not charged."""
    task = scene.stage.ended(handle, 30)
    assert (task.status, task.attempt - task.released, task.history) == ("succeeded", 1, ())
    assert len(scene.starts(name)) == 1


def arrives_late(scene: Scene, hold: Hold, pid: int) -> None:
    hold.release(deliver=True)


def is_lost(scene: Scene, hold: Hold, pid: int) -> None:
    hold.release(deliver=False)


def is_lost_with_its_child(scene: Scene, hold: Hold, pid: int) -> None:
    scene.kill(pid)
    hold.release(deliver=False)


CHARGED = Fate(2, 0, [1, 2], KILLED)
UNCHARGED = Fate(2, 1, [1, 2], KILLED)
"""It had ended when its child was killed, and nobody has heard of it: it is started again, and pays nothing."""


@pytest.mark.parametrize(
    ("applied", "what", "ended", "beside"),
    [
        (False, arrives_late, ONCE, ONCE),
        (False, is_lost, ONCE, ONCE),
        (True, is_lost, ONCE, ONCE),
        (False, is_lost_with_its_child, UNCHARGED, CHARGED),
        (True, is_lost_with_its_child, ONCE, CHARGED),
    ],
)
def test_a_settle_travels_while_the_next_handler_runs(
    scene: Scene, applied: bool, what: Callable[[Scene, Hold, int], None], ended: Fate, beside: Fate
) -> None:
    """The handler begins without its answer. Where settle or answer is lost nothing else is, and nothing runs twice."""
    prelude(scene)
    first, second = scene.mark("first"), linger(scene, "second")
    hold = scene.gate.hold("turn", when=settles, skip=1, applied=applied)
    scene.behind_gate(AT_ONCE, children=1)
    pid = hold.wait()
    assert scene.stage.started("second").pid == pid
    assert (first.task().status == "succeeded") is applied
    what(scene, hold, pid)
    scene.go("second")
    assert scene.fate(first, "first") == ended
    assert scene.fate(second, "second") == beside
    scene.check_nothing_left()


def test_a_settle_that_cannot_be_sent_stops_what_was_to_begin_behind_it(scene: Scene) -> None:
    """The server is gone when it is to be sent: the outcome is kept, and no handler begins until it is back."""
    prelude(scene)
    first, second = scene.until("first"), linger(scene, "second")
    worker = scene.stage.worker(children=1, overrides=AT_ONCE)
    scene.stage.started("first")
    scene.server.kill()
    scene.go("first")
    scene.wait_until(lambda: "outcomes are kept and sent later" in worker.log, 10, "the child's word")
    assert scene.starts("second") == []
    scene.server.start()
    scene.go("second")
    started_once(scene, second, "second")
    assert scene.fate(first, "first") == ONCE
    scene.check_nothing_left()


def test_what_other_queues_wait_for_is_settled_before_it(scene: Scene) -> None:
    """A result that is there does not wait for a handler of another queue."""
    scene.go("prelude")
    worker = scene.stage.worker(children=1, queues=["default", "other"], overrides=AT_ONCE)
    scene.stage.ended(linger(scene, "prelude"))
    first = scene.until("first", queue="other")
    scene.stage.started("first")
    second = linger(scene, "second")
    scene.go("first")
    scene.stage.started("second")
    assert first.task().status == "succeeded"
    scene.go("second")
    assert scene.fate(second, "second") == ONCE
    assert scene.fate(first, "first") == ONCE
    assert len(worker.ready_pids()) == 1
    scene.check_nothing_left("default", "other")


def test_a_queue_that_is_damaged_meanwhile_is_left_alone_and_loses_nothing(scene: Scene) -> None:
    """The answer is a refusal: outcomes stand until the queue is mended, and another one is served meanwhile."""
    prelude(scene)
    first, second = scene.mark("first"), linger(scene, "second")
    scene.go("third")
    third = linger(scene, "third")
    hold = scene.gate.hold("turn", when=settles, skip=1)
    worker = scene.behind_gate(AT_ONCE, children=1, queues=["default", "other"])
    hold.wait()
    scene.stage.started("second")
    with damaged(scene, worker):
        hold.release(deliver=True)
        scene.go("second")
        elsewhere = scene.mark("elsewhere", queue="other")
        assert scene.fate(elsewhere, "elsewhere") == ONCE
    assert scene.fate(first, "first") == ONCE
    assert scene.fate(second, "second") == ONCE
    started_once(scene, third, "third")
    assert worker.log.count("work on it is not possible") == 1, worker.log
    scene.check_nothing_left("default", "other")


@contextmanager
def damaged(scene: Scene, worker: WorkerProcess) -> Iterator[None]:
    """Put something else in the place of a queue's live values, and put them back."""
    key = scene.stage.app.broker.keys.live("default")
    with scene.server.client() as client:
        with client.pipeline() as both:
            both.rename(key, "kept")
            both.set(key, "damaged")
            both.execute()
        yield
        assert "queue default: work on it is not possible" in worker.log
        client.rename("kept", key)
