"""Everything a queue keeps in Redis, read in two pipelines, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dtq._core import Record, parse_record
from dtq.broker import Broker
from dtq.keys import GROUP
from tests.broker.driver import QUEUE

BANDS_IN_USE = (2, 5, 9)
RECENT = ("succeeded", "failed", "dead_lettered", "cancelled", "expired")
STATUS = (
    "history", "pending", "queued", "running", "retrying",
    "succeeded", "failed", "dead_lettered", "cancelled", "expired",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Live:
    """A live value in its parts; consumer and seq are empty for a queued task."""

    raw: str
    kind: str
    attempt: int
    released: int
    entry: str
    consumer: str
    seq: int
    tail: str

    @classmethod
    def parse(cls, raw: str) -> Live:
        """The parts of `r:attempt:released:entry:consumer:seq:started:tail` or `q:attempt:released:entry:tail`."""
        if raw.startswith("r:"):
            _, attempt, released, entry, consumer, seq, _, tail = raw.split(":", 7)
            return cls(raw, "r", int(attempt), int(released), entry, consumer, int(seq), tail)
        _, attempt, released, entry, tail = raw.split(":", 4)
        return cls(raw, "q", int(attempt), int(released), entry, "", 0, tail)

    @property
    def flagged(self) -> bool:
        """Whether the cancel flag is set."""
        return self.tail.endswith("c")


Entry = tuple[int, str]


@dataclass(slots=True)
class Seen:
    """One look at the queue `q`."""

    live: dict[str, Live] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    schedule: dict[str, int] = field(default_factory=dict)
    # An entry is named with its band: two streams may hand out the same entry id in one millisecond.
    entries: dict[Entry, str] = field(default_factory=dict)  # -> task id
    pending: dict[Entry, str] = field(default_factory=dict)  # -> consumer
    delivered: dict[int, tuple[int, int]] = field(default_factory=dict)  # band -> last id handed out
    meta: dict[str, str] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    recent: dict[str, list[str]] = field(default_factory=dict)
    dead: list[tuple[str, str]] = field(default_factory=list)  # entry, id
    unique: dict[str, str] = field(default_factory=dict)
    idempotency: dict[str, str] = field(default_factory=dict)
    expires: dict[str, bool] = field(default_factory=dict)  # key of a task, lock or idempotency record -> has a ttl
    keys: set[str] = field(default_factory=set)

    def status(self, task_id: str) -> str | None:
        """Where a task stands; None where nothing is known."""
        live = self.live.get(task_id)
        if live is not None:
            return "running" if live.kind == "r" else "queued"
        record = self.records.get(task_id)
        return STATUS[record.status] if record is not None else None

    def holder(self, task_id: str) -> str | None:
        """The consumer in whose pending list the entry of a live task lies."""
        return next((self.pending.get(entry) for entry in self.named(task_id)), None)

    def named(self, task_id: str) -> list[Entry]:
        """The entries of a task: one while it is live."""
        return [entry for entry, name in self.entries.items() if name == task_id]

    def waits(self, task_id: str) -> bool:
        """Whether a task is `running` only until its next claim: it was taken over and is marked so."""
        live = self.live.get(task_id)
        return live is not None and live.kind == "r" and ";m;" in f";{live.tail}"

    def undelivered(self, entry: Entry) -> bool:
        """Whether an entry is still to be handed out as new."""
        return _number(entry[1]) > self.delivered.get(entry[0], (0, 0))


def _number(entry: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence)


def _text(reply: Any) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in reply.items()}


def look(broker: Broker, client: Any) -> Seen:
    """Read the queue `q` as it is now."""
    keys = broker.keys
    seen = Seen()
    pipe = client.pipeline(transaction=False)
    pipe.keys("*").hgetall(keys.live(QUEUE)).hgetall(keys.meta(QUEUE)).hgetall(keys.sends(QUEUE))
    pipe.zrange(keys.schedule(QUEUE), 0, -1, withscores=True).xrange(keys.dead_letters(QUEUE))
    for status in RECENT:
        pipe.lrange(keys.recent(QUEUE, status), 0, -1)
    for band in BANDS_IN_USE:
        pipe.xrange(keys.stream(QUEUE, band))
        pipe.xpending_range(keys.stream(QUEUE, band), GROUP, "-", "+", 1000)
        pipe.xinfo_groups(keys.stream(QUEUE, band))
    found = iter(pipe.execute(raise_on_error=False))
    seen.keys = {key.decode() for key in next(found)}
    seen.live = {task: Live.parse(raw) for task, raw in _text(next(found)).items()}
    seen.meta = _text(next(found))
    seen.sends = {consumer: int(send) for consumer, send in _text(next(found)).items()}
    seen.schedule = {task.decode(): int(score) for task, score in next(found)}
    seen.dead = [(entry.decode(), next(iter(fields)).decode()) for entry, fields in next(found)]
    seen.recent = {status: [task.decode() for task in next(found)] for status in RECENT}
    for band in BANDS_IN_USE:
        for entry, fields in next(found):
            seen.entries[band, entry.decode()] = next(iter(fields)).decode()
        pending, groups = next(found), next(found)
        for item in pending if isinstance(pending, list) else ():  # else the group is lost
            seen.pending[band, item["message_id"].decode()] = item["consumer"].decode()
        for group in groups if isinstance(groups, list) else ():
            seen.delivered[band] = _number(group["last-delivered-id"].decode())
    _look_at_single_keys(keys.task(QUEUE, ""), keys.unique(QUEUE, ""), keys.idempotency(QUEUE, ""), client, seen)
    return seen


def _look_at_single_keys(task: str, unique: str, idempotency: str, client: Any, seen: Seen) -> None:
    single = [key for key in seen.keys if key.startswith((task, unique, idempotency))]
    if not single:
        return
    pipe = client.pipeline(transaction=False)
    pipe.mget(single)
    for key in single:
        pipe.pttl(key)
    values, *times = pipe.execute()
    for key, value, ttl in zip(single, values, times, strict=True):
        seen.expires[key] = ttl >= 0
        if key.startswith(task):
            seen.records[key.removeprefix(task)] = parse_record(value)
        elif key.startswith(unique):
            seen.unique[key.removeprefix(unique)] = value.decode()
        else:
            seen.idempotency[key.removeprefix(idempotency)] = value.decode()
