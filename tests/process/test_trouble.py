"""Workers in trouble: they wait, say so once, go on by themselves; outcomes are kept, nothing is lost or run twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtq.errors import BrokerUnavailable
from tests.client.proxy import Proxy
from tests.conftest import WaitUntil
from tests.process.harness import Stage, WorkerProcess, now
from tests.servers import PrivateServer
from tests.troubles import CONFIG, TROUBLES

SELDOM = {"MASTERDOWN", "NOPERM keys", "MISCONF"}
"""A worker meets them as it does READONLY, NOPERM and OOM; `tests/client/test_trouble.py` has them for producers."""


def _cases() -> Iterator[Any]:
    """Every trouble; the seldom ones wait for `make soak`."""
    for trouble in TROUBLES:
        yield pytest.param(trouble, marks=[pytest.mark.slow] if trouble in SELDOM else [])


@pytest.fixture(scope="module")
def troubled(
    troubled_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil
) -> Iterator[Stage]:
    """A stage for all the troubles of this file: one worker lives through them, one after the other."""
    stage = Stage(troubled_server.url, tmp_path_factory.mktemp("stage"), wait_until, enqueue_deadline_s=2)
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def worker(troubled: Stage) -> WorkerProcess:
    return troubled.worker(children=2)


@pytest.mark.parametrize("trouble", list(_cases()))
def test_a_worker_lives_through_it(
    troubled_server: PrivateServer, troubled: Stage, worker: WorkerProcess, trouble: str
) -> None:
    """What runs ends once and is settled afterwards; what waits runs once; no child dies; the log keeps quiet."""
    name = trouble.replace(" ", "-")
    broker = troubled.app.broker
    retried = troubled.app.enqueue("second_time", {"name": f"{name}-retried"})
    troubled.ended(retried)
    running = [troubled.app.enqueue("sleep", {"name": f"{name}-r{i}", "seconds": 0.7}) for i in range(2)]
    for i in range(2):
        troubled.started(f"{name}-r{i}")
    waiting = [item.handle for item in troubled.app.enqueue_many("mark", [{"name": f"{name}-w{i}"} for i in range(20)])]
    delayed = troubled.app.enqueue("mark", {"name": f"{name}-delayed"}, delay=1)
    lines, cpu = worker.log.count("\n"), cpu_s(worker)
    with TROUBLES[trouble](troubled_server):
        troubled.wait_until(lambda: len(troubled.effects("end")) >= 2 and ends(troubled, name) == 2, 5, "both ends")
        time.sleep(1.5)  # the trouble itself
    said = worker.log.count("\n") - lines
    assert said <= 3 * 10, worker.log
    assert cpu_s(worker) - cpu < 1.5, "it spins"
    for handle in [*running, *waiting, delayed]:
        task = troubled.ended(handle, 15)
        assert (task.status, task.attempt) == ("succeeded", 1)
    starts = [effect.name for effect in troubled.effects("start") if effect.name.startswith(f"{name}-")]
    assert len(starts) == 2 + 2 + 20 + 1
    assert len(set(starts)) == len(starts) - 1  # the one that is to run twice
    assert troubled.ended(troubled.app.enqueue("noop"), 3).status == "succeeded"
    assert worker.process.poll() is None
    assert "died" not in worker.log
    assert len(broker.workers()) == 1


def ends(stage: Stage, name: str) -> int:
    return sum(effect.name.startswith(f"{name}-r") for effect in stage.effects("end"))


def cpu_s(worker: WorkerProcess) -> float:
    """Processor time of the worker's processes."""
    total = 0
    for pid in [worker.pid, *worker.live_pids()]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100


def test_scripts_flushed_all_the_time(troubled_server: PrivateServer, troubled: Stage, worker: WorkerProcess) -> None:
    """NOSCRIPT is mended where it is met; no producer and no task notices (S034)."""
    stop = threading.Event()

    def flush() -> None:
        with troubled_server.client() as client:
            while not stop.wait(0.02):
                client.script_flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        handles = [troubled.app.enqueue("mark", {"name": f"flushed{i}"}) for i in range(200)]
        for handle in handles:
            assert troubled.ended(handle).attempt == 1
    finally:
        stop.set()
        flusher.join()
    assert len([effect for effect in troubled.effects("start") if effect.name.startswith("flushed")]) == 200
    assert worker.process.poll() is None


def test_groups_destroyed_all_the_time(troubled_server: PrivateServer, troubled: Stage, worker: WorkerProcess) -> None:
    """NOGROUP: the group is made anew, and what it had delivered is found again."""
    with troubled_server.client() as client:
        for i in range(10):
            handle = troubled.app.enqueue("mark", {"name": f"ungrouped{i}"})
            client.xgroup_destroy("dtq:stream:{default}:p5", "workers")
            assert troubled.ended(handle, 15).status == "succeeded"
    assert worker.process.poll() is None


def test_data_lost_altogether(troubled_server: PrivateServer, troubled: Stage, worker: WorkerProcess) -> None:
    """FLUSHALL under an idle worker and under a running task: it says so, and new work runs (S012, S110)."""
    task = troubled.app.enqueue("sleep", {"name": "flushed-away", "seconds": 1})
    troubled.started("flushed-away")
    with troubled_server.client() as client:
        client.flushall()
        handles = [troubled.app.enqueue("mark", {"name": f"after{i}"}) for i in range(10)]
        for handle in handles:
            assert troubled.ended(handle, 10).status == "succeeded"
        troubled.wait_until(lambda: troubled.effects("end", "flushed-away"), 5, "the end of the forgotten task")
        assert troubled.ended(troubled.app.enqueue("noop"), 3).status == "succeeded"
        assert not client.exists(troubled.app.broker.keys.task("default", task.id))
    assert worker.process.poll() is None


def test_a_server_that_is_loading(tmp_path: Path, wait_until: WaitUntil) -> None:
    """LOADING: producers are told in time, a worker waits, one that starts meanwhile waits too (spec §4)."""
    slow = {"key-load-delay": "20000", "loading-process-events-interval-bytes": "1024"}
    with PrivateServer(tcp=True, config=slow) as server:
        stage = Stage(server.url, tmp_path, wait_until, enqueue_deadline_s=0.5, lease_s=30)
        try:
            worker = stage.worker(children=1)
            handle = stage.app.enqueue("sleep", {"name": "t", "seconds": 1})
            stage.started("t")
            with server.client() as client:
                for i in range(150):
                    client.set(f"foreign:{i}", os.urandom(2000))
                client.save()
            server.kill()
            starting = threading.Thread(target=server.start)
            starting.start()
            told: set[str] = set()

            def loading() -> bool:
                with pytest.raises(BrokerUnavailable) as caught:
                    stage.app.enqueue("noop")
                told.add(str(caught.value))
                return any("loading" in text.lower() for text in told)

            wait_until(loading, 10, "LOADING")
            second = stage.worker(children=1, ready=False)
            starting.join()
            assert stage.ended(handle, 15).attempt == 1
            wait_until(lambda: len(second.ready_pids()) == 1, 10, "the second worker")
            assert worker.process.poll() is None
        finally:
            stage.close()


@pytest.mark.parametrize("count", [1, 7])
def test_replies_lost_to_a_worker(
    clean_server: PrivateServer, tmp_path: Path, wait_until: WaitUntil, count: int
) -> None:
    """Its commands were applied and it never heard: claims come back, settles are repeated, nothing runs twice."""
    assert clean_server.socket_path is not None
    with Proxy(clean_server.socket_path) as proxy:
        stage = Stage(proxy.url, tmp_path, wait_until)
        try:
            worker = stage.worker()
            for turn in range(4):
                handles = [stage.app.enqueue("mark", {"name": f"t{turn}-{i}"}) for i in range(20)]
                proxy.drop = count
                for handle in handles:
                    assert stage.ended(handle, 15).attempt == 1
            assert len(stage.effects("start")) == 80
            assert worker.process.poll() is None
        finally:
            stage.close()


@pytest.mark.parametrize("restarts", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_reconnected_worker_really_consumes(tmp_path: Path, wait_until: WaitUntil, restarts: int) -> None:
    """Restarts of the server, one alone and several at once, under an idle worker and a busy one (S022)."""
    with PrivateServer(persistence=True, config=CONFIG) as server:
        stage = Stage(server.url, tmp_path, wait_until)
        try:
            worker = stage.worker()
            for turn in range(3):
                if turn % 2:
                    stage.app.enqueue("sleep", {"name": f"busy{turn}", "seconds": 1})
                    stage.started(f"busy{turn}")
                for _ in range(restarts):
                    server.restart(crash=turn == 2)
                at = now()
                handles = [stage.app.enqueue("mark", {"name": f"t{turn}-{i}"}) for i in range(20)]
                for handle in handles:
                    assert stage.ended(handle, 10).attempt == 1
                assert now() - at < 10
                assert len(stage.app.broker.workers()) == 1
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        finally:
            stage.close()


def test_a_restart_without_data(tmp_path: Path, wait_until: WaitUntil) -> None:
    """What the server forgot is gone; the worker takes its lease again, makes groups and goes on."""
    with PrivateServer() as server:
        stage = Stage(server.url, tmp_path, wait_until, lease_s=2, renew_s=0.3)
        try:
            worker = stage.worker()
            stage.app.enqueue("sleep", {"name": "lost", "seconds": 1})
            stage.started("lost")
            server.restart(crash=True)
            handles = [stage.app.enqueue("mark", {"name": f"t{i}"}) for i in range(20)]
            for handle in handles:
                assert stage.ended(handle, 10).status == "succeeded"
            wait_until(lambda: len(stage.app.broker.workers()) == 1, 3, "the lease")
            assert worker.process.poll() is None
        finally:
            stage.close()
