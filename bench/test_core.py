"""Micro benchmarks of dtq._core, each beside orjson plus the same work and validation in plain Python.

`make bench`, or `python -m pytest bench/test_core.py --benchmark-only --benchmark-group-by=group`. Figures are for a
batch (`BATCH` tasks of about 150 bytes of payload) unless the name says otherwise; each round is checked to be right.
"""

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from dtq import _core

T = TypeVar("T")

BATCH = 100
NOW_MS = 1_700_000_000_000
PAYLOAD: dict[str, object] = {
    "user_id": 12_345_678,
    "email": "someone@example.com",
    "amount": 12.5,
    "items": [1, 2, 3],
    "note": "hello world, this is a note",
    "flag": True,
    "extra": None,
    "tags": ["a", "b"],
}
LARGE: dict[str, object] = {"rows": [PAYLOAD] * 200}
PAYLOADS = [PAYLOAD] * BATCH
RANDOM = os.urandom(10 * BATCH)
HEAD = _core.EnvelopeHead("mail.send", 5, 5, 60_000, 86_400_000)
IDS = _core.new_ids(NOW_MS, RANDOM, BATCH)
MAX_BYTES = 262_144

ENVELOPE = struct.Struct("<BBHIQB")
RECORD = struct.Struct("<BBHHQQQB")
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def measured(benchmark: BenchmarkFixture, group: str, work: Callable[[], T], expected: T) -> None:
    """Measure `work`, and record that it does what it should."""
    benchmark.group = group
    assert work() == expected
    benchmark.extra_info["correct"] = True
    benchmark(work)


# --- the same in plain Python ---


def validate(value: object, path: str, depth: int) -> None:
    """Refuse what would not come back from JSON as it was; orjson alone accepts NaN, enums, dates and more."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path}: not JSON")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{path}: out of range")
    elif depth >= 128:
        raise ValueError(f"{path}: too deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"{path}: keys must be str")
            validate(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            validate(item, f"{path}[{index}]", depth + 1)
    else:
        raise ValueError(f"{path}: not JSON")


def plain_json(value: object, max_bytes: int = MAX_BYTES) -> bytes:
    validate(value, "payload", 0)
    encoded = orjson.dumps(value)
    if len(encoded) > max_bytes:
        raise ValueError("too large")
    return encoded


def plain_id(now_ms: int, random: bytes) -> str:
    low = int.from_bytes(random, "big")
    high = int.from_bytes(random[:2], "big") & 0xFFF
    number = now_ms << 80 | 7 << 76 | high << 64 | 2 << 62 | (low & (2**62 - 1))
    characters = []
    for _ in range(22):
        number, digit = divmod(number, 62)
        characters.append(DIGITS[digit])
    return "".join(reversed(characters))


def plain_envelope(payload: object) -> bytes:
    name = b"mail.send"
    return ENVELOPE.pack(1, 5, 5, 60_000, 86_400_000, 0) + bytes([len(name)]) + name + bytes(4) + plain_json(payload)


def plain_command(args: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args])


@dataclass(slots=True)
class PlainClaim:
    id: str
    entry: bytes
    token: bytes
    attempt: int
    seq: int
    started_ms: int
    task_type: str
    band: int
    timeout_ms: int
    retention_ms: int
    envelope: bytes
    payload: bytes


def plain_claims(reply: list[Any]) -> list[PlainClaim]:
    claims = []
    now = reply[1]
    for seq, at in enumerate(range(2, len(reply), 4)):
        entry, task_id, band, envelope = reply[at : at + 4]
        token = b"r:1:0:%b:host-abcdefgh.1.1:%d:%b:" % (entry, seq, now)
        version, _, _, timeout_ms, retention_ms, _ = ENVELOPE.unpack_from(envelope)
        if version != 1:
            raise ValueError("unknown version")
        name_end = 18 + envelope[17]
        (extras,) = struct.unpack_from("<I", envelope, name_end)
        claims.append(
            PlainClaim(
                task_id.decode(),
                entry,
                token,
                1,
                seq,
                int(now),
                envelope[18:name_end].decode(),
                band,
                timeout_ms,
                retention_ms,
                envelope,
                envelope[name_end + 4 + extras :],
            )
        )
    return claims


def plain_record(claim: PlainClaim, result: object) -> bytes:
    detail = b'{"worker_id":"w","result":%b}' % plain_json(result)
    record = RECORD.pack(1, 5, claim.attempt, 0, NOW_MS, claim.started_ms, NOW_MS, 0)
    for block in (claim.token, detail, claim.envelope):
        record += struct.pack("<I", len(block)) + block
    return record


# --- what is compared ---


@pytest.mark.parametrize(("name", "value"), [("150 bytes", PAYLOAD), ("32 KB", LARGE)])
@pytest.mark.parametrize(
    ("how", "encode"), [("core", _core.encode_json), ("plain", plain_json), ("orjson unchecked", orjson.dumps)]
)
def test_encode_payload(
    benchmark: BenchmarkFixture, name: str, value: object, how: str, encode: Callable[[object], bytes]
) -> None:
    measured(benchmark, f"encode payload, {name}", lambda: encode(value), orjson.dumps(value))


def test_new_ids_core(benchmark: BenchmarkFixture) -> None:
    measured(benchmark, f"{BATCH} ids", lambda: _core.new_ids(NOW_MS, RANDOM, BATCH), IDS)


def test_new_ids_plain(benchmark: BenchmarkFixture) -> None:
    seeds = [RANDOM[at : at + 10] for at in range(0, len(RANDOM), 10)]
    measured(benchmark, f"{BATCH} ids", lambda: [plain_id(NOW_MS, seed) for seed in seeds], IDS)


CHUNK = plain_command(
    [b"X", b"1", b"5", b"%d" % BATCH, *(part for id in IDS for part in (id.encode(), HEAD.encode(PAYLOAD, MAX_BYTES)))]
)


def test_enqueue_chunk_core(benchmark: BenchmarkFixture) -> None:
    prefix = _core.pack_args(["X"])

    def work() -> bytes:
        chunk = _core.Chunk()
        chunk.extend(_core.new_ids(NOW_MS, RANDOM, BATCH), HEAD, PAYLOADS, MAX_BYTES, b"5")
        return chunk.pack(prefix, 1)

    measured(benchmark, f"enqueue chunk of {BATCH}, ids included", work, CHUNK)


def test_enqueue_chunk_plain(benchmark: BenchmarkFixture) -> None:
    seeds = [RANDOM[at : at + 10] for at in range(0, len(RANDOM), 10)]

    def work() -> bytes:
        args = [b"X", b"1", b"5", b"%d" % BATCH]
        for seed, payload in zip(seeds, PAYLOADS, strict=True):
            args += [plain_id(NOW_MS, seed).encode(), plain_envelope(payload)]
        return plain_command(args)

    measured(benchmark, f"enqueue chunk of {BATCH}, ids included", work, CHUNK)


CONSUMER = "host-abcdefgh.1.1"
REPLY: list[Any] = [b"d" * BATCH, b"%d" % NOW_MS]
for number, task_id in enumerate(IDS):
    REPLY += [b"%d-%d" % (NOW_MS, number), task_id.encode(), 5, HEAD.encode(PAYLOAD, MAX_BYTES)]


def read(claims: list[Any]) -> int:
    """Use every attribute that a worker looks at for each task; the sum of what they say."""
    total = 0
    for claim in claims:
        total += len(claim.id) + len(claim.entry) + len(claim.task_type) + len(claim.payload)
        total += claim.seq + claim.attempt + claim.timeout_ms
    return total


def test_claims_core(benchmark: BenchmarkFixture) -> None:
    expected = read(plain_claims(REPLY))
    measured(benchmark, f"{BATCH} claims, read", lambda: read(_core.parse_claims(REPLY, CONSUMER).claims), expected)


def test_claims_plain(benchmark: BenchmarkFixture) -> None:
    expected = read(_core.parse_claims(REPLY, CONSUMER).claims)
    measured(benchmark, f"{BATCH} claims, read", lambda: read(plain_claims(REPLY)), expected)


RESULT = {"ok": True, "count": 5}


def test_settle_core(benchmark: BenchmarkFixture) -> None:
    claims = _core.parse_claims(REPLY, CONSUMER).claims
    outcomes = _core.Outcomes("w")

    def work() -> bytes:
        for claim in claims:
            outcomes.succeed(claim, RESULT, NOW_MS, MAX_BYTES)
        turn = outcomes.pack_turn(b"", 0, "c", 1, 1, 1, 1, False, [], [])
        outcomes.clear()
        return turn

    measured(benchmark, f"{BATCH} outcomes, packed", work, settle_plain())


def settle_plain() -> bytes:
    args = [b"c", b"%016d" % 1, struct.pack("<QIIIIIIBB", 1, 1, 1, BATCH, 0, 0, 1, 0, 3)]
    claim = PLAIN_CLAIMS[0]
    args += [b"S%d%d" % (claim.band, claim.retention_ms), b"%d" % BATCH]
    entries = [claim.entry for claim in PLAIN_CLAIMS]
    args += [b"\n".join(claim.token for claim in PLAIN_CLAIMS), max(entries, key=lambda entry: (len(entry), entry))]
    args += [claim.id.encode() for claim in PLAIN_CLAIMS] + entries
    args += [plain_record(claim, RESULT) for claim in PLAIN_CLAIMS]
    return plain_command(args)


PLAIN_CLAIMS = plain_claims(REPLY)


def test_settle_plain(benchmark: BenchmarkFixture) -> None:
    measured(benchmark, f"{BATCH} outcomes, packed", settle_plain, settle_plain())


DUE: list[object] = []
for task_id in IDS:
    record = _core.encode_record(4, 1, 0, 1, 2, 3, b"t", b"{}", HEAD.encode(PAYLOAD, MAX_BYTES))
    DUE += [task_id.encode(), b"%d" % NOW_MS, record]
PROMOTE = plain_command([b"X"] + [part for id in IDS for part in (id.encode(), b"%d" % NOW_MS, b"5", b"")])


def test_due_batch_core(benchmark: BenchmarkFixture) -> None:
    prefix = _core.pack_args(["X"])
    work = lambda: _core.encode_promote(_core.parse_due(DUE), prefix, 1)  # noqa: E731
    measured(benchmark, f"due batch of {BATCH}, promoted", work, PROMOTE)


def test_due_batch_plain(benchmark: BenchmarkFixture) -> None:
    def work() -> bytes:
        args: list[bytes] = [b"X"]
        for at in range(0, len(DUE), 3):
            task_id, score, record = DUE[at : at + 3]
            assert isinstance(record, bytes)
            assert isinstance(task_id, bytes)
            assert isinstance(score, bytes)
            *_, place = RECORD.unpack_from(record)
            position = RECORD.size + place
            for _ in range(2):
                (length,) = struct.unpack_from("<I", record, position)
                position += 4 + length
            version, band, *_ = ENVELOPE.unpack_from(record, position + 4)
            if version != 1:
                raise ValueError("unknown version")
            args += [task_id, b"%d" % int(score), b"%d" % band, b""]
        return plain_command(args)

    measured(benchmark, f"due batch of {BATCH}, promoted", work, PROMOTE)


def test_slot_life_core(benchmark: BenchmarkFixture) -> None:
    """One claim: offered, begun, its row written and emptied."""
    fd = os.memfd_create("slots")
    slots = _core.Slots(fd, 1, 1, True)
    os.close(fd)
    seq = 0

    def work() -> bool:
        nonlocal seq
        seq += 1
        slots.offer(0, seq, 1)
        begun = slots.begin(0, seq)
        slots.start(0, 0, b"1700000000000-0", 0, 5, seq, 1, 1, 0)
        slots.finish(0, 0)
        return begun

    measured(benchmark, "slot of one claim", work, True)
