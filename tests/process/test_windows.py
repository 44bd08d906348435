"""Every window of a task's life, with a process killed in it: the child, its whole worker, the server.

A gate between worker and server stops the one command that opens or closes the window; so the process is known to be
there when the signal comes, and Redis shows it. `README.md` beside this file lists the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.process.gate import Command, Hold
from tests.process.harness import WorkerProcess
from tests.process.scene import KILLED, LOST, ONCE, Fate, Scene


@dataclass
class Reached:
    """A window that has been reached. pid: the child that is in it. hold: what keeps it there, if not its handler."""

    victim: Any
    pid: int
    hold: Hold | None = None


def settles(command: Command) -> bool:
    """Whether a turn carries outcomes."""
    return command.outcomes > 0


def adopts(command: Command) -> bool:
    """Whether a turn adopts what a read got."""
    return command.adopts > 0


def before_the_read(scene: Scene) -> Reached:
    """The blocking read has not reached the server; a task comes."""
    hold = scene.gate.hold("XREADGROUP")
    scene.mark("prelude")
    pid = hold.wait()
    victim = scene.mark("victim")
    assert scene.live(victim).startswith("q:1:0:")
    assert scene.holder(victim) == ""
    return Reached(victim, pid, hold)


def between_read_and_adopt(scene: Scene) -> Reached:
    """The read has got the task; the adoption behind it has not reached the server."""
    # Else the one behind the read that stands is held, and that read gets the prelude.
    scene.wait_until_adopting()
    hold = scene.gate.hold("adopt")
    scene.mark("prelude")
    pid = hold.wait()
    victim = scene.mark("victim")
    scene.wait_until(lambda: scene.holder(victim), 5, "the read gets it")
    assert scene.live(victim).startswith("q:1:0:")
    return Reached(victim, pid, hold)


def between_adopt_and_its_reply(scene: Scene) -> Reached:
    """The task is adopted, and the child has not heard of it."""
    hold = scene.gate.hold("adopt", applied=True)
    scene.mark("prelude")
    hold.wait_sent()
    victim = scene.mark("victim")
    pid = hold.wait()
    scene.wait_until(lambda: scene.live(victim).startswith("r:1:0:"), 5, "it is adopted")
    return Reached(victim, pid, hold)


def between_read_and_adopting_turn(scene: Scene) -> Reached:
    """A child of several queues: the read has got the task, the turn that adopts it has not reached the server."""
    hold = scene.gate.hold("turn", when=adopts)
    victim = scene.mark("victim")
    pid = hold.wait()
    assert scene.live(victim).startswith("q:1:0:")
    assert scene.holder(victim) not in ("", "shelf")
    return Reached(victim, pid, hold)


def between_adopting_turn_and_its_reply(scene: Scene) -> Reached:
    """A child of several queues: the task is adopted, and the child has not heard of it."""
    hold = scene.gate.hold("turn", when=adopts, applied=True)
    victim = scene.mark("victim")
    pid = hold.wait()
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid, hold)


def between_claim_and_its_reply(scene: Scene) -> Reached:
    """A turn has settled one task and claimed the next; the child has heard of neither."""
    busy = scene.until("busy")
    scene.stage.started("busy")
    victim = scene.mark("victim")
    hold = scene.gate.hold("turn", when=settles, applied=True)
    scene.go("busy")
    pid = hold.wait()
    assert busy.task().status == "succeeded"
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid, hold)


def in_the_handler_adopted(scene: Scene) -> Reached:
    """The handler of a task that woke a waiting child runs."""
    victim = scene.until("victim")
    pid = scene.stage.started("victim").pid
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid)


def in_the_handler_claimed(scene: Scene) -> Reached:
    """The handler of a task that was claimed by a turn, alone, runs."""
    scene.until("busy")
    scene.stage.started("busy")
    victim = scene.until("victim")
    scene.go("busy")
    pid = scene.stage.started("victim").pid
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid)


def after_the_handler_adopted(scene: Scene) -> Reached:
    """The handler of a task that woke a waiting child has returned; the settle has not reached the server."""
    hold = scene.gate.hold("turn", when=settles)
    victim = scene.mark("victim")
    pid = hold.wait()
    assert scene.starts("victim") == [1]
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid, hold)


def after_the_handler_claimed(scene: Scene) -> Reached:
    """The same for a task that was claimed by a turn, alone."""
    scene.until("busy")
    scene.stage.started("busy")
    victim = scene.mark("victim")
    hold = scene.gate.hold("turn", when=settles, skip=1)
    scene.go("busy")
    pid = hold.wait()
    assert scene.starts("victim") == [1]
    assert scene.live(victim).startswith("r:1:0:")
    return Reached(victim, pid, hold)


def between_settle_and_its_reply(scene: Scene) -> Reached:
    """The success is settled, and the child has not heard of it."""
    hold = scene.gate.hold("turn", when=settles, applied=True)
    victim = scene.mark("victim")
    pid = hold.wait()
    assert victim.task().status == "succeeded"
    assert scene.live(victim) == ""
    return Reached(victim, pid, hold)


def between_retry_and_its_reply(scene: Scene) -> Reached:
    """A failure is settled as a retry, and the child has not heard of it."""
    hold = scene.gate.hold("turn", when=settles, applied=True)
    victim = scene.stage.app.enqueue("second_time", {"name": "victim"})
    pid = hold.wait()
    assert victim.task().status == "retrying"
    return Reached(victim, pid, hold)


def between_dead_letter_and_its_reply(scene: Scene) -> Reached:
    """A failure is settled as a dead letter, and the child has not heard of it."""
    hold = scene.gate.hold("turn", when=settles, applied=True)
    victim = scene.stage.app.enqueue("fail", {"name": "victim"}, max_attempts=1)
    pid = hold.wait()
    assert victim.task().status == "dead_lettered"
    return Reached(victim, pid, hold)


RETRIED = Fate(2, 0, [1, 2], ("error",))
DEAD = Fate(1, 0, [1], ("error",))

WINDOWS: dict[Callable[[Scene], Reached], tuple[Fate, Fate, Fate]] = {
    # What becomes of the task when the child, its whole worker, the server is killed there.
    before_the_read: (ONCE, ONCE, ONCE),
    between_read_and_adopt: (ONCE, ONCE, ONCE),
    # A dead worker cannot be asked what had begun (protocol 19): what it had adopted behind a read is not charged, what
    # it had claimed alone is, whether it had begun or not. Nobody starts the same attempt twice.
    between_adopt_and_its_reply: (ONCE, Fate(2, 1, [2], LOST), ONCE),
    between_read_and_adopting_turn: (ONCE, ONCE, ONCE),
    between_adopting_turn_and_its_reply: (ONCE, Fate(2, 0, [2], LOST), ONCE),
    between_claim_and_its_reply: (ONCE, Fate(2, 0, [2], LOST), ONCE),
    in_the_handler_adopted: (Fate(2, 0, [1, 2], KILLED), Fate(2, 1, [1, 2], LOST), ONCE),
    in_the_handler_claimed: (Fate(2, 0, [1, 2], KILLED), Fate(2, 0, [1, 2], LOST), ONCE),
    # A child that dies with nothing executing did not die of this task: not charged.
    after_the_handler_adopted: (Fate(2, 1, [1, 2], KILLED), Fate(2, 1, [1, 2], LOST), ONCE),
    after_the_handler_claimed: (Fate(2, 1, [1, 2], KILLED), Fate(2, 0, [1, 2], LOST), ONCE),
    between_settle_and_its_reply: (ONCE, ONCE, ONCE),
    between_retry_and_its_reply: (RETRIED, RETRIED, RETRIED),
    between_dead_letter_and_its_reply: (DEAD, DEAD, DEAD),
}
WITH_WORKER = {
    before_the_read,
    between_read_and_adopt,
    between_claim_and_its_reply,
    in_the_handler_claimed,
    after_the_handler_claimed,
    between_settle_and_its_reply,
}
WITH_SERVER = {
    between_read_and_adopt,
    between_adopt_and_its_reply,
    between_claim_and_its_reply,
    in_the_handler_claimed,
    after_the_handler_claimed,
    between_settle_and_its_reply,
}
LATE = {
    # The same, and the command arrives after all, when the dead child's hand-over is through.
    before_the_read: ONCE,
    between_read_and_adopt: ONCE,
    between_read_and_adopting_turn: ONCE,
    after_the_handler_adopted: Fate(2, 1, [1, 2], KILLED),
    after_the_handler_claimed: Fate(2, 1, [1, 2], KILLED),
}


def kill_child(scene: Scene, reached: Reached, worker: WorkerProcess) -> None:
    """The child alone; its supervisor hands over what it held."""
    scene.kill(reached.pid)


def kill_child_late(scene: Scene, reached: Reached, worker: WorkerProcess) -> None:
    """The child; what it has sent reaches the server long after."""
    scene.kill(reached.pid)
    scene.wait_for_hand_over(reached.pid)
    assert reached.hold is not None
    reached.hold.release(deliver=True)


def kill_worker(scene: Scene, reached: Reached, worker: WorkerProcess) -> None:
    """The whole worker; another one takes over after its lease."""
    scene.kill_worker(worker)


def kill_server(scene: Scene, reached: Reached, worker: WorkerProcess) -> None:
    """The server, which comes back with its append-only file; child and worker live."""
    scene.kill_server(reached.hold)
    assert reached.pid in worker.live_pids()


def _cases() -> Iterator[Any]:
    """Every window with every kill. Where another window meets the same state, and takes a lease or a restart, the case
    waits for `make soak`."""
    soon = {kill_child: set(WINDOWS), kill_worker: WITH_WORKER, kill_server: WITH_SERVER}
    for window, fates in WINDOWS.items():
        for kill, fate in zip((kill_child, kill_worker, kill_server), fates, strict=True):
            marks = [] if window in soon[kill] else [pytest.mark.slow]
            yield pytest.param(window, kill, fate, id=f"{window.__name__}-{kill.__name__}", marks=marks)
    for window, fate in LATE.items():
        yield pytest.param(window, kill_child_late, fate, id=f"{window.__name__}-kill_child_late")


@pytest.mark.parametrize(("window", "kill", "expected"), list(_cases()))
def test_a_kill_in_a_window(
    scene: Scene,
    window: Callable[[Scene], Reached],
    kill: Callable[[Scene, Reached, WorkerProcess], None],
    expected: Fate,
) -> None:
    """The task ends, started and charged as the spec says; its sibling notices nothing; nothing is left in Redis."""
    queues = ["default", "other"] if "adopting_turn" in window.__name__ else ["default"]
    sibling = scene.until("sibling")
    if kill is kill_worker:
        scene.stage.worker(children=1)
        scene.stage.started("sibling")
        worker = scene.behind_gate(children=1, queues=queues)
    else:
        worker = scene.behind_gate(children=2, queues=queues)
        scene.stage.started("sibling")
    scene.warm()
    reached = window(scene)
    assert reached.pid in worker.live_pids()
    kill(scene, reached, worker)
    if reached.hold is not None:
        reached.hold.release(deliver=False)
    scene.go("sibling")
    scene.go("victim")
    assert scene.fate(reached.victim, "victim") == expected
    assert scene.fate(sibling, "sibling") == ONCE
    scene.check_nothing_left(*queues)
