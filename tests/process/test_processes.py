"""Forks, signals and descriptors of a worker: nothing is inherited, nothing piles up, nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.harness import Stage, WorkerProcess, family
from tests.servers import PrivateServer

ODD = "tests.process.oddities:app"


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def zombies(parent: int) -> int:
    """Ended children that a process has not reaped."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += int(fields[1]) == parent and fields[0] == "Z"
    return found


def replace_children(stage: Stage, server: PrivateServer, count: int) -> None:
    """Half of the run, a look, the other half, another look: each while both children wait and are connected."""
    worker = stage.worker(children=2)
    seen: list[tuple[int, int, int]] = []
    with server.client() as client:
        for _ in range(3):
            handles = [item.handle for item in stage.app.enqueue_many("pid", [{} for _ in range(count // 2)])]
            for handle in handles:
                assert stage.ended(handle, 60).attempt == 1
            stage.wait_until(lambda: len(worker.live_pids()) == 2, 10, "two children")
            stage.wait_until(lambda: zombies(worker.pid) == 0, 5, "no zombies")
            stage.wait_until_waiting(2)
            seen.append((descriptors(worker.pid), descriptors(worker.template_pids()[0]), len(client.client_list())))
    assert len(worker.ready_pids()) > count
    for before, after in zip(seen[1], seen[2], strict=True):
        assert after <= before + 2, seen


def test_descriptors_and_connections_stay_flat(open_stage: Callable[..., Stage], clean_server: PrivateServer) -> None:
    """A child for each task: supervisor, template and server see none of them pile up (S028, S055)."""
    replace_children(open_stage(max_tasks_per_child=1), clean_server, 100)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_over_a_thousand_children_too(open_stage: Callable[..., Stage], clean_server: PrivateServer) -> None:
    """The same for long."""
    replace_children(open_stage(max_tasks_per_child=1), clean_server, 1000)


@pytest.mark.parametrize("kind", ["nested", "async_nested"])
def test_a_client_used_before_the_fork_hangs_no_child(stage: Stage, kind: str) -> None:
    """The template has connections from the app's import; children share none of them (S042, S045)."""
    worker = stage.worker(app="tests.process.app_that_enqueues:app", children=4)
    template = worker.template_pids()[0]
    stage.started(f"import-{template}")
    handles = [stage.app.enqueue(kind, {"name": f"n{i}", "looks": 20}) for i in range(40)]
    others = [stage.ended(handle, 20).result for handle in handles]
    assert len(set(others)) == 40
    for i in range(40):
        stage.started(f"n{i}-sub")
    assert len(stage.effects("start")) == 81
    assert all(stage.ended(handle).attempt == 1 for handle in handles)


def test_zombies_of_handlers_are_reaped(stage: Stage) -> None:
    """Double-forked processes that end become the supervisor's, which nobody else can reap (S048)."""
    worker = stage.worker(app=ODD, children=2)
    for i in range(10):
        handle = stage.app.enqueue("daemons", {"name": f"z{i}", "how": "zombies"})
        assert stage.ended(handle, 20).status == "succeeded"
    stage.wait_until(lambda: zombies(worker.pid) == 0, 5, "no zombies")
    assert all(zombies(pid) == 0 for pid in worker.live_pids())


def test_zombies_that_came_while_a_child_was_starting_are_reaped_too(stage: Stage) -> None:
    """Its pid is not known yet, so that nobody is reaped; when it has said hello they must not be forgotten."""
    worker = stage.worker(app=ODD, children=2)
    stage.wait_until(lambda: len(worker.live_pids()) == 2, 10, "both children")
    template = worker.template_pids()[0]
    os.kill(template, signal.SIGSTOP)
    try:
        os.kill(worker.live_pids()[0], signal.SIGKILL)
        handle = stage.app.enqueue("daemons", {"name": "z", "how": "zombies"})
        assert stage.ended(handle, 20).status == "succeeded"
        stage.wait_until(lambda: zombies(worker.pid) > 0, 5, "zombies")
    finally:
        os.kill(template, signal.SIGCONT)
    stage.wait_until(lambda: zombies(worker.pid) == 0, 10, "no zombies")


def test_as_process_1_it_reaps_and_stops_warmly(stage: Stage) -> None:
    """In a PID namespace of its own, as in a container (S048)."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("no PID namespaces here")
    with stage.command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", app=ODD) as outer:
        for i in range(5):
            handle = stage.app.enqueue("daemons", {"name": f"z{i}", "how": "zombies"})
            assert stage.ended(handle, 20).status == "succeeded"
        inner = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        stage.wait_until(lambda: zombies(inner) == 0, 5, "no zombies")
        last = stage.app.enqueue("sleep", {"name": "last", "seconds": 1})
        stage.started("last")
        os.kill(inner, signal.SIGTERM)
        assert outer.wait(10) == 0
        assert (last.task().status, last.task().attempt) == ("succeeded", 1)


def test_a_reader_of_its_output_that_goes_away(stage: Stage) -> None:
    """The log's pipe breaks: lines are lost, tasks are not."""
    with stage.command(app=ODD, output=subprocess.PIPE) as process:
        assert stage.ended(stage.app.enqueue("noop")).status == "succeeded"
        assert process.stdout is not None
        process.stdout.close()
        for i in range(3):
            stage.app.enqueue("fail", {"name": f"f{i}"}, max_attempts=2)
        os.kill(stage.app.enqueue("pid").result(timeout=10), signal.SIGKILL)
        for _ in range(20):
            assert stage.ended(stage.app.enqueue("noop")).status == "succeeded"
        stage.wait_until(stage.empty, 10, "an empty queue")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("front", "told"),
    [((), os.SCHED_BATCH), (("chrt", "--idle", "0"), os.SCHED_IDLE)],
    ids=["as usual", "chosen"],
)
def test_a_child_gives_way_to_the_server(stage: Stage, front: tuple[str, ...], told: int) -> None:
    """It is scheduled as batch work while it works, unless the operator has chosen something else."""
    waiting = os.SCHED_OTHER if told == os.SCHED_BATCH else told
    with stage.command(*front):
        child = stage.app.enqueue("pid").result(timeout=20)
        for _ in range(3):
            stage.wait_until(lambda: os.sched_getscheduler(child) == waiting, 5, "a child that waits as usual")
            assert stage.app.enqueue("scheduling").result(timeout=20) == told


@pytest.mark.parametrize("moment", [0.3, 1.0])
def test_a_supervisor_killed_while_it_starts_leaves_nothing(stage: Stage, moment: float) -> None:
    """Template and half-born children end by themselves, also one that is born at this very moment.

    A template that has just been started learns of it behind its imports: seconds for a traced one on a busy machine.
    """
    worker = WorkerProcess(stage.environment, stage.directory, children=4)
    stage.workers.append(worker)
    time.sleep(moment)
    os.kill(worker.pid, signal.SIGKILL)
    worker.process.wait()
    stage.wait_until(lambda: not family(str(stage.effects_path)), 8, "nothing left")


def test_signals_in_a_burst(stage: Stage) -> None:
    """Many at once: one stop, nothing lost."""
    worker = stage.worker()
    task = stage.app.enqueue("sleep", {"name": "t", "seconds": 60})
    stage.started("t")
    for _ in range(20):
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
    assert worker.wait(5) in (130, 143), worker.log
    assert (task.task().status, task.task().released) == ("queued", 1)
