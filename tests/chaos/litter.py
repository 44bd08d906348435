"""What must not be left in Redis when everything has ended and the workers idle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dtq._core import parse_record
from dtq.broker import Broker
from dtq.keys import BANDS, GROUP, PARKED, SHELF
from dtq.models import STATUSES
from tests.chaos.handlers import QUEUES

SPARE_CONSUMERS = 5
NO_NUMBERS = ("bands", "shelf", "paused", "paused_types")


@dataclass(slots=True)
class QueueRemains:
    """One look at a queue. records: how many tasks have one, by status; discarded: dead ones without a dead letter."""

    records: Counter[str] = field(default_factory=Counter)
    discarded: int = 0
    meta: dict[str, int] = field(default_factory=dict)
    consumers: int = 0


@dataclass(slots=True)
class Remains:
    """One look at everything. wrong: what should not be."""

    wrong: list[str] = field(default_factory=list)
    queues: dict[str, QueueRemains] = field(default_factory=dict)

    @property
    def consumers(self) -> int:
        """Consumers of all queues."""
        return sum(queue.consumers for queue in self.queues.values())


def look(broker: Broker, children: int) -> Remains:
    """Everything under the prefix. children: how many live, and may have a consumer and a send number each."""
    keys, remains = broker.keys, Remains()
    client = broker.transport.client()
    try:
        names = [name.decode() for name in client.scan_iter(count=1000)]
        for queue in QUEUES:
            found = remains.queues[queue] = QueueRemains()
            wrong = [
                *_look_at_streams(client, keys, queue, children, found),
                *_look_at_keys(client, keys, queue, names, found),
                *_look_at_meta(client, keys, queue, found),
            ]
            remains.wrong += [f"{queue}: {what}" for what in wrong]
        remains.wrong += _endless(client, [name for name in names if name.startswith(keys.worker(""))])
    finally:
        client.close()
    return remains


def _look_at_streams(client: Any, keys: Any, queue: str, children: int, found: QueueRemains) -> list[str]:
    consumers: set[str] = set()
    wrong: list[str] = []
    for band in BANDS:
        stream = keys.stream(queue, band)
        if not client.exists(stream):
            continue
        if length := client.xlen(stream):
            wrong.append(f"band {band} has {length} entries: {client.xrange(stream, count=3)}")
        for consumer in client.xinfo_consumers(stream, GROUP):
            consumers.add(consumer["name"].decode())
            if consumer["pending"]:
                wrong.append(f"{consumer['name'].decode()} holds {consumer['pending']} entries of band {band}")
    consumers -= {SHELF, PARKED}
    found.consumers = len(consumers)
    if len(consumers) > children + SPARE_CONSUMERS:
        wrong.append(f"{len(consumers)} consumers for {children} children")
    sends = {name.decode() for name in client.hkeys(keys.sends(queue))}
    if len(sends) > children + SPARE_CONSUMERS:
        wrong.append(f"{len(sends)} send numbers for {children} children: {sorted(sends - consumers)[:10]}")
    for name, size in (
        ("live values", client.hlen(keys.live(queue))),
        ("scheduled tasks", client.zcard(keys.schedule(queue))),
        ("lost entries", client.scard(keys.lost(queue))),
    ):
        if size:
            wrong.append(f"{size} {name}")
    return wrong


def _look_at_keys(client: Any, keys: Any, queue: str, names: list[str], found: QueueRemains) -> list[str]:
    task, unique, idempotency = (make(queue, "") for make in (keys.task, keys.unique, keys.idempotency))
    locks = [name for name in names if name.startswith(unique)]
    wrong = [f"{name} is held by {client.get(name)!r}" for name in locks]
    single = [name for name in names if name.startswith((task, idempotency))]
    for at in range(0, len(single), 1000):
        part = single[at : at + 1000]
        for name, value in zip(part, client.mget(part), strict=True):
            if value is None:
                continue
            if name.startswith(idempotency):
                if value.startswith(b"processing"):
                    wrong.append(f"{name} is still processing: {value!r}")
                continue
            record = parse_record(value)
            if record.status < 5:
                wrong.append(f"{name} has a record of status {record.status} and is nowhere else")
            else:
                status = STATUSES[record.status - 1].value
                found.records[status] += 1
                found.discarded += status == "dead_lettered" and record.place == b"discarded"
    dead = client.xlen(keys.dead_letters(queue))
    if dead != found.records["dead_lettered"] - found.discarded:
        records = found.records["dead_lettered"]
        wrong.append(f"{dead} dead letters, {records} records of them, {found.discarded} discarded")
    return wrong + _endless(client, single)


def _endless(client: Any, names: list[str]) -> list[str]:
    """The keys that never expire."""
    wrong: list[str] = []
    for at in range(0, len(names), 1000):
        part = names[at : at + 1000]
        pipeline = client.pipeline(transaction=False)
        for name in part:
            pipeline.pttl(name)
        lives = zip(part, pipeline.execute(), strict=True)
        wrong += [f"{name} never expires" for name, ttl in lives if ttl == -1]
    return wrong


def _look_at_meta(client: Any, keys: Any, queue: str, found: QueueRemains) -> list[str]:
    meta = {name.decode(): value.decode() for name, value in client.hgetall(keys.meta(queue)).items()}
    wrong = [f"{name} is {meta[name]}" for name in ("paused", "paused_types", "unparking") if name in meta]
    found.meta = {name: int(value) for name, value in meta.items() if name not in NO_NUMBERS}
    for name in ("running", "retrying", "strays", "dead_letters_trimmed"):
        if found.meta.get(name):
            wrong.append(f"the counter {name} is {found.meta[name]}")
    return wrong


@dataclass(slots=True)
class Expected:
    """What must have happened in one queue, as far as the ledger tells. gone: succeeded with retention 0; purged: tasks
    of which nothing is left and that a purge may have met; spare: so many more may have come and gone unseen (enqueues
    without an answer, tasks that ran for two enqueues, tasks purged after their handler had run)."""

    gone: int = 0
    purged: int = 0
    spare: int = 0


def recount(found: QueueRemains, expected: Expected) -> list[str]:
    """Counters of one queue against records and ledger."""
    wrong: list[str] = []
    meta, spare = found.meta, expected.spare
    counted = {status.value: meta.get(status.value, 0) for status in STATUSES if status.terminal}
    purged, requeued, submitted = (meta.get(name, 0) for name in ("purged", "requeued", "submitted"))
    there = {
        **{status: found.records[status] for status in counted},
        "succeeded": found.records["succeeded"] + expected.gone,
        "dead_lettered": found.records["dead_lettered"] + requeued,
        "cancelled": found.records["cancelled"] + purged,
    }
    for status, count in counted.items():
        loose = spare if status == "succeeded" else 0
        if abs(count - there[status]) > loose:
            wrong.append(f"the counter {status} is {count}, a recount gives {there[status]}")
    if abs(purged - expected.purged) > spare:
        wrong.append(f"the counter purged is {purged}, {expected.purged} tasks are gone that a purge may have met")
    if submitted + requeued != sum(counted.values()):
        wrong.append(f"{submitted} submitted and {requeued} queued again, {sum(counted.values())} ended")
    discarded = meta.get("discarded", 0)
    if discarded != found.discarded:
        wrong.append(f"the counter discarded is {discarded}, a recount gives {found.discarded}")
    return wrong
