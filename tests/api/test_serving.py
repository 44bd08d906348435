"""The server as a process: where it listens, what it refuses, how it stops; and the app mounted in another one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from asyncio import to_thread
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

import dtq
from dtq.api import create_app
from dtq.api.serving import is_local, parse_bind, server_config
from tests.conftest import WaitUntil
from tests.servers import PrivateServer, free_port

SERVE = "import json, sys, dtq.api; dtq.api.serve(**json.loads(sys.argv[1]))"

TELL_FROZEN = """
import gc, threading, time
def tell():
    while not (count := gc.get_freeze_count()):
        time.sleep(0.01)
    print("frozen", count, flush=True)
threading.Thread(target=tell, daemon=True).start()
"""


@contextmanager
def process(arguments: str, code: str = SERVE, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-c", code, arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_collector_does_not_look_at_what_was_imported(clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    """It would stop all requests for 40 ms each time."""
    port = free_port()
    with process(
        f'{{"port": {port}}}', code=TELL_FROZEN + SERVE, DTQ_REDIS_URL=clean_server.url, DTQ_API_BIND="127.0.0.1:0"
    ) as server:
        wait_until(lambda: healthy(port))
        assert server.stdout is not None
        frozen = next(line for line in server.stdout if line.startswith(b"frozen "))
    assert int(frozen.split()[1]) > 10_000


def test_it_listens_on_this_machine_only_and_stops_in_good_order(
    clean_server: PrivateServer, wait_until: WaitUntil
) -> None:
    port = free_port()
    with process("{}", DTQ_REDIS_URL=clean_server.url, DTQ_API_BIND=f"127.0.0.1:{port}") as server:
        wait_until(lambda: healthy(port), 15)
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        addresses = {line[1].split(":")[0] for line in sockets if line[1].endswith(f":{port:04X}") and line[3] == "0A"}
        assert addresses == {"0100007F"}
        url = f"http://127.0.0.1:{port}/api/v1/tasks"
        task_id = httpx.post(url, json={"task_type": "noop"}).json()["task_id"]
        answers: list[int] = []

        def looks() -> int:
            with clean_server.client() as client:
                return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

        waiting = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{url}/{task_id}/result?wait=30", timeout=40).status_code)
        )
        waiting.start()
        with httpx.stream("GET", f"http://127.0.0.1:{port}/api/v1/events", timeout=20) as events:
            lines = events.iter_lines()
            next(lines)
            seen = looks()
            wait_until(lambda: looks() >= seen + 3)  # those of the request that waits
            started = time.monotonic()
            server.send_signal(signal.SIGTERM)
            assert any("EVENTS_END" in line for line in lines)
        waiting.join(5)
        server.wait(10)
        assert answers == [202]
        assert time.monotonic() - started < 5
        assert server.returncode in (0, -signal.SIGTERM)


def test_its_log_is_one_line_a_record_as_json(clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    port = free_port()
    environment = {"DTQ_REDIS_URL": clean_server.url, "DTQ_API_BIND": f"127.0.0.1:{port}", "DTQ_LOG_JSON": "1"}
    with process("{}", **environment) as server:
        wait_until(lambda: healthy(port), 15)
        server.terminate()
        said, _ = server.communicate(timeout=15)
    records = [json.loads(line) for line in said.splitlines()]
    assert {record["level"] for record in records} == {"INFO"}
    assert any(f":{port}" in record["message"] for record in records)


@pytest.mark.parametrize("name", ["uvicorn.error", "dtq.api", "dtq.dashboard", "nicegui", "asyncio"])
def test_whoever_logs_in_the_process_writes_one_line_and_no_text_of_an_exception(name: str) -> None:
    program = f"""
import logging.config
from dtq.api.serving import _LOGS
logging.config.dictConfig(_LOGS)
try:
    int(bytes.fromhex("5345435245540a").decode())
except ValueError as error:
    logging.getLogger({name!r}).exception(error)
"""
    environment = {**os.environ, "DTQ_LOG_JSON": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["message"] == "ValueError"
    assert "SECRET" not in line


@pytest.mark.parametrize(
    "arguments", ['{"host": "0.0.0.0"}', '{"host": "::"}', '{"host": "10.1.2.3", "port": 8000}', '{"host": "example"}']
)
def test_an_open_address_needs_a_key(arguments: str) -> None:
    with process(arguments, DTQ_REDIS_URL="redis://127.0.0.1:1/0") as server:
        said, _ = server.communicate(timeout=20)
    assert server.returncode != 0
    assert b"set DTQ_API_KEY (name:key), or say --insecure" in said


def test_with_a_key_or_at_ones_own_risk_an_open_address_is_taken() -> None:
    for settings, insecure in (({"api_key": "ops:key"}, False), ({}, True)):
        app = dtq.App("redis://127.0.0.1:1/0", **settings)
        assert server_config(app, host="0.0.0.0", port=0, insecure=insecure).host == "0.0.0.0"  # noqa: S104
    for none in (None, " "):
        app = dtq.App("redis://127.0.0.1:1/0", api_bind="0.0.0.0:80", api_key=none)
        with pytest.raises(dtq.InvalidSettings, match="insecure"):
            server_config(app, host=None, port=None, insecure=False)


def test_addresses() -> None:
    assert parse_bind("127.0.0.1:8000") == ("127.0.0.1", 8000)
    assert parse_bind("[::1]:80") == ("::1", 80)
    for wrong in ("8000", ":8000", "localhost:", "localhost:99999", "localhost:x"):
        with pytest.raises(dtq.InvalidSettings, match="DTQ_API_BIND"):
            parse_bind(wrong)
    assert [is_local(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")] == [True] * 4
    assert [is_local(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example", "")] == [False] * 5  # noqa: S104


def test_a_wrong_key_setting_stops_the_start() -> None:
    with process("{}", DTQ_API_KEY="no name:S3CRET") as server:
        said, _ = server.communicate(timeout=20)
    assert server.returncode != 0
    assert b"DTQ_API_KEY: part 1" in said
    assert b"S3CRET" not in said


def test_the_app_that_servers_find_by_name(clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "dtq.api:asgi", "--port", str(port)]
    environment = {**os.environ, "DTQ_REDIS_URL": clean_server.url}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: healthy(port), 15)
        assert httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    finally:
        server.kill()
        server.wait()


def test_mounted_in_another_app(clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    with dtq.App(clean_server.url, api_key="ops:key") as app:
        api = create_app(app, mounted=True)
        outer = FastAPI(lifespan=lambda _: api.router.lifespan_context(api))
        outer.mount("/queue", api)

        @outer.get("/threads")
        async def threads() -> str:
            return await to_thread(lambda: threading.current_thread().name)

        server = uvicorn.Server(uvicorn.Config(outer, port=0, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": "key"}) as client:
            answer = client.post("/queue/api/v1/tasks", json={"task_type": "noop"})
            assert answer.status_code == 202
            assert answer.headers["location"].startswith("/queue/api/v1/tasks/")
            assert client.get(answer.headers["location"]).json()["task_type"] == "noop"
            assert client.get("/queue/health", headers={"X-API-Key": ""}).status_code == 200
            assert client.get("/queue/ready").status_code == 200
            assert client.get("/queue/api/v1/tasks", headers={"X-API-Key": "wrong"}).status_code == 401
            assert client.get("/queue/docs").status_code == 200
            assert client.get("/health").status_code == 404
            assert "dtq" not in client.get("/threads").text, "they are of the outer application"
            assert client.post("/queue/api/v1/tasks", json={"task_type": ""}).status_code == 422
            with client.stream("GET", "/queue/api/v1/events") as events:
                assert events.status_code == 200
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()
        assert app.queue().counts().totals["rejected:invalid"] == 1, "what was not counted yet is counted at the end"


def test_an_address_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with process(f'{{"port": {port}}}', DTQ_REDIS_URL="redis://127.0.0.1:1/0") as server:
            said, _ = server.communicate(timeout=20)
    assert server.returncode == 1
    assert b"address already in use" in said
