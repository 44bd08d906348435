"""One backlog through a real worker pool: enqueue it, start the pool, watch Redis' counters, check every task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dtq
from bench.pool import Pool, machine_cpu_s
from bench.servers import Server
from dtq.keys import BANDS, GROUP, Keys

QUEUE = "default"
STALL_S = 60.0
OTHER_COUNTERS = (
    "running", "retried", "released", "absorbed", "strays", "failed", "dead_lettered", "cancelled", "expired",
)  # fmt: skip
EARLY_TASKS = 100_000
"""The children's memory is looked at after so many tasks, too."""
_SUCCEEDED, _UNKNOWN = ord("5"), ord("0")


@dataclass
class Drained:
    """What one run measured. Rates are tasks a second; CPU is the server's, in microseconds for each task."""

    tasks: int
    enqueue_per_s: float
    per_s: float
    enqueue_cpu_us: float
    drain_cpu_us: float
    child_cpu_us: float
    redis_busy: float
    others_busy: float
    queued_bytes: float
    private_mb: float
    private_mb_early: float
    problems: list[str] = field(default_factory=list[str])


def drain(
    server: Server, app: dtq.App, task: Any, payloads: Iterable[dict[str, Any]], children: int, *, kept: bool
) -> Drained:
    """Enqueue one task of `task` (with its options) for each payload, then let `children` children work them off.

    The rate counts from the first claim to the last settle, as Redis' counters show them, without the pool's start.
    """
    server.clear()
    memory, cpu, started = server.used_memory(), server.cpu_us(), time.perf_counter()
    ids: list[str] = []
    for outcome in task.enqueue_many(payloads):
        ids.append(outcome.id)  # AttributeError for a refused one: a benchmark has none
    enqueue_s = time.perf_counter() - started
    enqueue_cpu, queued = server.cpu_us() - cpu, server.used_memory() - memory
    tasks = len(ids)
    with Pool(server, children) as pool:
        watch = _Watch(server, tasks, pool)
        before = server.cpu_us()
        seconds = watch.until_done()
        drain_cpu = server.cpu_us() - before
        others_s = machine_cpu_s() - watch.machine_cpu_s - drain_cpu / 1e6 - (pool.cpu_s() - watch.child_cpu_s)
        child_cpu = (pool.cpu_s() - watch.child_cpu_s) * 1e6
        pool.check_alive()
        private = pool.private_mb()
    return Drained(
        tasks=tasks,
        enqueue_per_s=tasks / enqueue_s,
        per_s=tasks / seconds,
        enqueue_cpu_us=enqueue_cpu / tasks,
        drain_cpu_us=drain_cpu / tasks,
        child_cpu_us=child_cpu / tasks,
        redis_busy=drain_cpu / 1e6 / seconds,
        others_busy=max(0.0, others_s / seconds),
        queued_bytes=queued / tasks,
        private_mb=max(private),
        private_mb_early=watch.early_mb,
        problems=list(problems(server, app, ids, kept)),
    )


class _Watch:
    """Looks at the queue's counters: often around the first claim and the last settle, rarely in between."""

    def __init__(self, server: Server, tasks: int, pool: Pool) -> None:
        self.early_mb = 0.0
        self.child_cpu_s = self.machine_cpu_s = 0.0
        """At the first claim."""
        self._server = server
        self._tasks = tasks
        self._pool = pool
        self._meta = Keys(server.prefix).meta(QUEUE)

    def until_done(self) -> float:
        """Seconds from the first claim to the last settle, true to about 2 ms."""
        first = last_change = time.monotonic()
        last_ended, begun = 0, False
        while True:
            ended, running = self._look()
            now = time.monotonic()
            if not begun:
                begun, first = bool(ended or running), now
                if begun:
                    self.child_cpu_s, self.machine_cpu_s = self._pool.cpu_s(), machine_cpu_s()
            if ended >= self._tasks:
                return now - first
            if ended != last_ended or not begun:
                if begun or now - first < STALL_S:
                    last_ended, last_change = ended, now
                if not self.early_mb and ended >= min(EARLY_TASKS, self._tasks // 2):
                    self.early_mb = max(self._pool.private_mb(), default=0.0)
            if now - last_change > STALL_S:
                raise RuntimeError(
                    f"nothing has changed for {STALL_S:.0f} s; {ended} of {self._tasks} tasks have ended"
                )
            self._pool.check_alive()
            left_s = (self._tasks - ended) * (now - first) / ended if ended else 0.0
            time.sleep(0.002 if left_s < 0.1 else min(0.05, left_s / 2))

    def _look(self) -> tuple[int, int]:
        ended, running = self._server.client.hmget(self._meta, "succeeded", "running")
        return int(ended or 0), int(running or 0)


def problems(server: Server, app: dtq.App, ids: list[str], kept: bool) -> Iterator[str]:
    """Why not every task ended exactly once, in words; nothing when all is well.

    Each accepted id is asked for. The counters tell of what the ids cannot: a task that was settled twice, retried,
    lost, or left in a stream or pending list.
    """
    keys = Keys(server.prefix)
    states = app.broker.states(QUEUE, ids)
    expected = _SUCCEEDED if kept else _UNKNOWN
    if wrong := len(ids) - states.count(expected):
        yield f"{wrong} of {len(ids)} tasks are not in status {chr(expected)}"
    if len(set(ids)) != len(ids):
        yield "ids were given twice"
    meta = {name.decode(): value.decode() for name, value in server.client.hgetall(keys.meta(QUEUE)).items()}
    for name in ("submitted", "succeeded"):
        if int(meta.get(name, 0)) != len(ids):
            yield f"counter {name} is {meta.get(name)}, expected {len(ids)}"
    for name in OTHER_COUNTERS:
        if int(meta.get(name, 0)):
            yield f"counter {name} is {meta[name]}, expected 0"
    if left := server.client.hlen(keys.live(QUEUE)):
        yield f"{left} live values are left"
    for band in BANDS:
        stream = keys.stream(QUEUE, band)
        if left := server.client.xlen(stream):
            yield f"{left} entries are left in {stream}"
        if left := server.client.xpending(stream, GROUP)["pending"]:
            yield f"{left} entries are pending in {stream}"
