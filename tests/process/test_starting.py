"""Workers that cannot start say why in one line, with an exit code that tells the kinds apart; outages are survived."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import WaitUntil
from tests.process.harness import APP, Stage
from tests.servers import PrivateServer, free_port

UNUSABLE = {
    "no_such_module_at_all:app": "no_such_module_at_all",
    "tests.process.handlers:missing": "missing",
    "tests.process.handlers:sleep_": "sleep_",
    "os:path": "os",
    "tests.process.app_without_tasks:app": "no tasks",
    "tests.process.app_that_raises:app": "broken on purpose",
    "tests.process.app_that_exits:app": "app_that_exits",
    "tests.process.app_that_dies:app": "process",
    "tests.process.app_that_interrupts:app": "app_that_interrupts:app: importing it raised KeyboardInterrupt",
}
"""What cannot be used as an app, and a word of what is said of it."""


@pytest.mark.parametrize("preload", [True, False])
def test_an_app_that_cannot_be_used(stage: Stage, preload: bool) -> None:
    """Exit code 2 and one line that names the app."""
    workers = {app: stage.worker(app=app, ready=False, log_level=20, preload=preload) for app in UNUSABLE}
    for app, word in UNUSABLE.items():
        assert workers[app].wait(30) == 2, workers[app].log
        assert word in workers[app].log.splitlines()[-1]


def test_no_server(stage: Stage, tmp_path: Path) -> None:
    """Exit code 3, within a few seconds."""
    worker = stage.worker(ready=False, overrides={"redis_url": f"unix://{tmp_path}/nothing"})
    assert worker.wait(10) == 3, worker.log
    assert "No such file or directory; trying for 5 s\n" in worker.log
    assert "cannot be reached" in worker.log.splitlines()[-1]


def test_no_server_at_a_url(stage: Stage) -> None:
    """The last word names the place and what to do."""
    place = f"redis://127.0.0.1:{free_port()}"
    worker = stage.worker(ready=False, overrides={"redis_url": place})
    assert worker.wait(10) == 3, worker.log
    last = worker.log.splitlines()[-1]
    assert f"Redis at {place} cannot be reached: " in last
    assert last.endswith("Connection refused; start it, or correct DTQ_REDIS_URL")


def test_a_malformed_url(stage: Stage) -> None:
    """Exit code 2, at once, and nothing of it is shown: it may be a piece of a password."""
    worker = stage.worker(ready=False, overrides={"redis_url": "redis://u:p@S3CRET:/@host:1/0"})
    assert worker.wait(4) == 2, worker.log
    assert "redis_url (DTQ_REDIS_URL)" in worker.log.splitlines()[-1]
    assert "S3CRET" not in worker.log


def test_a_wrong_setting(stage: Stage) -> None:
    """Exit code 2, and the line names the setting."""
    worker = stage.worker(ready=False, overrides={"lease_s": -1.0})
    assert worker.wait() == 2
    assert "lease_s" in worker.log.splitlines()[-1]


def test_children_that_cannot_start(stage: Stage) -> None:
    """Without preloading an import may fail in the children alone: throttled, then exit code 1 with the reason."""
    stage.environment["HANDLERS_FAIL_IN_CHILD"] = "1"
    worker = stage.worker(children=4, ready=False, preload=False)
    assert worker.wait(40) == 1, worker.log
    assert "not in a child" in worker.log.splitlines()[-1]


def test_without_preloading(stage: Stage) -> None:
    """Each child imports the app by itself."""
    stage.worker(preload=False)
    assert stage.ended(stage.app.enqueue("noop", {"i": 4})).result == 4


def test_a_stop_while_starting(stage: Stage) -> None:
    """A signal that comes early is not lost."""
    worker = stage.worker(ready=False)
    stage.wait_until(worker.template_pids, 5, "template")
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == 0, worker.log


def test_redis_goes_away_and_comes_back(tmp_path: Path, wait_until: WaitUntil) -> None:
    """An outage in the middle of handlers: outcomes are kept and settled later, nothing runs twice."""
    with PrivateServer("redis", persistence=True) as server:
        stage = Stage(server.url, tmp_path, wait_until)
        try:
            worker = stage.worker()
            handles = [stage.app.enqueue("sleep", {"name": f"t{i}", "seconds": 1.5}) for i in range(2)]
            for i in range(2):
                stage.started(f"t{i}")
            server.stop()
            wait_until(lambda: len(stage.effects("end")) == 2, 5)
            server.start()
            for handle in handles:
                task = stage.ended(handle)
                assert (task.status, task.attempt) == ("succeeded", 1)
            more = stage.app.enqueue("mark", {"name": "more"})
            assert stage.ended(more).status == "succeeded"
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        finally:
            stage.close()


def test_a_server_that_refuses_scripts_at_the_start_is_waited_for(stage: Stage, clean_server: PrivateServer) -> None:
    """The first lease is tried for some seconds, as the server itself is."""
    with clean_server.client() as client:

        def refused() -> bool:
            return client.info("commandstats").get("cmdstat_evalsha", {}).get("rejected_calls", 0) >= 2

        client.config_resetstat()
        client.execute_command("ACL", "SETUSER", "default", "-@scripting")
        try:
            worker = stage.worker(ready=False)
            stage.wait_until(lambda: refused() or worker.process.poll() is not None, 10, "two refusals")
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert stage.ended(stage.app.enqueue("noop", {"i": 1})).result == 1


def test_the_group_is_lost(stage: Stage) -> None:
    """Consumer groups that vanish are made anew, and the worker goes on."""
    stage.worker()
    broker = stage.app.broker
    stage.ended(stage.app.enqueue("noop", {}))
    for band in range(10):
        broker.command("DEL", broker.keys.stream("default", band))
    handle = stage.app.enqueue("noop", {"i": 9})
    assert stage.ended(handle, 15).result == 9


def test_a_worker_declared_dead_starts_over(open_stage: Callable[..., Stage]) -> None:
    """Its renewal is refused: handlers are stopped, others take over, and it works on under a new id."""
    stage = open_stage(lease_s=2, renew_s=0.3)
    worker = stage.worker(children=1)
    task = stage.app.enqueue("sleep", {"name": "t", "seconds": 3})
    stage.started("t")
    (lease,) = stage.app.broker.workers()
    broker = stage.app.broker
    broker.command("SET", broker.keys.worker(lease.id), "dead", "EX", 3600)
    stage.started("t", 2)
    assert stage.ended(task).status == "succeeded"
    assert "starts in its place" in worker.log
    assert [found.id for found in broker.workers()] != [lease.id]


def test_a_worker_that_stood_still_declares_nobody_dead(open_stage: Callable[..., Stage]) -> None:
    """Supervisors are frozen beyond their leases (as by a suspended machine); the first to wake spares the others."""
    stage = open_stage(lease_s=2, renew_s=0.4)
    workers = [stage.worker(children=1) for _ in range(2)]
    tasks = [stage.app.enqueue("sleep", {"name": f"t{i}", "seconds": 5}) for i in range(2)]
    for i in range(2):
        stage.started(f"t{i}")
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    stage.wait_until(lambda: not stage.app.broker.workers(), 5, "leases that have run out")
    workers[0].signal(signal.SIGCONT)
    stage.wait_until(stage.app.broker.workers, 5, "the lease of the first")
    time.sleep(0.3)  # in which it leads and looks around
    workers[1].signal(signal.SIGCONT)
    for task in tasks:
        assert stage.ended(task).attempt == 1
    assert not any("starts in its place" in worker.log for worker in workers)


def test_the_app_under_test_is_named() -> None:
    """The constant points at something that exists."""
    assert (Path(__file__).parent / f"{APP.split(':')[0].rpartition('.')[2]}.py").exists()


def test_processes_tell_by_their_names_what_they_are(stage: Stage) -> None:
    """`ps -e -o pid,comm` tells a child from its template."""
    worker = stage.worker()
    names = [(Path(f"/proc/{pid}/comm").read_text().strip()) for pid in [*worker.ready_pids(), *worker.template_pids()]]
    assert set(names) == {"dtq-child", "dtq-template"}
