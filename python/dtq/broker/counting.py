"""How much there is and was: many queues in figures at once, times by task type and minute, refused enqueues."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dtq._core import pack_command
from dtq.broker.looking import Looking
from dtq.broker.values import QueueCounts
from dtq.errors import BrokerUnavailable
from dtq.history import COUNTS, Minute, TypeTimings, read_cell, read_minutes
from dtq.keys import GROUP, SHELF
from dtq.scripts import script
from dtq.settings import QUEUE_NAME, Settings
from dtq.transport import translate

NO_TOTALS: Final = frozenset({
    "running", "retrying", "bands", "paused", "paused_types", "shelf", "listeners", "unparking", "resumptions",
    "yielded",
})  # fmt: skip
"""Fields of the meta hash that count nothing, or what stands now."""
MOST_TYPES: Final = 200
"""So many task types of a queue have timings of their own."""
REASONS: Final = ("invalid", "payload", "full", "conflict", "unique", "idempotency", "unavailable")
"""Why an enqueue may be refused (spec §12). Scripts count full, conflict, unique and idempotency themselves."""
MOST_QUEUES_UNCOUNTED: Final = 1000

# Every claim comes to one of these, or runs: in a settle, a hand-back, a death; `redelivered` counts the claims that
# follow deaths, `ended_unclaimed` what ended before one did.
_ENDS_OF_CLAIMS = (
    "succeeded", "retried", "released", "attempts_failed", "attempts_dead_lettered", "attempts_cancelled",
    "handed_back", "redelivered", "ended_unclaimed", "running",
)  # fmt: skip


class Counting(Looking):
    """Verbs of those who watch, and of children that tell how long things took."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._uncounted: Counter[tuple[str, str]] = Counter()
        self._uncounted_lock = threading.Lock()

    # --- what children tell

    def observe(self, told: Mapping[str, Sequence[tuple[str, bytes]]]) -> None:
        """Add what a child has gathered: by queue, cells by task type (Outcomes.take_timings).

        Raises:
            BrokerUnavailable: no answer; some of it may have been added, so it must not be sent again.
        """
        from redis.exceptions import NoScriptError

        called = script("observe")
        commands: list[bytes] = []
        for queue, cells in told.items():
            keys = [self.keys.meta(queue), self.keys.timings(queue), self.keys.minutes(queue)]
            for at in range(0, len(cells), _TYPES_A_CALL):
                words = [word for cell in cells[at : at + _TYPES_A_CALL] for word in cell]
                commands.append(pack_command(["EVALSHA", called.sha, len(keys), *keys, MOST_TYPES, *words]))
        replies = self.transport.call_many(b"".join(commands), len(commands))
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, NoScriptError):
                self.transport.call(command, called)
            elif isinstance(reply, Exception):
                raise translate(reply, self.transport.place())

    # --- what was refused

    def count_rejected(self, queue: str, reason: str, count: int = 1) -> None:
        """Count enqueues that were refused before a script could see them. Never raises for want of a server.

        Args:
            queue: for which they were; a name that is not known counts for the default queue.
            reason: one of REASONS. `full`, `conflict`, `unique` and `idempotency` are counted by the script already.
            count: how many. While no server answers they are kept in this process, and added by a later call.
        """
        if reason not in REASONS:
            raise ValueError(f"reason: {reason!r} is not known; use one of {', '.join(REASONS)}")
        with self._uncounted_lock:
            known = QUEUE_NAME.fullmatch(queue) and len(self._uncounted) < MOST_QUEUES_UNCOUNTED
            self._uncounted[queue if known else self.settings.queue, reason] += count
            taken, self._uncounted = self._uncounted, Counter()
        try:
            queues = {queue for queue, _ in taken}
            standing = self.command("SMISMEMBER", self.keys.queues(), *queues)
            strangers = {queue for queue, stands in zip(queues, standing, strict=True) if not stands}
            for queue, reason in list(taken):
                mine = self.settings.queue if queue in strangers else queue
                self.command("HINCRBY", self.keys.meta(mine), f"rejected:{reason}", taken.pop((queue, reason)))
        except BrokerUnavailable:
            with self._uncounted_lock:
                self._uncounted.update(taken)

    # --- figures

    def queue_counts(self, queue: str) -> QueueCounts:
        """One queue in figures, in three round trips that do not depend on its size.

        All of one instant, but for the age of the oldest task.
        """
        (found,) = self._many_counts([queue])
        if isinstance(found, Exception):
            raise translate(found, self.transport.place())
        return found

    def many_counts(self, queues: Sequence[str]) -> list[QueueCounts]:
        """The same of many, in three round trips for each hundred; a queue whose keys are damaged is left out."""
        found: list[QueueCounts] = []
        for at in range(0, len(queues), _QUEUES_A_CALL):
            many = self._many_counts(queues[at : at + _QUEUES_A_CALL])
            found += [counts for counts in many if not isinstance(counts, Exception)]
        return found

    def _many_counts(self, queues: Sequence[str]) -> list[QueueCounts | Exception]:
        commands: list[list[bytes | str | int]] = []
        for queue in queues:
            keys = self.keys
            # At one instant: a task that moves in between would be counted nowhere, and a worker in burst mode leave.
            commands.append(["MULTI"])
            commands.append(["HLEN", keys.live(queue)])
            commands.append(["HGETALL", keys.meta(queue)])
            commands.append(["ZCARD", keys.schedule(queue)])
            commands.append(["XLEN", keys.dead_letters(queue)])
            commands.append(["ZRANGE", keys.schedule(queue), 0, 0, "WITHSCORES"])
            commands.append(["TIME"])
            commands.append(["EXEC"])
        replies = [_refusal(reply) or reply for reply in self._replies(commands)[7::8]]
        seen = {queue: reply for queue, reply in zip(queues, replies, strict=True) if not isinstance(reply, Exception)}
        facts = {queue: facts_of(reply[1]) for queue, reply in seen.items()}
        waiting = [queue for queue, reply in seen.items() if reply[0] > int(facts[queue].get("running", 0))]
        oldest = self._oldest_entries({queue: facts[queue].get("bands", "") for queue in waiting})
        counted = {queue: counts_of(queue, seen[queue], facts[queue], oldest.get(queue)) for queue in seen}
        return [counted.get(queue, reply) for queue, reply in zip(queues, replies, strict=True)]

    def _oldest_entries(self, bands: Mapping[str, str]) -> dict[str, int]:
        """By queue, when the oldest entry was added (ms) that nobody has read, or that lies on the shelf."""
        streams = [(queue, self.keys.stream(queue, int(band))) for queue, digits in bands.items() for band in digits]
        groups = self._replies([["XINFO", "GROUPS", stream] for _, stream in streams])
        commands: list[list[bytes | str | int]] = []
        for (_, stream), listed in zip(streams, groups, strict=True):
            commands.append(["XRANGE", stream, _behind(listed), "+", "COUNT", 1])
            commands.append(["XPENDING", stream, GROUP, "-", "+", 1, SHELF])
        oldest: dict[str, int] = {}
        for index, reply in enumerate(self._replies(commands)):
            if reply and not isinstance(reply, Exception):
                queue, added = streams[index // 2][0], int(reply[0][0].split(b"-")[0])
                oldest[queue] = min(added, oldest.get(queue, added))
        return oldest

    def timings(self, queues: Sequence[str]) -> list[dict[str, TypeTimings]]:
        """For each of these queues its timings by task type, sums since ever."""
        replies = self._replies([["HGETALL", self.keys.timings(queue)] for queue in queues])
        return [_cells({} if isinstance(reply, Exception) else pairs(reply)) for reply in replies]

    def task_types(self, queue: str) -> list[str]:
        """Task types of which attempts have ended in this queue (MOST_TYPES at most), and paused ones; sorted."""
        ended, paused = self.transport.call_many(
            pack_command(["HKEYS", self.keys.timings(queue)])
            + pack_command(["HGET", self.keys.meta(queue), "paused_types"]),
            2,
        )
        for reply in (ended, paused):
            if isinstance(reply, Exception):
                raise BrokerUnavailable(f"queue {queue}: {reply}")
        names = [name.decode("utf-8", "replace") for name in (*ended, *(paused or b"").split(b";"))]
        return sorted({name for name in names if name and not name.startswith("(")})

    def minutes(self, queue: str, count: int) -> list[Minute]:
        """The last `count` minutes of a queue, the oldest first."""
        stored, totals, (seconds, _) = self.transport.call_many(
            pack_command(["HGETALL", self.keys.minutes(queue)])
            + pack_command(["HMGET", self.keys.meta(queue), *COUNTS])
            + pack_command(["TIME"]),
            3,
        )
        for reply in (stored, totals):
            if isinstance(reply, Exception):
                raise BrokerUnavailable(f"queue {queue}: {reply}")
        return read_minutes(pairs(stored), [int(total or 0) for total in totals], int(seconds), count)


_QUEUES_A_CALL = 100
_TYPES_A_CALL = 20
"""A task type takes the script some 30 us, and others wait meanwhile."""


def pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    """The reply of HGETALL as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def facts_of(flat: list[bytes]) -> dict[str, str]:
    """The meta hash as texts."""
    return {name.decode(): value.decode() for name, value in pairs(flat).items()}


def counts_of(queue: str, reply: Sequence[Any], facts: Mapping[str, str], oldest: int | None) -> QueueCounts:
    """A queue in figures. reply: HLEN live, HGETALL meta, ZCARD and XLEN, the first of the schedule, TIME."""
    live, _, scheduled, dead, first, (seconds, microseconds) = reply
    now = int(seconds) * 1000 + int(microseconds) // 1000
    running = int(facts.get("running", 0))
    totals = {name: int(value) for name, value in facts.items() if name not in NO_TOTALS}
    if started := sum(int(facts.get(name, 0)) for name in _ENDS_OF_CLAIMS):
        totals["started"] = started
    return QueueCounts(
        queue=queue,
        waiting=max(0, live - running),
        running=running,
        scheduled=scheduled,
        retrying=max(0, min(scheduled, int(facts.get("retrying", 0)))),
        dead=dead,
        oldest_ms=None if oldest is None else max(0, now - oldest),
        paused="paused" in facts,
        paused_types=tuple(sorted(name for name in facts.get("paused_types", "").split(";") if name)),
        next_due_ms=max(0, int(float(first[1])) - now) if first else None,
        totals=totals,
    )


def _refusal(reply: Any) -> Exception | None:
    """The error of a transaction, or of one of its commands."""
    parts = [reply] if isinstance(reply, Exception) else reply
    return next((part for part in parts if isinstance(part, Exception)), None)


def _behind(groups: Any) -> str:
    """From where on nobody has read a stream, by XINFO GROUPS."""
    if not isinstance(groups, Exception):
        for group in groups:
            facts = dict(zip(group[::2], group[1::2], strict=True))
            if facts[b"name"] == GROUP.encode():
                return f"({facts[b'last-delivered-id'].decode()}"
    return "-"


def _cells(stored: Mapping[bytes, bytes]) -> dict[str, TypeTimings]:
    read = {name.decode("utf-8", "replace"): read_cell(cell) for name, cell in sorted(stored.items())}
    return {name: timings for name, timings in read.items() if timings is not None}
