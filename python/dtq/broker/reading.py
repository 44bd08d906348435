"""Figures of queues, for people and for those who wait until a queue is empty."""

from __future__ import annotations

from typing import Any

from dtq.broker.calls import Calls
from dtq.broker.values import QueueCounts
from dtq.keys import BANDS, GROUP, SHELF
from dtq.transport import translated

NO_TOTALS = (
    *("running", "retrying", "bands", "paused", "paused_types", "shelf", "listeners", "unparking", "resumptions"),
    "yielded",
)


class Reading(Calls):
    """Verbs that only look."""

    def queues(self) -> list[str]:
        """Names of the known queues, sorted."""
        return sorted(name.decode() for name in self.command("SMEMBERS", self.keys.queues()))

    def task_types(self, queue: str) -> list[str]:
        """The task types seen in a queue, sorted; those that are paused too."""
        paused = self.command("HGET", self.keys.meta(queue), "paused_types") or b""
        return sorted({name for name in paused.decode("utf-8", "replace").split(";") if name})

    def queue_counts(self, queue: str) -> QueueCounts:
        """One queue in figures, in a few round trips that do not depend on its size.

        All of one instant, but for the age of the oldest task.
        """
        with translated(self.transport):
            client = self.transport.client()
            try:
                return self._counts(client, queue)
            finally:
                client.close()

    def _counts(self, client: Any, queue: str) -> QueueCounts:
        keys = self.keys
        # At one instant: a task that moves in between would be counted nowhere, and a worker in burst mode would leave.
        pipeline = client.pipeline(transaction=True)
        pipeline.hlen(keys.live(queue))
        pipeline.hgetall(keys.meta(queue))
        pipeline.zcard(keys.schedule(queue))
        pipeline.xlen(keys.dead_letters(queue))
        pipeline.zrange(keys.schedule(queue), 0, 0, withscores=True)
        pipeline.time()
        for band in BANDS:
            pipeline.xinfo_groups(keys.stream(queue, band))
        replies = pipeline.execute(raise_on_error=False)
        for reply in replies[:6]:
            if isinstance(reply, Exception):
                raise reply
        live, meta, scheduled, dead, first, (seconds, microseconds) = replies[:6]
        now = int(seconds) * 1000 + int(microseconds) // 1000
        facts = {name.decode(): value.decode() for name, value in meta.items()}
        running = int(facts.get("running", 0))
        oldest = self._oldest(client, queue, replies[6:]) if live > running else None
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
            next_due_ms=max(0, int(first[0][1]) - now) if first else None,
            totals={name: int(value) for name, value in facts.items() if name not in NO_TOTALS},
        )

    def _oldest(self, client: Any, queue: str, groups: list[Any]) -> int | None:
        """When the oldest entry that nobody has read was added, in ms."""
        pipeline = client.pipeline(transaction=False)
        for band, listed in zip(BANDS, groups, strict=True):
            last = "-"
            if not isinstance(listed, Exception):
                for group in listed:
                    if group["name"] == GROUP.encode():
                        last = "(" + group["last-delivered-id"].decode()
            pipeline.xrange(self.keys.stream(queue, band), last, "+", count=1)
            # what lies on the shelf was read once, and waits again
            pipeline.xpending_range(self.keys.stream(queue, band), GROUP, "-", "+", 1, SHELF)
        times: list[int] = []
        for reply in pipeline.execute(raise_on_error=False):
            if isinstance(reply, Exception) or not reply:
                continue
            entry = reply[0]["message_id"] if isinstance(reply[0], dict) else reply[0][0]
            times.append(int(entry.split(b"-")[0]))
        return min(times) if times else None
