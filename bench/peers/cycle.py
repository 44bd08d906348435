"""One entrant's turn in a round: every work but the kill, each from an empty server and with workers of its own."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from bench.peers.entrant import Entrant, Incomplete, Session
from bench.peers.record import latencies
from bench.peers.server import Counters, Server
from bench.peers.workers import Workers
from bench.report import percentile

WARM_UP = 20
ENQUEUE_WARM_UP = 20
"""Calls that are not timed: the first ones import and connect."""
IDLE_S = 1.5
STAMPS_PER_S = 125.0
CAPACITY_RUNS = 3

Figures = dict[str, Any]


def capacity(bare: Entrant, server: Server) -> float:
    """Tasks of 5 ms CPU a second that this machine does at most beside a server: what bare processes do, in the best of
    some runs."""
    rates: list[float] = []
    for _ in range(CAPACITY_RUNS):
        server.clear()
        session = Session(bare, server, results=False)
        try:
            rates.append(burn(session)["burn_per_s"])
        finally:
            session.close()
    return max(rates)


def measure(entrant: Entrant, server: Server, loads_per_s: float) -> tuple[Figures, list[str]]:
    """All figures of one turn, and why some are missing.

    loads_per_s: so many tasks of 5 ms CPU keep the machine half busy.
    """
    figures: Figures = {}
    problems: list[str] = []
    works: tuple[tuple[str, bool, Callable[[Session], Figures]], ...] = (
        ("stamp", False, functools.partial(pick_up, loads_per_s=loads_per_s)),
        ("enqueue", False, enqueue),
        ("drain", False, drain),
        ("drain", True, drain_with_results),
        ("burn", False, burn),
        ("nap", False, nap),
    )
    for work, results, function in works:
        if not entrant.size(work):
            continue
        server.clear()
        session = Session(entrant, server, results)
        try:
            figures |= function(session)
        except (Incomplete, RuntimeError, OSError, TimeoutError) as error:
            problems.append(f"{work}: {error}")
        finally:
            session.close()
    figures["load_average"] = os.getloadavg()[0]
    return figures, problems


def pick_up(session: Session, loads_per_s: float) -> Figures:
    """Idle workers: what they cost, and how long a task waits; then the wait while the machine is half busy."""
    stamps, loads = session.entrant.size("stamp"), session.entrant.size("load")
    with session.workers() as workers:
        session.produce("noop", WARM_UP)
        session.wait_for_all(workers, "noop", WARM_UP, 40.0)
        time.sleep(0.5)
        before, cpu_s = session.server.counters(), workers.cpu_s()
        time.sleep(IDLE_S)
        after = session.server.counters()
        passed = after.moment - before.moment
        figures: Figures = {
            "idle_commands_per_s": sum(after.commands.values()) / passed - sum(before.commands.values()) / passed,
            "idle_cpu_percent": (workers.cpu_s() - cpu_s) / passed * 100,
            "idle_memory_mb": workers.memory_mb(),
            "processes": len(workers.pids()),
        }
        session.produce("stamp", stamps, rate=STAMPS_PER_S)
        session.wait_for_all(workers, "stamp", stamps)
        figures |= _percentiles("pick_up", latencies(session.records, "stamp"))
        session.produce("load", loads, rate=loads_per_s)
        session.wait_for_all(workers, "load", loads)
        return figures | _percentiles("load", latencies(session.records, "load"))


def enqueue(session: Session) -> Figures:
    """One call a task, awaited; and the entrant's own bulk call, where it has one. No workers run.

    One by one it is measured twice: with a CPU each for caller and server, and with one for both. They wait for each
    other by turns; on CPUs of their own each wait ends with a wake-up, which takes longer than the work. Where the
    kernel chooses, the same program enqueued 12,000 a second in one run and 48,000 in the next (asynq).
    """
    tasks, calls = session.entrant.size("enqueue"), session.entrant.size("enqueue") + ENQUEUE_WARM_UP
    cpus = sorted(os.sched_getaffinity(0))
    before = session.server.counters()
    with session.placed(producer=cpus[-1], server=cpus[0]):
        apart = session.produce("noop", calls, warm_up=ENQUEUE_WARM_UP)
    costs = _costs("enqueue", before, session.server.counters(), calls)
    with session.placed(producer=cpus[0], server=cpus[0]):
        together = session.produce("noop", calls, first=calls, warm_up=ENQUEUE_WARM_UP)
    figures = {
        "enqueue_per_s": tasks / apart["seconds"],
        "enqueue_together_per_s": tasks / together["seconds"],
        **costs,
    }
    if session.describe()["bulk"]:
        tasks = session.entrant.size("bulk")
        session.server.clear()
        before = session.server.counters()
        done = session.produce("noop", tasks, bulk=True)
        figures["bulk_per_s"] = tasks / done["seconds"]
        figures |= _costs("bulk", before, session.server.counters(), tasks)
    return figures


def drain(session: Session) -> Figures:
    """Workers start on a full queue of tasks that do nothing."""
    return _drain(session, "drain")


def drain_with_results(session: Session) -> Figures:
    """The same, and what the handlers return is kept."""
    return _drain(session, "drain_results")


def burn(session: Session) -> Figures:
    """5 ms of CPU time each."""
    return {"burn_per_s": _rate(session, "burn", session.entrant.size("burn"), naps=False)}


def nap(session: Session) -> Figures:
    """10 ms of waiting each, in async handlers where there are such."""
    return {"nap_per_s": _rate(session, "nap", session.entrant.size("nap"), naps=True)}


def _drain(session: Session, name: str) -> Figures:
    tasks = session.entrant.size("drain")
    empty = session.server.counters()
    session.fill("noop", tasks)
    full = session.server.counters()
    with session.workers() as workers:
        cpu_s = _cpu_at_first_end(session, workers)
        done = session.wait_for_all(workers, "noop", tasks)
        worker_us = (workers.cpu_s() - cpu_s) / tasks * 1e6
        time.sleep(0.5)  # what is still to be acknowledged
        emptied = session.server.counters()
        return {
            f"{name}_per_s": tasks / (done.last_end - done.first_start),
            f"{name}_seconds": done.last_end - done.first_start,
            f"{name}_twice": done.ran - tasks,
            f"{name}_worker_us": worker_us,
            f"{name}_memory_mb": workers.memory_mb(),
            f"{name}_queued_bytes": (full.memory - empty.memory) / tasks,
            f"{name}_left_bytes": (emptied.memory - empty.memory) / tasks,
            **_costs(name, full, emptied, tasks),
        }


def _rate(session: Session, kind: str, tasks: int, naps: bool) -> float:
    session.fill(kind, tasks)
    with session.workers(naps) as workers:
        done = session.wait_for_all(workers, kind, tasks)
    return tasks / (done.last_end - done.first_start)


def _cpu_at_first_end(session: Session, workers: Workers) -> float:
    """CPU time that the workers had used when the first task had ended: their start is not the tasks' cost."""
    deadline = time.monotonic() + 40
    while not any(session.records.glob("*.record")) and time.monotonic() < deadline:
        workers.check_alive()
        time.sleep(0.002)
    return workers.cpu_s()


def _costs(name: str, before: Counters, after: Counters, tasks: int) -> Figures:
    return {f"{name}_{what}": value for what, value in before.per_task(after, tasks).items()}


def _percentiles(name: str, seconds: list[float]) -> Figures:
    return {f"{name}_p{percent}_ms": percentile(seconds, percent) * 1e3 for percent in (50, 95, 99)}
