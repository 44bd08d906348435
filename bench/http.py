"""The HTTP API under load: one server process, one client process, a private Redis; every answer is looked at.

python bench/http.py --json                              single submits a second, and tasks a second by NDJSON
python bench/http.py --singles 50000 --tasks 1000000     longer runs

The client is a bare one on sockets, in a process of its own, which takes as little of the machine as it can. Singles go
over `--connections` kept connections, each of which waits for its answer before the next request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import orjson

from bench import machine
from bench.report import percentile, show
from bench.servers import Server, open_server
from bench.workload import payload

START_TIMEOUT_S = 20.0
PIECE_TASKS = 500
SERVE = "import sys, dtq.api; dtq.api.serve(port=int(sys.argv[1]))"


def main() -> int:
    """Run what the arguments say; 1 when an answer was not what it should be."""
    options = _arguments()
    if options.client:
        print(orjson.dumps(_client(options)).decode())
        return 0
    with open_server(options.server) as server:
        figures: dict[str, Any] = {
            "server": server.name,
            "machine": machine.describe(server.version),
            "connections": options.connections,
            "singles": options.singles,
            "tasks": options.tasks,
            "repeats": options.repeats,
        }
        figures |= measure(server, options)
    show(figures, as_json=options.json)
    return 0 if figures["correct"] else 1


def measure(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """All figures; medians of the repeats."""
    import dtq

    singles: list[dict[str, Any]] = []
    streams: list[dict[str, Any]] = []
    lists: list[dict[str, Any]] = []
    problems: list[str] = []
    cpu: dict[str, list[float]] = {"singles": [], "stream": []}
    with dtq.App(server.url, prefix=server.prefix) as app, serving(server) as (port, process):
        for _ in range(options.repeats):
            for kind, found in (("singles", singles), ("stream", streams), ("list", lists)):
                before = _cpu_s(process.pid)
                count = options.singles if kind == "singles" else options.tasks
                command = [sys.executable, __file__, "--client", kind, "--port", str(port), "--singles", str(count)]
                ran = subprocess.run(
                    [*command, "--connections", str(options.connections)], capture_output=True, text=True, check=True
                )
                run: dict[str, Any] = orjson.loads(ran.stdout)
                waiting = app.queue().counts().waiting
                if not run["accepted"] == waiting == count:
                    problems.append(f"{kind}: {count} sent, {run['accepted']} accepted, {waiting} queued")
                found.append(run)
                if kind in cpu:
                    cpu[kind].append((_cpu_s(process.pid) - before) * 1e6 / count)
                server.clear()
        peak = _peak_mb(process.pid)
    return {
        "single_submits_per_s": statistics.median(run["per_s"] for run in singles),
        "single_p50_ms": statistics.median(run["p50_ms"] for run in singles),
        "single_p99_ms": statistics.median(run["p99_ms"] for run in singles),
        "ndjson_tasks_per_s": statistics.median(run["per_s"] for run in streams),
        "json_list_tasks_per_s": statistics.median(run["per_s"] for run in lists),
        "single_cpu_us": statistics.median(cpu["singles"]),
        "ndjson_cpu_us_per_task": statistics.median(cpu["stream"]),
        "server_peak_mb": peak,
        "correct": not problems,
        "problems": problems,
    }


@contextlib.contextmanager
def serving(server: Server) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """One API process on a free port."""
    import socket
    from urllib.request import urlopen  # only now: run as a script, this file would be its module `http`

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {**os.environ, "DTQ_REDIS_URL": server.url, "DTQ_PREFIX": server.prefix}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)], env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/ready", timeout=2):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the API did not start") from None
                time.sleep(0.02)
        yield port, process
    finally:
        process.terminate()
        process.wait(20)


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    """Largest memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# --- the client process ----------------------------------------------------------------------------------------------


def _client(options: argparse.Namespace) -> dict[str, Any]:
    import uvloop

    if options.client == "singles":
        return uvloop.run(_singles(options.port, options.singles, options.connections))
    return uvloop.run(_stream(options.port, options.singles, as_list=options.client == "list"))


class _Connection(asyncio.Protocol):
    """One kept connection: a request, its answer, the next request."""

    def __init__(self, requests: Iterator[bytes], times: list[float], ended: asyncio.Future[int]) -> None:
        self._requests = requests
        self._times = times
        self._ended = ended
        self._accepted = 0
        self._answer = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._answer.endswith(b"}"):
            return  # the body comes behind the headers
        self._times.append(time.perf_counter() - self._sent_at)
        self._accepted += self._answer.startswith(b"HTTP/1.1 202")
        self._answer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(self._accepted)

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)


async def _singles(port: int, count: int, connections: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    head = (
        b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    requests = [head % len(body) + body for body in (_body(index) for index in range(count))]
    remaining, times = iter(requests), list[float]()
    ended: list[asyncio.Future[int]] = [loop.create_future() for _ in range(connections)]
    started = time.perf_counter()
    for future in ended:
        await loop.create_connection(lambda future=future: _Connection(remaining, times, future), "127.0.0.1", port)
    accepted = sum([await future for future in ended])
    elapsed = time.perf_counter() - started
    return {
        "per_s": count / elapsed,
        "accepted": accepted,
        "p50_ms": percentile(times, 50) * 1000,
        "p99_ms": percentile(times, 99) * 1000,
    }


async def _stream(port: int, count: int, *, as_list: bool) -> dict[str, Any]:
    """One request; its answer is read while it is sent."""
    between = b"," if as_list else b"\n"
    pieces = [
        between.join(_body(index) for index in range(at, min(count, at + PIECE_TASKS)))
        for at in range(0, count, PIECE_TASKS)
    ]
    kind = b"application/json" if as_list else b"application/x-ndjson"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024 * 1024)
    writer.write(
        b"POST /api/v1/tasks/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" % kind
    )
    started = time.perf_counter()

    async def send() -> None:
        for place, piece in enumerate(pieces):
            body = (b"[" if as_list and place == 0 else b"" if place == 0 else between) + piece
            writer.write(b"%x\r\n%b\r\n" % (len(body), body))
            await writer.drain()
        end = b"]" if as_list else b"\n"
        writer.write(b"1\r\n%b\r\n0\r\n\r\n" % end)

    sending = asyncio.create_task(send())
    accepted, rest = 0, b""
    while data := await reader.read(262_144):
        data = rest + data
        accepted += data.count(b'"outcome":"accepted"')
        rest = data[data.rfind(b"\n") + 1 :]  # a line that is cut is counted when it is whole
        accepted -= rest.count(b'"outcome":"accepted"')
    await sending
    elapsed = time.perf_counter() - started
    writer.close()
    return {"per_s": count / elapsed, "accepted": accepted}


def _body(index: int) -> bytes:
    return orjson.dumps({"task_type": "noop", "payload": payload(index)})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--singles", type=int, default=20_000, help="single submits of one run (20 000)")
    parser.add_argument("--tasks", type=int, default=300_000, help="tasks of one stream (300 000)")
    parser.add_argument("--connections", type=int, default=32, help="kept connections of single submits (32)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind; medians are reported (3)")
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--client", choices=("singles", "stream", "list"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
