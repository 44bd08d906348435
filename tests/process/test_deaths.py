"""Sudden ends: a child, the template, the supervisor; and children that give way to fresh ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dtq.worker.channel import Channel
from tests.process.harness import Stage, alive, now
from tests.servers import PrivateServer


def test_a_killed_child_costs_its_task_one_attempt(stage: Stage) -> None:
    """kill -9: the running task starts elsewhere as attempt 2 at once, siblings run on, the child is replaced."""
    worker = stage.worker(children=3)
    sibling = stage.app.enqueue("sleep", {"name": "sibling", "seconds": 2})
    stage.started("sibling")
    victim = stage.app.enqueue("sleep", {"name": "victim", "seconds": 1})
    pid = stage.started("victim").pid
    at = now()
    os.kill(pid, signal.SIGKILL)
    again = stage.started("victim", 2)
    assert again.at - at < 0.3
    stage.wait_until(lambda: len(worker.live_pids()) == 3, 2, "three children")
    assert (stage.ended(sibling).attempt, stage.ended(victim).attempt) == (1, 2)
    assert victim.task().history[0].cause == "signal SIGKILL"


def test_unstarted_claims_of_a_killed_child_are_not_charged(open_stage: Callable[..., Stage]) -> None:
    """What a killed child had claimed and not begun runs elsewhere on its first attempt."""
    stage = open_stage(claim_budget_s=60)
    stage.worker(children=1)
    for handle in [stage.app.enqueue("mark", {"name": f"warm{i}"}) for i in range(50)]:
        stage.ended(handle)
    handles = stage.app.enqueue_many("sleep", [{"name": f"t{i}", "seconds": 3 if i == 0 else 0} for i in range(20)])
    tasks = [item.handle for item in handles]
    pid = stage.started("t0").pid
    at = now()
    os.kill(pid, signal.SIGKILL)
    assert [stage.ended(task).attempt for task in tasks] == [2] + [1] * 19
    assert stage.started("t0", 2).at - at < 0.5


def test_a_killer_is_dead_lettered_with_the_cause(stage: Stage) -> None:
    """A task that kills its child each time is started max_attempts times, then dead-lettered; others run on."""
    stage.worker()
    killer = stage.app.enqueue("die", {"name": "killer", "how": "3"}, max_attempts=3)
    others = [stage.app.enqueue("mark", {"name": f"o{i}"}) for i in range(100)]
    task = stage.ended(killer)
    assert (task.status, task.cause) == ("dead_lettered", "exit 3")
    assert [e.attempt for e in stage.effects("start", "killer")] == [1, 2, 3]
    for other in others:
        assert stage.ended(other).status == "succeeded"


def test_a_task_that_wrecks_its_child_after_its_end_is_no_loop(stage: Stage) -> None:
    """The child dies between the end of the handler and the settle, every time: charged from the second death on."""
    stage.worker()
    wrecker = stage.app.enqueue("wreck", {"name": "wrecker"}, max_attempts=3)
    task = stage.ended(wrecker)
    assert (task.status, task.cause) == ("dead_lettered", "exit 1")
    assert [e.attempt for e in stage.effects("start", "wrecker")] == [1, 2, 3, 4]
    assert task.released == 1


@pytest.mark.parametrize(("how", "code"), [("exit", 0), ("raise", 1), ("return", 0)])
@pytest.mark.parametrize("kind", ["fork", "async_fork"])
def test_a_forked_copy_of_the_child_ends_where_it_leaves_the_handler(
    stage: Stage, kind: str, how: str, code: int
) -> None:
    """It shares the child's connections and slots: it must neither settle nor claim anything."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue(kind, {"how": how}, timeout=5))
    assert (task.status, task.result, task.attempt) == ("succeeded", f"exit {code}", 1)
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"}), 1.0).status == "succeeded"


def test_children_do_not_outlive_the_supervisor(open_stage: Callable[..., Stage]) -> None:
    """kill -9 of the supervisor: everything is gone within a second, and another worker takes over after the lease."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    first = stage.worker()
    tasks = [stage.app.enqueue("sleep", {"name": f"t{i}", "seconds": 2}) for i in range(2)]
    for i in range(2):
        stage.started(f"t{i}")
    pids = [*first.ready_pids(), *first.template_pids()]
    os.kill(first.pid, signal.SIGKILL)
    stage.wait_until(lambda: not any(map(alive, pids)), 1, "children and template gone")
    stage.worker()
    for task in tasks:
        ended = stage.ended(task)
        assert (ended.status, ended.attempt) == ("succeeded", 2)
        assert "lost lease" in [line.cause for line in ended.history]
    assert len(stage.app.broker.workers()) == 1


def test_a_killed_template_is_replaced(stage: Stage) -> None:
    """kill -9 of the template: children go on, and the next child comes from a new template."""
    worker = stage.worker(children=2)
    task = stage.app.enqueue("sleep", {"name": "t", "seconds": 1.5})
    pid = stage.started("t").pid
    os.kill(worker.template_pids()[0], signal.SIGKILL)
    stage.wait_until(lambda: len(worker.template_pids()) == 2, 3, "second template")
    other = next(other for other in worker.live_pids() if other != pid)
    os.kill(other, signal.SIGKILL)
    stage.wait_until(lambda: len(worker.ready_pids()) == 3 and len(worker.live_pids()) == 2, 5, "replacement")
    assert stage.ended(task).attempt == 1


def test_nothing_starts_past_the_lease(open_stage: Callable[..., Stage]) -> None:
    """A frozen supervisor renews no lease: what its child has claimed does not start, even after a long settle."""
    stage = open_stage(lease_s=2, renew_s=0.3, claim_budget_s=60)
    worker = stage.worker(children=1)
    broker = stage.app.broker
    stage.app.enqueue("sleep", {"name": "busy", "seconds": 0.3})
    stage.started("busy")
    stage.app.enqueue("sleep", {"name": "first", "seconds": 1})
    second = stage.app.enqueue("mark", {"name": "second"})
    stage.started("first")
    worker.signal(signal.SIGSTOP)
    broker.command("CLIENT", "PAUSE", 2500)  # the settle of the first is answered after the lease
    stage.wait_until(lambda: stage.effects("end", "first"), 5, "the end of the first")
    broker.command("PING", timeout_s=10)
    assert second.status() == "running"
    time.sleep(0.3)
    assert not stage.effects("start", "second")
    worker.signal(signal.SIGCONT)
    stage.started("second")


def test_descendants_of_a_killed_child_are_gone(open_stage: Callable[..., Stage]) -> None:
    """A handler's own processes end with its child: at a time-out, and when the child is killed."""
    stage = open_stage(kill_grace_s=0.3)
    stage.worker(children=1)
    stage.app.enqueue("family", {"name": "limited"}, timeout=0.5, max_attempts=1)
    limited = stage.started("limited").pid
    stage.wait_until(lambda: len(session(limited)) == 3, 5, "child, shell and sleeper")
    stage.wait_until(lambda: not session(limited), 3, "nothing left after the time-out")
    stage.app.enqueue("family", {"name": "killed"}, max_attempts=1)
    killed = stage.started("killed").pid
    stage.wait_until(lambda: len(session(killed)) == 3, 5, "child, shell and sleeper")
    os.kill(killed, signal.SIGKILL)
    stage.wait_until(lambda: not session(killed), 3, "nothing left after the kill")


def session(leader: int) -> list[int]:
    """Live processes of a session."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def test_children_are_recycled(open_stage: Callable[..., Stage]) -> None:
    """max_tasks_per_child: fresh children all the time, and no task is lost or charged."""
    stage = open_stage(max_tasks_per_child=5)
    handles = [item.handle for item in stage.app.enqueue_many("pid", [{} for _ in range(100)])]
    worker = stage.worker(burst=True, ready=False)
    assert worker.wait(30) == 0, worker.log
    tasks = [handle.task() for handle in handles]
    assert {(task.status.value, task.attempt) for task in tasks} == {("succeeded", 1)}
    assert len({task.result for task in tasks}) >= 20


def test_a_child_above_its_memory_is_replaced(open_stage: Callable[..., Stage]) -> None:
    """Between the limit and a quarter more it ends its task first; far above it is killed, and the cause is kept."""
    stage = open_stage(max_memory_per_child_bytes=100 * 1024 * 1024)
    worker = stage.worker(children=1)
    mild = stage.app.enqueue("hoard", {"megabytes": 95, "seconds": 2.5})
    assert stage.ended(mild).status == "succeeded"
    stage.wait_until(lambda: len(worker.ready_pids()) == 2, 5, "replacement")
    greedy = stage.app.enqueue("hoard", {"megabytes": 300, "seconds": 20}, max_attempts=1)
    task = stage.ended(greedy)
    assert (task.status, task.cause) == ("dead_lettered", "out of memory")


def test_siblings_have_their_own_randomness(open_stage: Callable[..., Stage]) -> None:
    """Children are copies of one process, but not of its random state."""
    stage = open_stage(max_tasks_per_child=1)
    handles = [item.handle for item in stage.app.enqueue_many("randomness", [{} for _ in range(30)])]
    stage.worker(burst=True, ready=False).wait(30)
    assert len({handle.result(timeout=1) for handle in handles}) == 30


def test_a_busy_child_hands_its_claims_to_its_sibling(open_stage: Callable[..., Stage]) -> None:
    """Claims behind a handler that turns out slow go to whoever is free, within moments, uncharged."""
    stage = open_stage(claim_budget_s=60)
    stage.worker(children=2)
    for handle in [stage.app.enqueue("mark", {"name": f"warm{i}"}) for i in range(50)]:
        stage.ended(handle)
    items = stage.app.enqueue_many("sleep", [{"name": f"t{i}", "seconds": 2 if i == 0 else 0} for i in range(30)])
    handles = [item.handle for item in items]
    slow = stage.started("t0")
    for handle in handles[1:]:
        assert stage.ended(handle).attempt == 1
    assert max(e.at for e in stage.effects("end") if e.name != "t0") - slow.at < 1.0


def test_a_group_that_is_lost_before_the_hand_over_makes_nobody_start_an_attempt_again(
    open_stage: Callable[..., Stage], clean_server: PrivateServer
) -> None:
    """The hand-over finds nothing pending; what is found later under the dead child's name is judged by its slot."""
    stage = open_stage(lease_s=1, renew_s=0.2)
    stage.worker(children=1)
    task = stage.app.enqueue("sleep", {"name": "t", "seconds": 1})
    pid = stage.started("t").pid
    with clean_server.client() as client:
        client.xgroup_destroy("dtq:stream:{default}:p5", "workers")
    os.kill(pid, signal.SIGKILL)
    ended = stage.ended(task)
    assert [e.attempt for e in stage.effects("start", "t")] == [1, 2]
    assert (ended.attempt, ended.released, ended.history[0].cause) == (2, 0, "signal SIGKILL")


def test_a_template_whose_supervisor_is_gone_before_its_first_word_says_nothing() -> None:
    """It ends without a traceback."""
    ours, theirs = Channel.pair()
    descriptor = os.memfd_create("slots")
    ours.close()
    ended = subprocess.run(
        [sys.executable, "-m", "dtq.worker.template", str(theirs.fileno()), str(descriptor)],
        pass_fds=(theirs.fileno(), descriptor),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    theirs.close()
    os.close(descriptor)
    assert (ended.returncode, ended.stderr) == (1, "")
