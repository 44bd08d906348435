"""One backlog through a real worker pool: enqueue it, start the pool, watch Redis' counters, check every task."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    server: Server,
    app: dtq.App,
    task: Any,
    payloads: Iterable[dict[str, Any]],
    children: int,
    *,
    kept: bool,
    queues: Mapping[str, Any] | None = None,
    url: str | None = None,
    environment: dict[str, str] | None = None,
    checked: int = 1,
    application: str = "bench.workload:app",
) -> Drained:
    """Enqueue one task of `task` (with its options) for each payload, then let `children` children work them off.

    The rate counts from the first claim to the last settle, as Redis' counters show them, without the pool's start.

    queues: those that the payloads are dealt to in turns, each with `task` for it. url: where the pool finds the server
    (`server.url`). environment: further DTQ_* variables of the pool. checked: of so many tasks one is asked for by its
    id; the counters are for all. application: what the pool runs.
    """
    server.clear()
    memory, cpu, started = server.used_memory(), server.cpu_us(), time.perf_counter()
    ids: dict[str, list[str]] = {}
    tasks = 0
    queues = queues or {QUEUE: task}
    dealt = list(payloads) if len(queues) > 1 else payloads
    for number, (queue, enqueuer) in enumerate(queues.items()):
        mine = ids[queue] = []
        part = dealt[number :: len(queues)] if isinstance(dealt, list) else dealt
        for outcome in enqueuer.enqueue_many(part):
            if tasks % checked == 0:
                mine.append(outcome.id)  # AttributeError for a refused one: a benchmark has none
            tasks += 1
    enqueue_s = time.perf_counter() - started
    enqueue_cpu, queued = server.cpu_us() - cpu, server.used_memory() - memory
    with Pool(
        replace(server, url=url or server.url),
        children,
        queues=list(queues),
        environment=environment,
        application=application,
    ) as pool:
        watch = _Watch(server, tasks, pool, list(queues))
        before = server.cpu_us()
        seconds = watch.until_done()
        drain_cpu = server.cpu_us() - before
        others_s = machine_cpu_s() - watch.machine_cpu_s - drain_cpu / 1e6 - (pool.cpu_s() - watch.child_cpu_s)
        child_cpu = (pool.cpu_s() - watch.child_cpu_s) * 1e6
        pool.check_alive()
        private = pool.private_mb()
    found = [text for queue in queues for text in problems(server, app, ids[queue], kept, queue=queue, checked=checked)]
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
        problems=found,
    )


class _Watch:
    """Looks at the queue's counters: often around the first claim and the last settle, rarely in between."""

    def __init__(self, server: Server, tasks: int, pool: Pool, queues: Sequence[str]) -> None:
        self.early_mb = 0.0
        self.child_cpu_s = self.machine_cpu_s = 0.0
        """At the first claim."""
        self._server = server
        self._tasks = tasks
        self._pool = pool
        self._open = [Keys(server.prefix).meta(queue) for queue in queues]
        """Counters of the queues that are not empty yet. Only the first are looked at: looks must cost little."""
        self._share = tasks // len(queues)
        self._ended = 0
        self._many = len(queues) > 1
        self._begun = False

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
            time.sleep(0.002 if left_s < 0.1 or self._many else min(0.05, left_s / 2))

    def _look(self) -> tuple[int, int]:
        """How many tasks have ended and how many run, at least: until the first claim in all queues, then in one."""
        if self._many and not self._begun:
            counts = [self._count(meta) for meta in self._open]
            self._begun = any(map(any, counts))
            return sum(ended for ended, _ in counts), sum(running for _, running in counts)
        while True:
            ended, running = self._count(self._open[0])
            if len(self._open) == 1 or ended < self._share:
                return self._ended + ended, running
            self._ended += ended
            del self._open[0]

    def _count(self, meta: str) -> tuple[int, int]:
        ended, running = self._server.client.hmget(meta, "succeeded", "running")
        return int(ended or 0), int(running or 0)


def problems(
    server: Server, app: dtq.App, ids: list[str], kept: bool, *, queue: str = QUEUE, checked: int = 1
) -> Iterator[str]:
    """Why not every task ended exactly once, in words; nothing when all is well.

    Each id is asked for. The counters tell of what the ids cannot: a task that was settled twice, retried, lost, or
    left in a stream or pending list. checked: `ids` holds one of so many.
    """
    keys = Keys(server.prefix)
    states = app.broker.states(queue, ids)
    expected = _SUCCEEDED if kept else _UNKNOWN
    if wrong := len(ids) - states.count(expected):
        yield f"{wrong} of {len(ids)} tasks are not in status {chr(expected)}"
    if len(set(ids)) != len(ids):
        yield "ids were given twice"
    meta = {name.decode(): value.decode() for name, value in server.client.hgetall(keys.meta(queue)).items()}
    submitted = int(meta.get("submitted", 0))
    if submitted != len(ids) if checked == 1 else -(-submitted // checked) != len(ids):
        yield f"counter submitted is {submitted}, expected {len(ids) * checked}"
    if int(meta.get("succeeded", 0)) != submitted:
        yield f"counter succeeded is {meta.get('succeeded')}, expected {submitted}"
    for name in OTHER_COUNTERS:
        if int(meta.get(name, 0)):
            yield f"counter {name} is {meta[name]}, expected 0"
    if left := server.client.hlen(keys.live(queue)):
        yield f"{left} live values are left"
    for band in BANDS:
        stream = keys.stream(queue, band)
        if left := server.client.xlen(stream):
            yield f"{left} entries are left in {stream}"
        if left := server.client.xpending(stream, GROUP)["pending"]:
            yield f"{left} entries are pending in {stream}"
