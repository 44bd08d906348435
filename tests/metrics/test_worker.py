"""Real workers: what children tell, the port that serves it, and counters that no kill makes wrong."""

from __future__ import annotations

import http.client
import os
import random
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from dtq.history import UNKNOWN
from tests.metrics.test_render import Scrape, parsed, value
from tests.process.harness import Stage, WorkerProcess
from tests.servers import PrivateServer, free_port


def url_of(stage: Stage, worker: WorkerProcess) -> str:
    """Where its metrics are, as its log tells."""
    found = stage.wait_until(lambda: re.search(r"metrics: (http://\S+)", worker.log), 15, "the port is told")
    return str(found[1])


def scrape(url: str) -> Scrape:
    """What Prometheus would get."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return parsed(answer.read())


def attempts_told(stage: Stage) -> int:
    """Attempts of which children have told."""
    return sum(sum(timings.attempts.values()) for timings in stage.app.queue("default").timings().values())


def default(found: Scrape, name: str, **labels: str) -> float:
    return value(found, name, queue="default", **labels)


def test_a_scrape_of_a_worker_tells_what_all_did(stage: Stage) -> None:
    """Whichever worker is asked; the times by type, of sync and async handlers, and of what nobody can run."""
    workers = [stage.worker(children=1, metrics_port=0) for _ in range(2)]
    app = stage.app
    handles = [app.enqueue("noop", {"i": number}) for number in range(50)]
    handles += [app.enqueue("async_sleep", {"name": "a", "seconds": 0.1}), app.enqueue("second_time", {"name": "b"})]
    handles += [app.enqueue("nobody", {}), app.enqueue("fail", {"name": "c"}, max_attempts=2)]
    for handle in handles:
        stage.ended(handle)
    stage.wait_until(lambda: attempts_told(stage) == len(handles) + 2, 10, "the last times are told")
    first, second = (scrape(url_of(stage, worker)) for worker in workers)
    assert first == second
    assert default(first, "dtq_tasks_submitted_total") == len(handles)
    assert default(first, "dtq_tasks_started_total") == len(handles) + 2
    assert default(first, "dtq_tasks_retried_total") == 2
    assert default(first, "dtq_task_attempts_total", result="dead_lettered") == 2
    assert first["dtq_workers_active", frozenset()] == 2
    for name, count in {"noop": 50, "async_sleep": 1, "second_time": 2, "fail": 2}.items():
        assert default(first, "dtq_task_execution_seconds_count", task_type=name) == count, name
        assert default(first, "dtq_task_wait_seconds_count", task_type=name) == count, name
    assert 0.1 <= default(first, "dtq_task_execution_seconds_sum", task_type="async_sleep") < 1
    assert default(first, "dtq_task_duration_seconds_count", task_type="second_time") == 1
    assert default(first, "dtq_task_duration_seconds_sum", task_type="second_time") >= 0.15  # its backoff
    assert default(first, "dtq_task_outcomes_total", task_type=UNKNOWN, result="dead_lettered") == 1
    assert sum(minute.submitted for minute in app.queue("default").history()) == len(handles)


def test_counters_equal_recounts_after_kills(stage: Stage) -> None:
    """Children are killed all the time: no counter is off by one; of the times a second's worth may be missing."""
    worker = stage.worker(children=3, metrics_port=0)
    app, chance = stage.app, random.Random(7)
    handles = [app.enqueue("sleep", {"name": f"s{i}", "seconds": 0.02}, max_attempts=10) for i in range(150)]
    handles += [app.enqueue("fail", {"name": f"f{i}"}, max_attempts=2) for i in range(20)]
    seen = -1.0
    url = url_of(stage, worker)
    for _ in range(12):
        live = stage.wait_until(worker.live_pids, 10, "a child lives")
        os.kill(chance.choice(live), signal.SIGKILL)
        before, seen = seen, default(scrape(url), "dtq_tasks_started_total")
        assert seen >= before
    tasks = [stage.ended(handle, 60) for handle in handles]
    stage.wait_until(stage.empty, 10, "nothing is left")
    found = scrape(url)
    lines = [line for task in tasks for line in task.history]
    ended = {status: sum(task.status == status for task in tasks) for status in ("succeeded", "dead_lettered")}
    deaths = sum(line.cause.startswith("signal") for line in lines)
    assert sum(ended.values()) == len(handles) == default(found, "dtq_tasks_submitted_total")
    for status, count in ended.items():
        assert default(found, "dtq_tasks_completed_total", status=status) == count
    assert default(found, "dtq_task_attempts_total", result="lost") == deaths > 0
    failed = sum(line.cause == "error" for line in lines)
    assert default(found, "dtq_tasks_retried_total") + default(
        found, "dtq_task_attempts_total", result="dead_lettered"
    ) == failed  # fmt: skip
    attempts = sum(count for (name, _), count in found.items() if name == "dtq_task_attempts_total")
    back = app.broker.queue_counts("default").totals.get("handed_back", 0)
    assert default(found, "dtq_tasks_started_total") == attempts + back
    assert default(found, "dtq_worker_inflight") == default(found, "dtq_queue_depth") == 0
    told = sum(count for (name, _), count in found.items() if name == "dtq_task_execution_seconds_count")
    assert 0 < told <= attempts - deaths


def test_a_drain_loses_no_times(open_stage: Callable[..., Stage]) -> None:
    """What a child has gathered goes with its last turn, also when it is replaced after each task."""
    stage = open_stage(max_tasks_per_child=3)
    worker = stage.worker(children=2)
    for handle in [stage.app.enqueue("noop", {"i": number}) for number in range(20)]:
        stage.ended(handle)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert stage.app.queue("default").timings()["noop"].execution.count == 20


def test_a_worker_without_a_server_says_so(stage: Stage, clean_server: PrivateServer) -> None:
    """503 while Redis stands still, and all again afterwards; the worker itself lives on."""
    worker = stage.worker(children=1, metrics_port=0)
    url = url_of(stage, worker)
    assert scrape(url)
    clean_server.freeze()
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=20)  # noqa: S310
        assert refused.value.code == 503
        assert b"did not answer" in refused.value.read()
    finally:
        clean_server.thaw()
    stage.wait_until(lambda: _answers(url), 20, "it answers again")
    assert worker.process.poll() is None


def _answers(url: str) -> bool:
    try:
        return bool(scrape(url))
    except urllib.error.HTTPError:
        return False


def test_the_port_is_on_loopback_and_knows_one_page(stage: Stage) -> None:
    worker = stage.worker(children=1, metrics_port=0)
    url = url_of(stage, worker)
    host, port = re.fullmatch(r"http://(.*):(\d+)/metrics", url).groups()  # type: ignore[union-attr]
    assert host == "127.0.0.1"
    with open(f"/proc/{worker.pid}/net/tcp") as table:
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    assert [address.split(":")[0] for address in listening if int(address.split(":")[1], 16) == int(port)] == [
        "0100007F"
    ]
    for method, path, status in (("GET", "/", 404), ("GET", "/metrics?x=1", 200), ("POST", "/metrics", 501)):
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request(method, path)
        assert connection.getresponse().status == status, (method, path)
        connection.close()


def test_silent_clients_block_no_scrape(stage: Stage) -> None:
    """Those that connect and say nothing have few places; a scrape has its answer when their time is up."""
    worker = stage.worker(children=1, metrics_port=0)
    url = url_of(stage, worker)
    port = int(url.rpartition(":")[2].partition("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    assert scrape(url)
    silent += [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    ended = stage.ended(stage.app.enqueue("noop"))
    assert ended.status == "succeeded"

    def answers() -> Any:
        try:
            return scrape(url)
        except OSError:
            return None

    stage.wait_until(answers, 15, "a place is free again")
    for connection in silent:
        connection.close()


def test_damaged_times_stop_no_task(stage: Stage) -> None:
    """Somebody has made another key of it: it is told once, and the tasks go on."""
    broker = stage.app.broker
    broker.command("SET", broker.keys.timings("default"), "x")
    worker = stage.worker(children=1, log_level=20, ready=False)
    assert stage.ended(stage.app.enqueue("noop")).status == "succeeded"
    stage.wait_until(lambda: "timings were not kept: " in worker.log, 5, "it is told")
    for number in range(3):
        assert stage.ended(stage.app.enqueue("sleep", {"name": f"s{number}", "seconds": 0.5})).status == "succeeded"
    assert worker.log.count("timings were not kept: ") == 1


def test_metrics_by_ipv6(stage: Stage) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    worker = stage.worker(children=1, metrics_port=0, metrics_host="::1")
    url = url_of(stage, worker)
    assert url.startswith("http://[::1]:")
    assert scrape(url)


def test_a_port_that_is_taken_stops_the_start(stage: Stage) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        worker = stage.worker(children=1, metrics_port=port, ready=False)
        assert worker.wait() == 2
    assert f"metrics_port: cannot listen on 127.0.0.1:{port}: Address already in use" in worker.log


def test_telling_needs_no_connection_of_its_own(stage: Stage, clean_server: PrivateServer) -> None:
    """Also while the answer to a settle is still under way, which is what a busy child's times meet."""
    stage.app.broker.queues()
    with clean_server.client() as client:
        mine = {each["id"] for each in client.client_list()}

        def held() -> list[str]:
            """Without what prepared the queue, which closes when Python likes."""
            found = (each["cmd"] for each in client.client_list() if each["id"] not in mine)
            return sorted(command for command in found if command != "xgroup|create")

        worker = stage.worker(children=1)
        handles = [stage.app.enqueue("sleep", {"name": f"s{i}", "seconds": 0.01}) for i in range(250)]
        seen: list[list[str]] = []

        def done() -> bool:
            seen.append(held())
            return attempts_told(stage) == len(handles)

        stage.wait_until(done, 30, "all have ended and were told of")
    assert max(map(len, seen)) <= 2 + 2 * 1, (max(seen, key=len), worker.log)
