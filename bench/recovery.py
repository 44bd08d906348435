"""Recovery: how long until what a death or a busy child has held up runs again.

python bench/recovery.py --json

child_replaced_ms       SIGKILL of a child -> another one stands in its place (it has claimed and started a task)
dead_child_rerun_ms     SIGKILL of a child -> the task it was running starts again
after_lease_ms          a whole worker is killed, its lease runs out -> its task starts again on another one
hand_back_ms            a long handler starts -> the last task claimed behind it starts elsewhere; the supervisor
                        first watches the handler for 25 ms
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench` and, in children, `bench.workload`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import dtq
from bench import machine
from bench.board import Board
from bench.pool import Pool
from bench.report import show
from bench.servers import Server, open_server
from bench.workload import Workload
from dtq._core import Chunk, EnvelopeHead, new_ids
from dtq.clock import SYSTEM

LONG_S = 60.0
NAP_S = 0.3
BEHIND = 40
LEASE_S = 2.0


def main() -> int:
    """Run what the arguments say; 1 when a task was lost or ran oftener than it should."""
    options = _arguments()
    with open_server(options.server) as server:
        figures: dict[str, Any] = {
            "server": server.name,
            "server_version": server.version,
            "machine": machine.describe(server.version),
            "repeats": options.repeats,
        }
        problems: list[str] = []
        for measure in (dead_child, hand_back, dead_worker):
            samples: dict[str, list[float]] = {}
            for _ in range(options.repeats):
                server.clear()
                for name, value in measure(server, problems).items():
                    samples.setdefault(name, []).append(value)
            for name, values in samples.items():
                figures[name] = statistics.median(values)
                figures[f"{name.removesuffix('_ms')}_max_ms"] = max(values)
        figures |= {"lease_s": LEASE_S, "correct": not problems, "problems": problems}
    show(figures, as_json=options.json)
    return 0 if figures["correct"] else 1


def dead_child(server: Server, problems: list[str]) -> dict[str, float]:
    """Both children run a long task; one is killed. Its successor shows itself by starting a third task."""
    with Board.create(4) as board, Pool(server, 2, board=board.path) as pool, _workload(server).app as app:
        pool.wait_until_up()
        for row in range(2):
            app.enqueue("nap", {"i": row, "seconds": LONG_S})
            board.wait(row)
        before = set(pool.child_pids())
        victim = board.read(0).pid
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not (new := set(pool.child_pids()) - before) and time.monotonic() < deadline:
            time.sleep(0.0005)
        replaced_ms = (time.monotonic_ns() - killed) / 1e6
        again = board.wait(0, runs=2)
        if not new or again.pid not in new:
            problems.append("the task of the killed child did not start in its successor")
        if board.read(1).runs != 1:
            problems.append("the other child's task ran again")
        pool.kill()
    return {"child_replaced_ms": replaced_ms, "dead_child_rerun_ms": (again.started_ns - killed) / 1e6}


def hand_back(server: Server, problems: list[str]) -> dict[str, float]:
    """One chunk of a long task and many short ones: those claimed behind the long one must run in the other child."""
    with Board.create(BEHIND + 1) as board, Pool(server, 2, board=board.path) as pool, _workload(server).app as app:
        pool.wait_until_up()
        for row in range(1, BEHIND + 1):  # quick tasks teach the children to claim many at once
            app.enqueue("stamp", {"i": row})
        for row in range(1, BEHIND + 1):
            board.wait(row)
        time.sleep(0.05)
        _enqueue_behind(app)
        starts = [board.wait(row, runs=1 if row == 0 else 2).started_ns for row in range(BEHIND + 1)]
        problems += [
            f"task {row} ran {board.read(row).runs} times" for row in range(1, BEHIND + 1) if board.read(row).runs != 2
        ]
    return {"hand_back_ms": (max(starts[1:]) - starts[0]) / 1e6}


def dead_worker(server: Server, problems: list[str]) -> dict[str, float]:
    """Two workers; the one that runs a long task is killed whole, and the other one takes over."""
    environment = {"DTQ_LEASE_S": str(LEASE_S), "DTQ_RENEW_S": "0.4"}
    with (
        Board.create(1) as board,
        Pool(server, 1, board=board.path, environment=environment) as survivor,
        _workload(server).app as app,
    ):
        survivor.wait_until_up()
        time.sleep(LEASE_S)  # the leader declares nobody dead before it has been steady for two renewals
        with Pool(server, 1, board=board.path, environment=environment) as victim:
            victim.wait_until_up()
            while True:
                runs = board.read(0).runs
                app.enqueue("nap", {"i": 0, "seconds": LONG_S if runs else 0.0})
                if board.wait(0, runs=runs + 1).pid in victim.child_pids() and runs:
                    break
            pid = victim.pid
            victim.kill()
            lease_ms = next(worker.expires_ms for worker in app.broker.workers() if worker.facts["pid"] == pid)
            expires = time.monotonic_ns() + lease_ms * 1_000_000
        again = board.wait(0, runs=runs + 2)
        survivor.kill()
    return {"after_lease_ms": (again.started_ns - expires) / 1e6}


def _enqueue_behind(app: dtq.App) -> None:
    """The long task and the short ones behind it, in one script call: no child can claim before all are there."""
    chunk, now_ms = Chunk(), SYSTEM.now_ms()
    ids = new_ids(now_ms, os.urandom(10 * (BEHIND + 1)), BEHIND + 1)
    for row, task_id in enumerate(ids):
        name, payload = ("stamp", {"i": row}) if row else ("nap", {"i": 0, "seconds": NAP_S})
        chunk.add_payload(task_id, EnvelopeHead(name, 5, 5, 60_000, 60_000), payload, 1000, b"5")
    answers = app.broker.enqueue("default", chunk)
    assert all(answer.code == "a" for answer in answers)


def _workload(server: Server) -> Workload:
    work = Workload(url=server.url, prefix=server.prefix)
    work.app.broker.prepare_queue("default")
    return work


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats", type=int, default=5, help="how often each is tried; medians and maxima are reported (5)"
    )
    parser.add_argument("--server", default="redis", help="`redis` (private, the default), `embedded`, or a URL")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
