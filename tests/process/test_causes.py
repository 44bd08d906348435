"""Causes of death: told apart, kept with the attempt, charged to whoever was at work; the poison ends, nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.harness import Stage

APP = "tests.process.killers:app"


@pytest.fixture(scope="module")
def killed(lasting_stage: Stage) -> Stage:
    """A stage whose worker loses one child after the other."""
    lasting_stage.worker(app=APP, children=2)
    return lasting_stage


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("SIGKILL", "signal SIGKILL"),
        ("SIGHUP", "signal SIGHUP"),
        ("real-time 3", "signal 37"),
        ("null pointer", "signal SIGSEGV"),
        ("abort", "signal SIGABRT"),
        ("exit 0", "exit 0"),
        ("exit 255", "exit 255"),
    ],
)
def test_each_death_has_its_name(killed: Stage, how: str, cause: str) -> None:
    """A poison task has exactly max_attempts starts, each with its cause, and ends dead-lettered with it (S053)."""
    sibling = killed.app.enqueue("sleep", {"name": f"sibling-{how}".replace(" ", "-"), "seconds": 0.6})
    killed.started(f"sibling-{how}".replace(" ", "-"))
    for kind in ("end_process", "async_end_process"):
        name = f"{kind}-{how}".replace(" ", "-")
        task = killed.ended(killed.app.enqueue(kind, {"name": name, "how": how}, max_attempts=2))
        assert (task.status, task.cause, task.attempt) == ("dead_lettered", cause, 2)
        assert [(line.attempt, line.cause) for line in task.history] == [(1, cause), (2, cause)]
        assert [e.attempt for e in killed.effects("start", name)] == [1, 2]
    assert (killed.ended(sibling).status, killed.ended(sibling).attempt) == ("succeeded", 1)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGPIPE", "SIGCHLD"])
def test_signals_that_end_no_child(killed: Stage, how: str) -> None:
    """What a process group gets at a stop, and what a child hears its supervisor by, disturbs no handler."""
    handle = killed.app.enqueue("end_process", {"name": f"alive-{how}", "how": how}, max_attempts=1)
    task = killed.ended(handle)
    assert (task.status, task.attempt) == ("succeeded", 1)


def test_a_memory_limit_of_the_process_is_an_error(killed: Stage) -> None:
    """What Python can still report is no death."""
    task = killed.ended(killed.app.enqueue("end_process", {"name": "t", "how": "address space"}, max_attempts=1))
    assert (task.status, task.cause, task.error_class) == ("dead_lettered", "error", "MemoryError")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, where the machine lets a test make one."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        group = root / f"dtq-test-{os.getpid()}"
        try:
            group.mkdir()
            break
        except OSError:
            continue
    else:
        pytest.skip("this machine gives tests no control group")
    limit = next((group / name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists()), None)
    if limit is None:
        group.rmdir()
        pytest.skip("this machine's control groups do not limit memory")
    limit.write_text(str(200 * 1024 * 1024))
    yield group
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)


def test_the_kernel_killed_it_for_want_of_memory(stage: Stage, small_group: Path) -> None:
    """A kill by the kernel is told from one by somebody with a signal."""
    worker = stage.worker(app=APP, ready=False)
    (small_group / "cgroup.procs").write_text(str(worker.pid))
    stage.wait_until(lambda: len(worker.ready_pids()) == 2, 15, "children")
    task = stage.ended(stage.app.enqueue("hoard", {"megabytes": 400, "seconds": 20}, max_attempts=2), 30)
    assert (task.status, [line.cause for line in task.history]) == ("dead_lettered", ["out of memory"] * 2)
    task = stage.ended(stage.app.enqueue("end_process", {"name": "t", "how": "SIGKILL"}, max_attempts=1))
    assert task.cause == "signal SIGKILL"
    worker.close()


@pytest.mark.parametrize(
    ("ways", "causes"),
    [
        (["raise", "die"], ["error", "signal SIGKILL", "signal SIGKILL"]),
        (["die", "raise"], ["signal SIGKILL", "error", "error"]),
        (["die", "time"], ["signal SIGKILL", "timeout", "timeout"]),
        (["time", "die", "raise"], ["timeout", "signal SIGKILL", "error"]),
        (["retry", "die", "retry"], ["retry", "signal SIGKILL", "retry"]),
        (["die", "ok"], ["signal SIGKILL"]),
        (["raise", "die", "ok"], ["error", "signal SIGKILL"]),
    ],
)
def test_crashes_and_failures_share_one_budget(killed: Stage, ways: list[str], causes: list[str]) -> None:
    """The number of starts is max_attempts, in whatever order; the history has each with its cause (S097, S100)."""
    name = "-".join(ways)
    task = killed.ended(
        killed.app.enqueue("raise_or_die", {"name": name, "ways": ways}, max_attempts=3, timeout=0.3), 15
    )
    assert [line.cause for line in task.history] == causes
    starts = len(causes) + (ways[-1] == "ok")
    assert [e.attempt for e in killed.effects("start", name)] == list(range(1, starts + 1))
    assert task.status == ("succeeded" if ways[-1] == "ok" else "dead_lettered")
    assert (task.id in {letter.task_id for letter in killed.app.queue().dead_letters()}) == (ways[-1] != "ok")


def test_a_host_that_dies_with_a_batch_charges_nobody_who_has_not_started(open_stage: Callable[..., Stage]) -> None:
    """Tasks with a single attempt survive it: a batch of a dead worker comes back uncharged."""
    stage = open_stage(lease_s=2, renew_s=0.3, claim_budget_s=60)
    first = stage.worker(children=1)
    for handle in [stage.app.enqueue("mark", {"name": f"warm{i}"}) for i in range(50)]:
        stage.ended(handle)
    stage.app.enqueue("sleep", {"name": "busy", "seconds": 0.3})
    pid = stage.started("busy").pid
    first.signal(signal.SIGSTOP)  # else it gives back what waits behind a busy handler
    items = stage.app.enqueue_many(
        "sleep", [{"name": f"t{i}", "seconds": 1 if i == 0 else 0} for i in range(20)], max_attempts=1
    )
    handles = [item.handle for item in items]
    stage.started("t0")
    assert stage.app.broker.states("default", [handle.id for handle in handles]).count(b"3") > 2
    os.kill(first.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    stage.worker(children=1)
    tasks = [stage.ended(handle, 15) for handle in handles]
    assert {task.status for task in tasks} == {"succeeded"}
    assert {task.attempt - task.released for task in tasks} == {1}
    assert [len(stage.effects("start", f"t{i}")) for i in range(20)] == [2] + [1] * 19


def test_a_task_that_kills_its_worker_every_time_ends(open_stage: Callable[..., Stage]) -> None:
    """The cause is the lost lease. What a waiting child got unasked for is not charged: one start more at most."""
    stage = open_stage(lease_s=0.6, renew_s=0.1)
    poison = stage.app.enqueue("kill_worker", {"name": "poison"}, max_attempts=2)
    other = stage.app.enqueue("mark", {"name": "other"}, priority=1)
    for _ in range(4):
        worker = stage.worker(app=APP, children=1, ready=False)
        stage.wait_until(
            lambda worker=worker: worker.process.poll() is not None or poison.status().terminal, 10, "an end"
        )
        if poison.status().terminal:
            break
    task = stage.ended(poison)
    assert (task.status, task.cause) == ("dead_lettered", "lost lease")
    assert len(stage.effects("start", "poison")) - task.released == 2
    assert {line.cause for line in task.history} == {"lost lease"}
    assert stage.ended(other).status == "succeeded"


def test_evictions_are_free_however_many(open_stage: Callable[..., Stage]) -> None:
    """Stops that run out of patience cost a task with a single attempt nothing (S051)."""
    stage = open_stage(shutdown_grace_s=0.1, kill_grace_s=0.3)
    tasks = [
        stage.app.enqueue("sleep", {"name": "sync", "seconds": 60}, max_attempts=1),
        stage.app.enqueue("async_sleep", {"name": "async", "seconds": 60}, max_attempts=1),
        stage.app.enqueue("stubborn", {"name": "deaf"}, max_attempts=1),
    ]
    for attempt in range(1, 4):
        worker = stage.worker(children=3)
        for name in ("sync", "async", "deaf"):
            stage.started(name, attempt)
        worker.signal(signal.SIGTERM)
        assert worker.wait(5) == 6
    for handle in tasks:
        task = handle.task()
        assert task.released == 3
        assert [line.cause for line in task.history] == ["released"] * 3
    worker = stage.worker(children=3)
    for name in ("sync", "async", "deaf"):
        stage.started(name, 4)


def test_one_dead_letter_for_each_poison(open_stage: Callable[..., Stage]) -> None:
    """Workers are killed all the time meanwhile: no id stands twice among the dead, none is missing (S098)."""
    stage = open_stage(lease_s=0.8, renew_s=0.2)
    items = stage.app.enqueue_many(
        "end_process", [{"name": f"p{i}", "how": "SIGKILL"} for i in range(10)], max_attempts=2
    )
    handles = [item.handle for item in items]
    for _ in range(3):
        worker = stage.worker(app=APP, children=2)
        before = len(stage.effects("start"))
        stage.wait_until(lambda before=before: len(stage.effects("start")) > before + 2, 10, "some deaths")
        worker.signal(signal.SIGKILL)
        worker.wait()
    stage.worker(app=APP, children=2)
    for handle in handles:
        task = stage.ended(handle, 60)
        assert task.status == "dead_lettered"
        assert task.attempt - task.released == 2
    letters = [letter.task_id for letter in stage.app.queue().dead_letters()]
    assert sorted(letters) == sorted(handle.id for handle in handles)
    assert stage.app.broker.queue_counts("default").totals["dead_lettered"] == 10
