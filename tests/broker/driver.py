"""Drives the broker's verbs as children, supervisors and producers do, step by step, without processes."""

from __future__ import annotations

import itertools
import os
from typing import Any

from dtq._core import Chunk, Claim, EnvelopeHead, Outcomes, TurnReply, new_ids, parse_envelope
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.keys import BANDS, GROUP, PARKED, SHELF
from dtq.scripts import script

QUEUE = "q"
WORKER = "host-00000001"


def head(**options: Any) -> EnvelopeHead:
    """An envelope head of the task type `noop`; retention in ms, a day unless said."""
    band = options.get("band", 5)
    return EnvelopeHead(
        options.get("task_type", "noop"),
        band,
        options.get("max_attempts", 3),
        30_000,
        options.get("retention_ms", 86_400_000),
        options.get("dead_letter", True),
        options.get("extras", b""),
    )


def enqueue(
    broker: Broker, count: int = 1, *, place: str = "", ids: list[str] | None = None, **options: Any
) -> list[str]:
    """Enqueue `count` tasks of the queue `q`; answers their ids. place: option fields behind the band digit."""
    made = ids or new_ids(SYSTEM.now_ms(), os.urandom(10 * count), count)
    chunk = Chunk()
    refused = chunk.extend(
        made, head(**options), [{"i": i} for i in range(len(made))], 1000, f"{options.get('band', 5)}{place}".encode()
    )
    assert not refused
    answers = broker.enqueue(options.get("queue", QUEUE), chunk, repeat=options.get("repeat", False))
    assert [a.code for a in answers] == ["a"] * len(made) or options.get("any"), answers
    return made


class Child:
    """One child's side of the protocol: consumer, send and claim numbers, outcomes."""

    _numbers = itertools.count(1)

    def __init__(self, broker: Broker, worker: str = WORKER, queue: str = QUEUE) -> None:
        self.broker = broker
        self.queue = queue
        self.worker = worker
        self.consumer = f"{worker}.{next(self._numbers)}.1"
        self.send = 0
        self.seq = 1
        self.outcomes = Outcomes(worker)

    def turn(self, want: int = 1, **options: Any) -> TurnReply:
        """One turn that settles what was collected."""
        self.send += 1
        reply = self.broker.turn(
            self.queue, self.outcomes, consumer=self.consumer, send=options.pop("send", self.send),
            first_seq=options.pop("first_seq", self.seq), want=want, **options,
        )  # fmt: skip
        self.outcomes.clear()
        for claim in reply.claims:
            self.seq = max(self.seq, claim.seq + 1)
        return reply

    def claim(self, want: int = 1, **options: Any) -> list[Claim]:
        """Claim and answer the claims."""
        return self.turn(want, **options).claims

    def settle(self, claim: Claim, letter: str = "S", *, delay_ms: int = 0, want: int = 0) -> str:
        """Settle one claim with one turn; answers its code."""
        self.end(claim, letter, delay_ms=delay_ms)
        return self.turn(want).codes.decode()

    def end(self, claim: Claim, letter: str = "S", *, delay_ms: int = 0) -> None:
        """Collect an outcome without sending it."""
        if letter == "S":
            self.outcomes.succeed(claim, {"ok": claim.attempt}, SYSTEM.now_ms(), 1000)
            return
        line = b'{"attempt":%d,"cause":"error","error_class":"ValueError"}\n' % claim.attempt
        detail = b'{"worker_id":"host","cause":"error","error_class":"ValueError","error":"no"}'
        self.outcomes.settle(claim, letter, SYSTEM.now_ms(), delay_ms, detail, line)  # type: ignore[arg-type]

    def read(self) -> list[tuple[int, bytes, bytes]]:
        """A blocking read that finds something at once: what a woken child got, (band, entry, id)."""
        reader = self.broker.reader(self.consumer)
        reader.start([(self.queue, band) for band in reversed(BANDS)], 2000)
        got = [(band, entry, task_id) for _, band, entry, task_id in reader.receive().entries]
        reader.abandon()
        return got


def state(broker: Broker, task_id: str, queue: str = QUEUE) -> str:
    """The status code digit of a task."""
    return broker.states(queue, [task_id]).decode()


def live(broker: Broker, task_id: str, queue: str = QUEUE) -> str:
    """The live value of a task, '' where it has none."""
    return (broker.command("HGET", broker.keys.live(queue), task_id) or b"").decode()


def check_invariants(broker: Broker, queue: str = QUEUE) -> None:
    """What must hold after every step: one place for each task, counters equal to recounts, no entry without a task."""
    keys = broker.keys
    client = broker.transport.client()
    values = {k.decode(): v.decode() for k, v in client.hgetall(keys.live(queue)).items()}
    running = sum(value.startswith("r:") for value in values.values())
    assert int(client.hget(keys.meta(queue), "running") or 0) == running, "the running counter differs from a recount"
    entries: dict[str, tuple[str, int]] = {}
    pending: set[tuple[str, int]] = set()  # with the band: an entry's id is unique within its stream only
    parked: set[tuple[str, int]] = set()
    meta = {k.decode(): v.decode() for k, v in client.hgetall(keys.meta(queue)).items()}
    for band in BANDS:
        stream = keys.stream(queue, band)
        for entry, fields in client.xrange(stream):
            name = next(iter(fields)).decode()
            if name:
                assert name not in entries, f"{name} has two entries"
                entries[name] = (entry.decode(), band)
        if not client.exists(stream):
            continue
        for item in client.xpending_range(stream, GROUP, "-", "+", 10_000):
            place = (item["message_id"].decode(), band)
            pending.add(place)
            if item["consumer"].decode() == SHELF:
                assert str(band) in (client.hget(keys.meta(queue), "shelf") or b"").decode(), (
                    "the shelf hint misses a band"
                )
            if item["consumer"].decode() == PARKED:
                parked.add(place)
    assert entries.keys() == values.keys(), "entries and live values differ"
    for task_id, value in values.items():
        entry = value.split(":")[3]
        assert entries[task_id][0] == entry, f"{task_id}: the live value names another entry"
        assert not value.startswith("r:") or entries[task_id] in pending, f"{task_id} runs and is in no pending list"
        if entries[task_id] in parked:
            assert value.startswith("q:") or "m;" in value, f"{task_id} runs and is parked"
            (fields,) = (fields for _, fields in client.xrange(keys.stream(queue, entries[task_id][1]), entry, entry))
            paused = parse_envelope(fields[task_id.encode()]).task_type in meta.get("paused_types", "").split(";")
            assert paused or "unparking" in meta, f"{task_id} is parked, its type is not paused, and nobody looks"
        record = client.get(keys.task(queue, task_id))
        assert record is None or record[1] == 0, f"{task_id} is live and has a record of status {record[1]}"
        tail = value.split(":", 7 if value.startswith("r:") else 4)[-1]
        assert (record is not None) == ("h;" in tail), f"{task_id}: history flag and record differ"
    retrying = 0
    for task_id, _ in client.zrange(keys.schedule(queue), 0, -1, withscores=True):
        record = client.get(keys.task(queue, task_id.decode()))
        assert record is not None, f"{task_id} is scheduled without a record"
        assert record[1] in (1, 4), f"{task_id} is scheduled with status {record[1]}"
        retrying += record[1] == 4
        assert client.ttl(keys.task(queue, task_id.decode())) == -1, "a waiting record must not expire"
    assert int(client.hget(keys.meta(queue), "retrying") or 0) == retrying, (
        "the retrying counter differs from a recount"
    )
    client.close()


def wait_and_claim(child: Child, first: object = None) -> list[Claim]:
    """A blocking read with an adoption behind it, as a waiting child sends them; `first` is called while they stand."""
    child.broker.command("SCRIPT", "LOAD", script("adopt").text)
    child.send += 1
    reader = child.broker.reader(child.consumer)
    adoption = child.broker.adoption(child.queue, consumer=child.consumer, send=child.send, seq=child.seq)
    reader.start([(child.queue, band) for band in reversed(BANDS)], 2000, adoption)
    if callable(first):
        first()
    claims = reader.receive().claims or []
    reader.abandon()
    for claim in claims:
        child.seq = max(child.seq, claim.seq + 1)
    return claims
