"""Latency: from an enqueue call to the start of its handler on an idle worker, and of a turn that claims tasks.

    python bench/latency.py --json

Each is measured beside its floor in the same run, in turns. For the first a bare XADD that wakes a process in a
blocking XREADGROUP: through redis-py (floor), and over plain sockets with hiredis, about the least that Python can do
(wire floor). For the second a bare XREADGROUP with the same COUNT over a plain socket, and a bare EVALSHA: a script
that reads as many entries of the same size and gives them back, called as turns are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import bare, load, machine
from bench.board import Board
from bench.pool import Pool
from bench.report import percentile, show
from bench.servers import Server, open_server
from bench.turns import Consumer
from bench.workload import Workload

WARM_UP = 20
SIZES = (1, 10, 100)


def main() -> int:
    """Run what the arguments say; 1 when a task did not run exactly once."""
    options = _arguments()
    with open_server(options.server) as server:
        figures: dict[str, Any] = {
            "server": server.name,
            "server_version": server.version,
            "machine": machine.describe(server.version),
            "cpus": os.cpu_count(),
            "children": options.children,
            **start_latency(server, options.samples, options.children),
            **claim_latency(server, options.turns),
        }
    show(figures, as_json=options.json)
    return 0 if figures["correct"] else 1


def start_latency(server: Server, samples: int, children: int) -> dict[str, Any]:
    """Enqueue call to handler start on an idle worker, and the floor, in microseconds."""
    total = samples + WARM_UP
    with (
        Board.create(total) as board,
        Board.create(total) as floor_board,
        Board.create(total) as wire_board,
        Pool(server, children, board=board.path) as pool,
        _bare_listener(server, bare.listen_by_redis_py, server.bare_key, floor_board),
        _bare_listener(server, bare.listen, server.bare_key + ":wire", wire_board),
    ):
        work = Workload(url=server.url, prefix=server.prefix)
        wire = bare.Wire(server.url)
        pool.wait_until_up()
        latencies: list[float] = []
        floors: list[float] = []
        wire_floors: list[float] = []
        for number in range(total):
            sent = time.monotonic_ns()
            work.stamp.enqueue(i=number)
            latencies.append((board.wait(number).started_ns - sent) / 1000)
            _calm()
            data = bare.encoded_number(number)
            sent = time.monotonic_ns()
            server.client.xadd(server.bare_key, {"d": data})
            floors.append((floor_board.wait(number).started_ns - sent) / 1000)
            _calm()
            sent = time.monotonic_ns()
            wire.call("XADD", server.bare_key + ":wire", "*", "d", data)
            wire_floors.append((wire_board.wait(number).started_ns - sent) / 1000)
            _calm()
        problems = [f"task {n} ran {board.read(n).runs} times" for n in range(total) if board.read(n).runs != 1]
        wire.close()
        work.app.close()
    latencies, floors, wire_floors = latencies[WARM_UP:], floors[WARM_UP:], wire_floors[WARM_UP:]
    return {
        "samples": samples,
        **{f"p{p}_us": percentile(latencies, p) for p in (50, 95, 99)},
        **{f"floor_p{p}_us": percentile(floors, p) for p in (50, 95, 99)},
        **{f"wire_floor_p{p}_us": percentile(wire_floors, p) for p in (50, 99)},
        "p50_over_floor": percentile(latencies, 50) / percentile(floors, 50),
        "p50_over_wire_floor": percentile(latencies, 50) / percentile(wire_floors, 50),
        "correct": not problems,
        "problems": problems[:10],
    }


def claim_latency(server: Server, turns: int) -> dict[str, Any]:
    """A turn that claims 1, 10 or 100 tasks and settles none, on an idle server and on one that is half busy."""
    result: dict[str, Any] = {
        name: {}
        for name in (
            "claim_p50_us",
            "claim_p99_us",
            "claim_floor_p50_us",
            "claim_floor_p99_us",
            "claim_evalsha_p50_us",
            "claim_over_evalsha",
        )
    }
    for state in ("idle", "half_load"):
        server.clear()
        with load.half(server) if state == "half_load" else load.none() as measured_load:
            for size in SIZES:
                claims, floors, scripts = time_claims(server, size, turns)
                bare_us = percentile(scripts, 50)
                result["claim_evalsha_p50_us"].setdefault(state, {})[str(size)] = bare_us
                result["claim_over_evalsha"].setdefault(state, {})[str(size)] = percentile(claims, 50) / bare_us
                for percent in (50, 99):
                    result[f"claim_p{percent}_us"].setdefault(state, {})[str(size)] = percentile(claims, percent)
                    result[f"claim_floor_p{percent}_us"].setdefault(state, {})[str(size)] = percentile(floors, percent)
            if state == "half_load":
                result["claim_redis_busy"] = measured_load()
    return {"turns": turns, **result}


def time_claims(server: Server, size: int, turns: int) -> tuple[list[float], list[float], list[float]]:
    """Times of turns, of bare reads and of bare scripts, in microseconds, taken in turns."""
    consumer = Consumer(server, "claims")
    key = server.bare_key
    server.client.delete(key)
    server.client.xgroup_create(key, bare.GROUP, id="0", mkstream=True)
    wire = bare.Wire(server.url)
    claims: list[float] = []
    floors: list[float] = []
    scripts: list[float] = []
    bare_key = f"{key}:script"
    server.client.delete(bare_key)
    server.client.xgroup_create(bare_key, bare.GROUP, id="0", mkstream=True)
    for _ in range(turns + WARM_UP):
        consumer.enqueue(size)
        started = time.perf_counter_ns()
        count = consumer.claim(size)
        claims.append((time.perf_counter_ns() - started) / 1000)
        assert count == size, f"a turn claimed {count} of {size} tasks"
        consumer.settle()

        for number in range(size):
            wire.call("XADD", key, "*", "d", bare.encoded(number))
        started = time.perf_counter_ns()
        reply = wire.call("XREADGROUP", "GROUP", bare.GROUP, "me", "COUNT", str(size), "STREAMS", key, ">")
        floors.append((time.perf_counter_ns() - started) / 1000)
        entries = [entry for entry, _ in reply[0][1]]
        wire.call("XACK", key, bare.GROUP, *entries)
        wire.call("XDEL", key, *entries)

        consumer.fill_bare(bare_key, size)
        started = time.perf_counter_ns()
        bare_entries = consumer.claim_bare(bare_key, bare.GROUP, size)
        scripts.append((time.perf_counter_ns() - started) / 1000)
        consumer.end_bare(bare_key, bare.GROUP, bare_entries)
    wire.close()
    consumer.close()
    server.client.delete(bare_key)
    return claims[WARM_UP:], floors[WARM_UP:], scripts[WARM_UP:]


def _calm() -> None:
    """Long enough for the worker to settle and wait again; of random length, to meet no timer in step."""
    time.sleep(random.uniform(0.006, 0.014))


@contextmanager
def _bare_listener(server: Server, listen: Callable[[str, str, str], None], key: str, board: Board) -> Iterator[None]:
    """A process in a blocking XREADGROUP on a bare stream."""
    server.client.xgroup_create(key, bare.GROUP, id="0", mkstream=True)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=listen, args=(server.url, key, str(board.path)), daemon=True)
    process.start()
    try:
        yield
    finally:
        server.client.xadd(key, {"end": ""})
        process.join(10)
        process.kill()
        server.client.delete(key)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000, help="enqueues that are timed (1000)")
    parser.add_argument("--turns", type=int, default=1000, help="turns of each size that are timed (1000)")
    parser.add_argument("--children", type=int, default=2, help="children of the idle worker (2)")
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
