"""One piece of work for every function, method and attribute of dtq._core, with what it must come to.

`bench/test_functions.py` times each, `tests/performance/test_core_cases.py` runs each once and fails where a name has
none. A case is called as often as the benchmark likes, so it leaves what it works on as it was, or makes it anew.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import orjson

from dtq import _core

NOW_MS: Final = 1_700_000_000_000
MAX_BYTES: Final = 262_144
RANDOM: Final = bytes(range(10))
ID: Final = _core.new_ids(NOW_MS, RANDOM, 1)[0]
PAYLOAD: Final[dict[str, object]] = {"user_id": 12_345_678, "email": "someone@example.com", "tags": ["a", "b"]}
PAYLOAD_JSON: Final = b'{"user_id":12345678,"email":"someone@example.com","tags":["a","b"]}'
HEAD: Final = _core.EnvelopeHead("mail.send", 5, 3, 60_000, 86_400_000)
ENVELOPE: Final = HEAD.encode(PAYLOAD, MAX_BYTES)
CONSUMER: Final = "host-abcdefgh.0.1"
ENTRY: Final = b"1700000000000-0"
LIVE: Final = b"r:1:0:1700000000000-0:host-abcdefgh.0.1:1:1700000000000:"
RECORD: Final = _core.encode_record(4, 1, 0, 1, 2, 3, LIVE, b"{}", ENVELOPE)
TURN: Final[list[object]] = [b"d", b"1700000000000", ENTRY, ID.encode(), 5, ENVELOPE]
DELIVERY: Final = b"*1\r\n*2\r\n$8\r\nstream:5\r\n*1\r\n*2\r\n$15\r\n%b\r\n*2\r\n$22\r\n%b\r\n$%d\r\n%b\r\n" % (
    ENTRY, ID.encode(), len(ENVELOPE), ENVELOPE
) + b"*7\r\n$0\r\n\r\n$13\r\n1700000000000\r\n$15\r\n%b\r\n$22\r\n%b\r\n$%d\r\n%b\r\n:5\r\n$%d\r\n%b\r\n" % (
    ENTRY, ID.encode(), len(LIVE), LIVE, len(ENVELOPE), ENVELOPE
)  # fmt: skip
REPLY: Final = _core.parse_claims(TURN, CONSUMER, 1)
CLAIM: Final = REPLY.claims[0]
DUE: Final[list[object]] = [ID.encode(), b"1700000000000", RECORD]
PREFIX: Final = b"$1\r\nX\r\n"
ENVELOPE_BLOCK: Final = b"$%d\r\n%b\r\n" % (len(ENVELOPE), ENVELOPE)
ID_BLOCK: Final = b"$22\r\n%b\r\n" % ID.encode()
RESULT: Final = {"ok": True}
RECORD_OF_RESULT: Final = _core.encode_record(
    5, 1, 0, NOW_MS, NOW_MS, NOW_MS + 5, LIVE, b'{"worker_id":"w","result":{"ok":true}}', ENVELOPE
)


@dataclass(frozen=True)
class Case:
    """Work to time, and what it returns when it is right."""

    work: Callable[[], Any]
    expected: Any
    names: tuple[str, ...] = ()
    """The attributes that it reads."""


def filled_chunk() -> _core.Chunk:
    """A chunk of one task."""
    chunk = _core.Chunk()
    chunk.add(ID, ENVELOPE, b"5")
    return chunk


def filled_outcomes() -> _core.Outcomes:
    """One success."""
    outcomes = _core.Outcomes("w")
    outcomes.succeed(CLAIM, RESULT, NOW_MS + 5, MAX_BYTES)
    return outcomes


def timed_outcomes() -> _core.Outcomes:
    """One success that ran for 2 ms."""
    outcomes = _core.Outcomes("w")
    outcomes.succeed(CLAIM, RESULT, NOW_MS + 5, MAX_BYTES, 2_000_000)
    return outcomes


def new_slots(create: bool = True) -> _core.Slots:
    """Slots of one child with one place."""
    return _core.Slots(MEMORY, 1, 1, create)


def read(value: object, **expected: object) -> Case:
    """Read every attribute of a value; `expected` names them all."""
    get = attrgetter(*expected)
    return Case(lambda: get(value), tuple(expected.values()), tuple(expected))


def empty_slots() -> _core.Slots:
    """The slots, as a new child finds them."""
    SLOTS.reset(0)
    return SLOTS


def offering_slots() -> _core.Slots:
    """Claims 1 and 2 may begin."""
    empty_slots().offer(0, 1, 2)
    return SLOTS


def start(slots: _core.Slots) -> None:
    """Write a row."""
    slots.start(0, 0, ENTRY, 0, 5, 1, 1, 7, 0)


def limits(slots: _core.Slots) -> list[int]:
    """When the attempts that execute have to end."""
    return [row.limit_ns for row in slots.rows(0)]


def running_slots() -> _core.Slots:
    """One attempt is executing."""
    start(empty_slots())
    return SLOTS


def averaged(*took_ns: int) -> _core.Average:
    """What is known of handlers that took so long."""
    average = _core.Average()
    for took in took_ns:
        average.ran(took)
    return average


class Executor:
    """One handler that returns what it is given."""

    function = staticmethod(dict)
    names = frozenset(PAYLOAD)
    is_async = wants_context = False
    recent_ns = -1

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name}: a plain success needs nothing of it")


def new_loop() -> _core.SyncLoop:
    """A loop of sync handlers, in which time stands still."""
    return _core.SyncLoop(
        slots=offering_slots(), child=0, average=_core.Average(), executor=Executor(), routes={"mail.send": Executor()},
        loads=orjson.loads, boottime_ns=lambda: 7, collect=print, collects=True, inlines=True, timeout_ns=0,
        claim_max=2, result_max_bytes=MAX_BYTES,
    )  # fmt: skip


def looped() -> tuple[str, list[str]]:
    """One claim goes through a loop."""
    SLOTS.set_safe_until(8)
    outcomes = _core.Outcomes("w")
    return new_loop().run(deque([CLAIM]), 0, "default", outcomes, None, 0, 1), outcomes.ids


def once(make: Callable[[], Any], work: Callable[[Any], object], look: Callable[[Any], object]) -> Callable[[], object]:
    """Work on an object made for it; what the object then looks like."""

    def run() -> object:
        made = make()
        work(made)
        return look(made)

    return run


MEMORY: Final = os.memfd_create("slots")
PLACE_SIZE: Final = 21
"""A place of one byte and the number of its tasks, as Chunk reckons them."""
SLOTS: Final = new_slots()
CHUNK: Final = filled_chunk()
OUTCOMES: Final = filled_outcomes()
DUE_TASKS: Final = _core.parse_due(DUE)

ENQUEUE_ONE: Final = b"*4\r\n" + PREFIX + b"$1\r\n5\r\n" + ID_BLOCK + ENVELOPE_BLOCK
ENQUEUE: Final = b"*6\r\n" + PREFIX + b"$1\r\n1\r\n$1\r\n5\r\n$1\r\n1\r\n" + ID_BLOCK + ENVELOPE_BLOCK
PROMOTE: Final = b"*5\r\n" + PREFIX + ID_BLOCK + b"$13\r\n1700000000000\r\n$1\r\n5\r\n$0\r\n\r\n"
NUMBERS: Final = struct.pack("<Q6IBB", 2, 3, 4, 1, 0, 0, 1, 0, 3)
"""Of a turn: first_seq, want, max_bytes, outcomes, adopts, held, heads, flags, shape."""
SETTLED: Final = _core.pack_command(
    ["X", "c", "0000000000000001", NUMBERS, "S586400000", 1, LIVE, ENTRY, ID, ENTRY, RECORD_OF_RESULT]
)

TIMED: Final = struct.pack("<66Q", *(1, 0, 0, 0, 0, 0), *(0, 0, 1), *[0] * 16, 3_000, *(0, 1), *[0] * 17, 2_000,
                           *(0, 0, 1), *[0] * 16, 5_000)  # fmt: skip
"""It waited for 3 ms, ran for 2, and took 5 in all."""

FUNCTIONS: Final[dict[str, Case]] = {
    "new_ids": Case(lambda: _core.new_ids(NOW_MS, RANDOM, 1), ["02usyDNX9I7QbdIeUhiZj7"]),
    "id_time_ms": Case(lambda: _core.id_time_ms(ID), NOW_MS),
    "check_json": Case(lambda: _core.check_json(PAYLOAD_JSON), None),
    "encode_json": Case(lambda: _core.encode_json(PAYLOAD), PAYLOAD_JSON),
    "parse_envelope": Case(lambda: _core.parse_envelope(ENVELOPE).payload, PAYLOAD_JSON),
    "parse_record": Case(lambda: _core.parse_record(RECORD).envelope, ENVELOPE),
    "encode_record": Case(lambda: _core.encode_record(4, 1, 0, 1, 2, 3, LIVE, b"{}", ENVELOPE), RECORD),
    "pack_command": Case(lambda: _core.pack_command(["X", 1, b"a"]), b"*3\r\n$1\r\nX\r\n$1\r\n1\r\n$1\r\na\r\n"),
    "pack_args": Case(lambda: _core.pack_args(["X"]), PREFIX),
    "parse_claims": Case(lambda: _core.parse_claims(TURN, CONSUMER, 1).claims[0].id, ID),
    "parse_delivery": Case(lambda: repr(_core.parse_delivery(DELIVERY)), f"<Claim {ID} mail.send attempt 1>"),
    "parse_due": Case(lambda: _core.parse_due(DUE)[0].band, 5),
    "encode_promote": Case(lambda: _core.encode_promote(DUE_TASKS, PREFIX, 1), PROMOTE),
}

METHODS: Final[dict[str, Case]] = {
    "EnvelopeHead.__new__": Case(lambda: _core.EnvelopeHead("a", 5, 3, 1, 2).encode_raw(b"")[:2], b"\x01\x05"),
    "EnvelopeHead.encode": Case(lambda: HEAD.encode(PAYLOAD, MAX_BYTES), ENVELOPE),
    "EnvelopeHead.pack_task": Case(
        lambda: HEAD.pack_task(PREFIX, NOW_MS, RANDOM, PAYLOAD, MAX_BYTES), (ID, PREFIX + ID_BLOCK + ENVELOPE_BLOCK)
    ),
    "EnvelopeHead.encode_raw": Case(lambda: HEAD.encode_raw(PAYLOAD_JSON), ENVELOPE),
    "Chunk.__new__": Case(lambda: _core.Chunk().byte_size, 0),
    "Chunk.__len__": Case(lambda: len(CHUNK), 1),
    "Chunk.add": Case(once(_core.Chunk, lambda chunk: chunk.add(ID, ENVELOPE, b"5"), lambda chunk: chunk.ids), [ID]),
    "Chunk.add_payload": Case(
        once(_core.Chunk, lambda chunk: chunk.add_payload(ID, HEAD, PAYLOAD, MAX_BYTES, b"5"), lambda chunk: chunk.ids),
        [ID],
    ),
    "Chunk.extend": Case(lambda: _core.Chunk().extend([ID], HEAD, [PAYLOAD], MAX_BYTES, b"5"), []),
    "Chunk.pack": Case(lambda: CHUNK.pack(PREFIX, 1), ENQUEUE),
    "Chunk.pack_one": Case(lambda: CHUNK.pack_one(PREFIX, 1), ENQUEUE_ONE),
    "Outcomes.__new__": Case(lambda: _core.Outcomes("w").ids, []),
    "Outcomes.__len__": Case(lambda: len(OUTCOMES), 1),
    "Outcomes.clear": Case(once(filled_outcomes, lambda outcomes: outcomes.clear(), len), 0),
    "Outcomes.succeed": Case(lambda: filled_outcomes().ids, [ID]),
    "Outcomes.settle": Case(
        once(
            lambda: _core.Outcomes("w"),
            lambda outcomes: outcomes.settle(CLAIM, "R", NOW_MS, 1_500, b"{}", b"history\n"),
            lambda outcomes: outcomes.ids,
        ),
        [ID],
    ),
    "Outcomes.pack_turn": Case(lambda: OUTCOMES.pack_turn(PREFIX, 1, "c", 1, 2, 3, 4, 0, [], []), SETTLED),
    "Outcomes.take_timings": Case(lambda: timed_outcomes().take_timings(), [("mail.send", TIMED)]),
    "Claim.limit_ns": Case(lambda: CLAIM.limit_ns(7, 8, 0), 60_000_000_007),
    "Slots.__new__": Case(lambda: new_slots(create=False).places, 1),
    "Slots.byte_size": Case(lambda: _core.Slots.byte_size(1, 1), 192),
    "Slots.set_safe_until": Case(lambda: SLOTS.set_safe_until(7), None),
    "Slots.safe_until": Case(once(lambda: SLOTS, lambda slots: slots.set_safe_until(8), lambda s: s.safe_until()), 8),
    "Slots.offer": Case(once(empty_slots, lambda slots: slots.offer(0, 5, 3), lambda slots: slots.window(0)), 3),
    "Slots.begin": Case(once(offering_slots, lambda slots: slots.begin(0, 1), lambda slots: slots.watermark(0)), 2),
    "Slots.revoke": Case(once(offering_slots, lambda slots: None, lambda slots: slots.revoke(0)), (1, 3)),
    "Slots.watermark": Case(lambda: offering_slots().watermark(0), 1),
    "Slots.window": Case(lambda: offering_slots().window(0), 2),
    "Slots.reset": Case(once(offering_slots, lambda slots: slots.reset(0), lambda slots: slots.window(0)), 0),
    "Slots.start": Case(once(empty_slots, start, lambda slots: len(slots.rows(0))), 1),
    "Slots.enter": Case(
        once(offering_slots, lambda slots: slots.enter(0, 0, CLAIM, 0, 7, 8, 0), limits), [60_000_000_007]
    ),
    "Slots.finish": Case(once(running_slots, lambda slots: slots.finish(0, 0), lambda slots: slots.rows(0)), []),
    "Slots.rows": Case(lambda: running_slots().rows(0)[0].entry, ENTRY),
    "Average.__new__": Case(lambda: _core.Average().ns, 0.0),
    "Average.ran": Case(lambda: averaged(1000, 0).ns, 475.0),
    "SyncLoop.__new__": Case(lambda: new_loop().done, 0),
    "SyncLoop.run": Case(looped, ("used", [ID])),
}

ATTRIBUTES: Final[dict[str, Case]] = {
    "CoreError": read(_core.CoreError("message"), field="", kind="invalid"),
    "Envelope": read(
        _core.parse_envelope(ENVELOPE),
        version=1, task_type="mail.send", band=5, max_attempts=3, timeout_ms=60_000, retention_ms=86_400_000,
        dead_letter=True, extras=b"", payload=PAYLOAD_JSON,
    ),
    "Record": read(
        _core.parse_record(RECORD),
        status=4, attempt=1, released=0, created_ms=1, started_ms=2, ended_ms=3, place=b"", token=LIVE, detail=b"{}",
        envelope=ENVELOPE, history=b"",
    ),
    "Chunk": read(CHUNK, ids=[ID], byte_size=len(ID_BLOCK + ENVELOPE_BLOCK) + PLACE_SIZE),
    "Claim": read(
        CLAIM,
        id=ID, entry=ENTRY, token=LIVE, envelope=ENVELOPE, band=5, attempt=1, released=0, seq=1, started_ms=NOW_MS,
        task_type="mail.send", payload=PAYLOAD_JSON, extras=b"", max_attempts=3, timeout_ms=60_000,
        retention_ms=86_400_000, dead_letter=True, error=None, tail=b"", deadline_ms=0, history=False, solo=False,
        cancel_requested=False,
    ),
    "TurnReply": read(REPLY, codes=b"d", claims=[CLAIM], late=False, envelope_bytes=len(ENVELOPE)),
    "Outcomes": Case(lambda: OUTCOMES.ids, [ID], ("ids",)),
    "DueTask": read(DUE_TASKS[0], id=ID, score=NOW_MS, band=5, status=4, error=None),
    "SlotRow": read(
        running_slots().rows(0)[0],
        place=0, entry=ENTRY, queue=0, band=5, seq=1, attempt=1, started_ns=7, limit_ns=0,
    ),
    "Slots": read(SLOTS, children=1, places=1),
    "Average": Case(lambda: averaged(1000).ns, 500.0, ("ns",)),
    "SyncLoop": read(new_loop(), executing=0, done=0, oldest_ns=0, leaving=False),
}  # fmt: skip
"""By class: one read of all of its attributes."""

CASES: Final[dict[str, Case]] = {
    **FUNCTIONS,
    **METHODS,
    **{f"{kind} attributes": case for kind, case in ATTRIBUTES.items()},
}
