"""A settle that travels while the next handler runs (docs/decisions/0010), and what may become of its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dtq
from dtq.keys import GROUP
from tests.client.proxy import Proxy
from tests.conftest import WaitUntil
from tests.process.harness import Stage
from tests.servers import PrivateServer

TASKS = 100
HANDLER_S = 0.004
"""Quick enough that settles travel while it runs, slow enough that each is settled by itself."""

Trouble = Callable[[PrivateServer, Proxy, dtq.App], None]


def cut(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    proxy.drop = 1


def kill_clients(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    with server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)


def flush_scripts(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    with server.client() as client:
        client.script_flush()


def freeze(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    server.freeze()
    threading.Event().wait(0.1)
    server.thaw()


def pause(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    app.queue("default").pause()
    app.queue("default").resume()


def lose_groups(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    with server.client() as client:
        client.xgroup_destroy(app.broker.keys.stream("default", 5), GROUP)


def refuse_writes(server: PrivateServer, proxy: Proxy, app: dtq.App) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
        threading.Event().wait(0.05)
        client.config_set("maxmemory", 0)


TROUBLES: dict[str, Trouble] = {
    "its reply is lost": cut,
    "its connection is cut": kill_clients,
    "its script is gone": flush_scripts,
    "the server stands still": freeze,
    "the queue is paused": pause,
    "the group is lost": lose_groups,
    "writes are refused": refuse_writes,
}


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        yield server


def left(app: dtq.App) -> int:
    """How many tasks have not ended: of those behind a pause, or a lost reply, none runs for a moment."""
    counts = app.broker.queue_counts("default")
    return counts.waiting + counts.running + counts.scheduled


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_task_runs_once_and_keeps_its_result(
    server: PrivateServer, tmp_path: Path, wait_until: WaitUntil, trouble: str
) -> None:
    """Outcomes stand until the answer is there: the child lives, so nothing is run again and nothing is lost."""
    assert server.socket_path is not None
    with Proxy(server.socket_path) as proxy:
        stage = Stage(proxy.url, tmp_path, wait_until)
        try:
            worker = stage.worker(children=1)
            with dtq.App(server.url) as app:
                handles = [app.enqueue("sleep", {"name": f"t{i}", "seconds": HANDLER_S}) for i in range(TASKS)]
                times = 0
                while app.broker.queue_counts("default").waiting and times < 12:
                    TROUBLES[trouble](server, proxy, app)
                    times += 1
                    threading.Event().wait(0.03)
                wait_until(lambda: left(app) == 0, 30, "all settled")
                assert times > 3
                for i, handle in enumerate(handles):
                    task = handle.task()
                    assert (task.status, task.attempt) == ("succeeded", 1), (i, task)
                    assert handle.result(timeout=0) == f"t{i}"
                starts = [effect.name for effect in stage.effects("start")]
                assert sorted(starts) == sorted(f"t{i}" for i in range(TASKS))
            assert "stale" not in worker.log
            assert "Traceback" not in worker.log
        finally:
            stage.close()
