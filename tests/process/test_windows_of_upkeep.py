"""The windows of what the supervisor does in Redis: hand-over, hand-back, reaping, promotion, killed in the middle.

Each is one script call or several; the kill comes between two of them, or between a call and its reply, with the call
applied and not applied. Either the supervisor dies, with its whole worker, or the server.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.process.gate import Command, Hold
from tests.process.harness import WorkerProcess
from tests.process.scene import KILLED, LOST, ONCE, Fate, Scene

SLOW = pytest.mark.slow  # another case meets the same state in Redis: it waits for `make soak`


def hands_over(command: Command) -> bool:
    """Whether `shelve` is called for what a dead child held."""
    return command.argument(5) == b"hand_over"


def hands_back(command: Command) -> bool:
    """Whether `shelve` is called for revoked claims."""
    return command.argument(5) == b"hand_back"


def reaps(command: Command) -> bool:
    """Whether `shelve` is called for a dead worker."""
    return command.argument(5) == b"reap"


def start(scene: Scene, whom: str, **options: Any) -> tuple[WorkerProcess, Any]:
    """The worker in question, with one free child, and a sibling task that runs where the kill does not reach it."""
    sibling = scene.until("sibling")
    if whom == "supervisor":
        scene.stage.worker(children=1, queues=options.get("queues"))
        scene.stage.started("sibling")
        return scene.behind_gate(children=1, **options), sibling
    worker = scene.behind_gate(children=2, **options)
    scene.stage.started("sibling")
    return worker, sibling


def kill(scene: Scene, whom: str, worker: WorkerProcess, hold: Hold) -> None:
    """Kill it in the window that it is in."""
    if whom == "supervisor":
        assert hold.wait() == worker.pid
        scene.kill_worker(worker)
    else:
        scene.kill_server(hold)
        assert worker.process.poll() is None
    hold.release(deliver=False)


# --- hand-over ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whom", "applied"),
    [
        ("supervisor", False),
        pytest.param("supervisor", True, marks=SLOW),
        pytest.param("server", False, marks=SLOW),
        ("server", True),
    ],
)
def test_a_kill_in_the_middle_of_a_hand_over(scene: Scene, whom: str, applied: bool) -> None:
    """The dead child's task starts again, charged once, with the cause that was noted first."""
    worker, sibling = start(scene, whom)
    scene.until("busy")
    scene.stage.started("busy")
    victim = scene.until("victim")
    scene.go("busy")
    pid = scene.stage.started("victim").pid
    hold = scene.gate.hold("shelve", when=hands_over, applied=applied)
    if whom == "supervisor":
        scene.kill_without_heir(worker, pid)
    else:
        scene.kill(pid)
    hold.wait()
    assert (scene.holder(victim) != scene.consumer(pid)) is applied
    kill(scene, whom, worker, hold)
    scene.go("sibling")
    scene.go("victim")
    cause = KILLED if applied or whom == "server" else LOST
    assert scene.fate(victim, "victim") == Fate(2, 0, [1, 2], cause)
    assert scene.fate(sibling, "sibling") == ONCE
    scene.check_nothing_left()


@pytest.mark.parametrize("whom", ["supervisor", pytest.param("server", marks=SLOW)])
def test_a_kill_between_the_hand_overs_of_two_queues(scene: Scene, whom: str) -> None:
    """One queue's part of a dead child's work is handed over, the other's is not; both tasks start again, once each."""
    queues = ["default", "other"]
    worker, sibling = start(scene, whom, queues=queues)
    victims = [scene.stage.app.enqueue("async_until", {"name": f"victim_{queue}"}, queue=queue) for queue in queues]
    (pid,) = {scene.stage.started(f"victim_{queue}").pid for queue in queues}
    hold = scene.gate.hold("shelve", when=hands_over, skip=1)
    if whom == "supervisor":
        scene.kill_without_heir(worker, pid)
    else:
        scene.kill(pid)
    hold.wait()
    assert scene.holder(victims[1]) not in ("", "shelf")
    assert len(scene.live(victims[0]).split("m;")) == 2  # moved
    kill(scene, whom, worker, hold)
    for name in ("sibling", "victim_default", "victim_other"):
        scene.go(name)
    assert scene.fate(victims[0], "victim_default") == Fate(2, 0, [1, 2], KILLED)
    assert scene.fate(victims[1], "victim_other") == Fate(2, 0, [1, 2], KILLED if whom == "server" else LOST)
    assert scene.fate(sibling, "sibling") == ONCE
    scene.check_nothing_left(*queues)


# --- hand-back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whom", "applied"),
    [
        ("child", False),
        ("child", True),
        ("supervisor", False),
        pytest.param("supervisor", True, marks=SLOW),
        pytest.param("server", False, marks=SLOW),
        pytest.param("server", True, marks=SLOW),
    ],
)
def test_a_kill_in_the_middle_of_a_hand_back(scene: Scene, whom: str, applied: bool) -> None:
    """A busy child's other claims are revoked in its slot and not yet, or already, queued again: none is charged."""
    worker, sibling = start(scene, whom, overrides={"claim_budget_s": 60.0})
    scene.until("busy")
    scene.stage.started("busy")
    names = [f"behind{number}" for number in range(3)]  # a turn claims at most four times what the last one brought
    for name in names:
        scene.go(name)
    victim, *behind = [
        item.handle for item in scene.stage.app.enqueue_many("until", [{"name": name} for name in ["victim", *names]])
    ]
    hold = scene.gate.hold("shelve", when=hands_back, applied=applied)
    scene.go("busy")
    pid = scene.stage.started("victim").pid
    hold.wait()
    assert {scene.live(handle)[0] for handle in behind} == {"q" if applied else "r"}
    if whom == "child":
        scene.kill(pid)
        hold.release(deliver=not applied)
    else:
        kill(scene, whom, worker, hold)
    scene.go("sibling")
    scene.go("victim")
    fates = {name: scene.fate(handle, name) for name, handle in zip(names, behind, strict=True)}
    if whom == "supervisor":
        # What a dead worker held alone is charged. What it held in a batch cannot have started all at once: uncharged.
        assert scene.fate(victim, "victim") == (Fate(2, 0, [1, 2], LOST) if applied else Fate(2, 1, [1, 2], LOST))
        assert fates == dict.fromkeys(names, ONCE if applied else Fate(2, 1, [2], LOST))
    else:
        assert scene.fate(victim, "victim") == (Fate(2, 0, [1, 2], KILLED) if whom == "child" else ONCE)
        assert fates == dict.fromkeys(names, ONCE)
    assert scene.fate(sibling, "sibling") == ONCE
    scene.check_nothing_left()


# --- what the leader does ----------------------------------------------------------------------------------------


def lead(scene: Scene) -> WorkerProcess:
    """A worker behind the gate that leads, and has no part in the queue `default`."""
    leader = scene.behind_gate(children=1, queues=["other"])
    scene.wait_until(lambda: "leads" in leader.log, 5, "a leader")
    return leader


def every(moments: Iterable[str], *soon: tuple[str, str]) -> Iterator[Any]:
    """Each moment with each victim; all but `soon` wait for `make soak`."""
    for moment in moments:
        for whom in ("supervisor", "server"):
            yield pytest.param(moment, whom, marks=[] if (moment, whom) in soon else [SLOW], id=f"{moment}-{whom}")


REAPING = {
    # The command that is stopped, how many like it go through first, whether it is applied.
    "before_the_declaration": ("declare", 0, False),
    "after_the_declaration": ("declare", 0, True),
    "between_two_children": ("shelve", 1, False),
    "after_the_last_child": ("shelve", 1, True),
    "before_the_worker_is_forgotten": ("SREM", 0, False),
}


@pytest.mark.parametrize(
    ("moment", "whom"),
    list(every(REAPING, ("after_the_declaration", "supervisor"), ("between_two_children", "supervisor"))),
)
def test_a_kill_in_the_middle_of_reaping(scene: Scene, moment: str, whom: str) -> None:
    """The leader that takes over from a dead worker dies, or its server: each task starts once more."""
    name, skip, applied = REAPING[moment]
    leader = lead(scene)
    victims = [scene.until(f"victim{number}") for number in range(2)]
    dead = scene.stage.worker(children=2)
    for number in range(2):
        scene.stage.started(f"victim{number}")
    sibling = scene.until("sibling")
    scene.stage.worker(children=1)
    scene.stage.started("sibling")
    hold = scene.gate.hold(name, applied=applied, skip=skip, when=reaps if name == "shelve" else lambda command: True)
    scene.kill_worker(dead)
    hold.wait()
    broker = scene.stage.app.broker
    marks = [broker.command("GET", broker.keys.worker(worker)) for worker in broker.expired_workers()[0]]
    assert marks == [None if moment == "before_the_declaration" else b"dead"]
    moved = sum("m;" in scene.live(victim) for victim in victims)
    if moment != "before_the_worker_is_forgotten":  # its lease may have run out behind the reaper's look at the queue
        assert moved == {"between_two_children": 1, "after_the_last_child": 2}.get(moment, 0)
    kill(scene, whom, leader, hold)
    for go in ("sibling", "victim0", "victim1"):
        scene.go(go)
    for number, victim in enumerate(victims):
        assert scene.fate(victim, f"victim{number}") == Fate(2, 0, [1, 2], LOST)
    assert scene.fate(sibling, "sibling") == ONCE
    scene.check_nothing_left()


PROMOTING = {
    "between_look_and_move": ("due", 0, True),
    "before_the_move": ("promote", 0, False),
    "after_the_move": ("promote", 0, True),
    "between_two_batches": ("promote", 1, False),
}


@pytest.mark.parametrize(
    ("moment", "whom"),
    list(every(PROMOTING, ("after_the_move", "supervisor"), ("between_two_batches", "server"))),
)
def test_a_kill_in_the_middle_of_promotion(scene: Scene, moment: str, whom: str) -> None:
    """700 tasks fall due at once, a batch is 500, and one task waits for its retry: each starts once, as it should."""
    name, skip, applied = PROMOTING[moment]
    leader = lead(scene)
    scene.stage.worker(children=1)
    retried = scene.stage.app.enqueue("again_after", {"name": "retried", "seconds": 1.5})
    scene.wait_until(lambda: retried.status() == "retrying", 5, "a retry")
    due = retried.task().due_at
    assert due is not None
    items = scene.stage.app.enqueue_many("mark", ({"name": f"t{number}"} for number in range(700)), run_at=due)
    handles = [item.handle for item in items]

    assert time.time() < due.timestamp()
    hold = scene.gate.hold(name, applied=applied, skip=skip, when=lambda command: time.time() > due.timestamp())
    hold.wait()
    scheduled = scene.stage.app.broker.queue_counts("default").scheduled
    assert scheduled == {"after_the_move": 201, "between_two_batches": 201}.get(moment, 701)
    kill(scene, whom, leader, hold)
    assert scene.fate(retried, "retried") == Fate(2, 0, [1, 2], ("retry",))
    scene.check_nothing_left()
    assert {handle.task().attempt for handle in handles} == {1}
    starts = Counter(effect.name for effect in scene.stage.effects("start"))
    assert starts == {"retried": 2, **{f"t{number}": 1 for number in range(700)}}
