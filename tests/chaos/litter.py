"""What must not be left in Redis when everything has ended and the workers idle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dtq._core import parse_record
from dtq.broker import Broker
from dtq.keys import BANDS, GROUP, SHELF
from dtq.models import STATUSES

QUEUE = "default"
SPARE_CONSUMERS = 5


@dataclass(slots=True)
class Remains:
    """One look at the queue. wrong: what should not be; records: how many tasks have a record, by status."""

    wrong: list[str] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)
    meta: dict[str, int] = field(default_factory=dict)
    consumers: int = 0


def look(broker: Broker, children: int) -> Remains:
    """Everything under the prefix. children: how many live, and may have a consumer and a send number each."""
    keys, remains = broker.keys, Remains()
    client = broker.transport.client()
    try:
        _look_at_streams(client, keys, children, remains)
        _look_at_keys(client, keys, remains)
        meta = {name.decode(): value.decode() for name, value in client.hgetall(keys.meta(QUEUE)).items()}
    finally:
        client.close()
    remains.meta = {name: int(value) for name, value in meta.items() if name not in ("bands", "shelf", "paused")}
    for name in ("running", "retrying", "strays", "dead_letters_trimmed"):
        if remains.meta.get(name):
            remains.wrong.append(f"the counter {name} is {remains.meta[name]}")
    return remains


def _look_at_streams(client: Any, keys: Any, children: int, remains: Remains) -> None:
    consumers: set[str] = set()
    for band in BANDS:
        stream = keys.stream(QUEUE, band)
        if not client.exists(stream):
            continue
        if length := client.xlen(stream):
            remains.wrong.append(f"band {band} has {length} entries: {client.xrange(stream, count=3)}")
        for consumer in client.xinfo_consumers(stream, GROUP):
            consumers.add(consumer["name"].decode())
            if consumer["pending"]:
                remains.wrong.append(f"{consumer['name'].decode()} holds {consumer['pending']} entries of band {band}")
    consumers.discard(SHELF)
    remains.consumers = len(consumers)
    if len(consumers) > children + SPARE_CONSUMERS:
        remains.wrong.append(f"{len(consumers)} consumers for {children} children")
    sends = {name.decode() for name in client.hkeys(keys.sends(QUEUE))}
    if len(sends) > children + SPARE_CONSUMERS:
        remains.wrong.append(f"{len(sends)} send numbers for {children} children: {sorted(sends - consumers)[:10]}")
    for name, size in (
        ("live values", client.hlen(keys.live(QUEUE))),
        ("scheduled tasks", client.zcard(keys.schedule(QUEUE))),
        ("lost entries", client.scard(keys.lost(QUEUE))),
    ):
        if size:
            remains.wrong.append(f"{size} {name}")


def _look_at_keys(client: Any, keys: Any, remains: Remains) -> None:
    task, unique, idempotency = (make(QUEUE, "") for make in (keys.task, keys.unique, keys.idempotency))
    names = [name.decode() for name in client.scan_iter(count=1000)]
    for name in names:
        if name.startswith(unique):
            remains.wrong.append(f"{name} is held by {client.get(name)!r}")
    single = [name for name in names if name.startswith((task, idempotency, keys.worker("")))]
    for at in range(0, len(single), 1000):
        part = single[at : at + 1000]
        values = client.mget(part)
        pipeline = client.pipeline(transaction=False)
        for name in part:
            pipeline.pttl(name)
        lives = pipeline.execute()
        for name, value, ttl in zip(part, values, lives, strict=True):
            if ttl == -1 and name != keys.leader():
                remains.wrong.append(f"{name} never expires")
            if name.startswith(task) and value is not None:
                status = parse_record(value).status
                if status < 5:
                    remains.wrong.append(f"{name} has a record of status {status} and is nowhere else")
                else:
                    remains.records[STATUSES[status - 1].value] += 1
            elif name.startswith(idempotency) and value is not None and value.startswith(b"processing"):
                remains.wrong.append(f"{name} is still processing: {value!r}")
    dead = client.xlen(keys.dead_letters(QUEUE))
    if dead != remains.records["dead_lettered"]:
        remains.wrong.append(f"{dead} dead letters, {remains.records['dead_lettered']} records of them")


def recount(remains: Remains, gone: int, repeated: int) -> list[str]:
    """Counters against records. gone: succeeded tasks of retention 0; repeated: those that ran for two enqueues."""
    wrong: list[str] = []
    counted = {status.value: remains.meta.get(status.value, 0) for status in STATUSES if status.terminal}
    for status, count in counted.items():
        there = remains.records[status] + (gone if status == "succeeded" else 0)
        spare = repeated if status == "succeeded" else 0
        if not there <= count <= there + spare:
            wrong.append(f"the counter {status} is {count}, a recount gives {there}")
    if (submitted := remains.meta.get("submitted", 0)) != sum(counted.values()):
        wrong.append(f"{submitted} submitted, {sum(counted.values())} ended")
    return wrong
