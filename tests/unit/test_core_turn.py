"""dtq._core: claims of a turn's reply, outcomes on their way back, and due tasks."""

import os
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_core_commands import parse

from dtq import _core

TASK_ID = _core.new_ids(1_700_000_000_000, bytes(10), 1)[0]
ENTRY = b"1700000000123-4"


NUMBERS = struct.Struct("<QIIIIIIBB")


def envelope(retention_ms: int = 1000, band: int = 5) -> bytes:
    return _core.EnvelopeHead("mail.send", band, 3, 60_000, retention_ms, False, b'{"headers":{}}').encode({"a": 1}, 99)


def reply_of(
    tail: bytes = b"", attempt: int = 1, body: bytes | None = None, task_id: bytes = TASK_ID.encode(), band: Any = 5
) -> list[Any]:
    token = b"r:%d:0:%s:host-abcdefgh.1.2:7:1700000000200:%s" % (attempt, ENTRY, tail)
    return [ENTRY, task_id, token, band, envelope() if body is None else body]


def claim_of(*args: Any, **options: Any) -> _core.Claim:
    return _core.parse_claims([b"", b"1", *reply_of(*args, **options)]).claims[0]


# --- claims ---


def test_a_claim_tells_what_the_reply_and_the_envelope_say() -> None:
    reply = [b"dsg", b"1", *reply_of(b"x9;d1700000009999;s;h;i%3B;c", attempt=2), *reply_of(band=b"0")]
    turn = _core.parse_claims(reply)
    assert (turn.codes, turn.late, len(turn.claims)) == (b"dsg", False, 2)
    claim, other = turn.claims
    assert (claim.id, claim.entry, claim.token, claim.envelope) == (TASK_ID, ENTRY, reply[4], reply[6])
    assert (claim.attempt, claim.released, claim.seq, claim.started_ms) == (2, 0, 7, 1_700_000_000_200)
    assert (claim.task_type, claim.band, claim.max_attempts, claim.timeout_ms) == ("mail.send", 5, 3, 60_000)
    assert (claim.retention_ms, claim.dead_letter, claim.extras) == (1000, False, b'{"headers":{}}')
    assert (claim.payload, claim.error) == (b'{"a":1}', None)
    assert (claim.tail, claim.deadline_ms) == (b"x9;d1700000009999;s;h;i%3B;c", 1_700_000_009_999)
    assert (claim.history, claim.solo, claim.cancel_requested) == (True, True, True)
    assert (other.tail, other.deadline_ms, other.band) == (b"", 0, 0)
    assert (other.history, other.solo, other.cancel_requested) == (False, False, False)
    assert repr(claim) == f"<Claim {TASK_ID} mail.send attempt 2>"


def test_an_attempt_ends_at_its_time_limit_or_at_its_deadline() -> None:
    """Clocks differ: an offset of 1 ms is what Redis' clock is ahead of the worker's."""
    claim, unlimited = claim_of(b"d1700000009999;"), claim_of()
    begun = 1_700_000_009_999_000_000
    assert unlimited.limit_ns(100, 5, -7) == 60_000_000_100, "its own limit of 60 s"
    assert claim.limit_ns(begun - 2_000_000, 5, 0) == begun
    assert claim.limit_ns(begun - 2_000_000, 5, 1_000_000) == begun - 1_000_000
    assert claim.limit_ns(begun + 7, 5, 0) == begun + 8, "a deadline that has passed ends it at once"
    assert claim.limit_ns(100, 5, 0) == 60_000_000_100


def test_a_claim_enters_its_row_if_it_may_begin() -> None:
    memory = os.memfd_create("slots")
    slots = _core.Slots(memory, 1, 1, True)
    os.close(memory)
    claim = claim_of(b"d1700000009999;", attempt=2)
    assert not slots.enter(0, 0, claim, 3, 11, 50, 0)
    assert slots.rows(0) == []
    assert slots.offer(0, claim.seq, 1)
    assert slots.enter(0, 0, claim, 3, 11, 50, 0)
    assert not slots.enter(0, 0, claim, 3, 12, 50, 0), "it has begun"
    (row,) = slots.rows(0)
    assert (row.entry, row.queue, row.band, row.seq, row.attempt) == (ENTRY, 3, 5, claim.seq, 2)
    assert (row.started_ns, row.limit_ns, slots.watermark(0)) == (11, 60_000_000_011, claim.seq + 1)
    with pytest.raises(IndexError, match="place 1 of 1"):
        slots.enter(0, 1, claim, 3, 11, 50, 0)


def test_a_plain_claim_comes_without_its_live_value() -> None:
    """It is made from the consumer, the numbers of the turn and the server's time, as the script made it."""
    plain = [ENTRY, TASK_ID.encode(), 5, envelope()]
    first, odd, last = _core.parse_claims([b"", b"1700000000200", *plain, *reply_of(), *plain], "host-a.1.2", 9).claims
    assert (first.token, last.seq, odd.seq) == (b"r:1:0:%s:host-a.1.2:9:1700000000200:" % ENTRY, 11, 7)
    assert (first.attempt, first.released, first.seq, first.started_ms) == (1, 0, 9, 1_700_000_000_200)
    assert (first.tail, first.error, first.id, first.payload) == (b"", None, TASK_ID, b'{"a":1}')


def test_a_late_send_is_told() -> None:
    turn = _core.parse_claims([b"late"])
    assert (turn.late, turn.codes, turn.claims) == (True, b"", [])
    assert not _core.parse_claims([b""]).late
    assert not _core.parse_claims([b"", b"1"]).claims


def _resp(value: object) -> bytes:
    """A reply as the server writes it."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    assert isinstance(value, list)
    return b"*%d\r\n" % len(value) + b"".join(map(_resp, value))


def test_a_delivery_is_read_in_one() -> None:
    """It makes the claim that the two replies make one by one; anything else is left to them."""
    items = reply_of()
    entry, task_id, body = items[0], items[1], items[4]
    read, adoption = _resp([[b"stream:5", [[entry, [task_id, body]]]]]), [b"", b"1700000000200", *items[:3], 5, body]
    (expected,) = _core.parse_claims(adoption).claims
    claim = _core.parse_delivery(read + _resp(adoption))
    assert claim is not None
    names = [name for name in dir(expected) if not name.startswith("_") and name != "limit_ns"]
    assert [getattr(claim, name) for name in names] == [getattr(expected, name) for name in names]
    refusal = b"-NOSCRIPT No matching script.\r\n"
    for other in [b"", read, read + _resp([b""]), read + refusal, _resp(adoption), read + _resp(adoption)[:-1]]:
        assert _core.parse_delivery(other) is None


@given(st.binary(max_size=80) | st.builds(_resp, st.recursive(st.binary(max_size=5) | st.integers(0, 20), st.lists)))
def test_what_is_no_delivery_is_none(answers: bytes) -> None:
    assert _core.parse_delivery(answers) is None


@pytest.mark.parametrize("body", [b"", b"\x09", b"\x01\x05", envelope()[:-20]])
def test_a_damaged_envelope_is_an_error_of_its_claim_only(body: bytes) -> None:
    damaged, good = _core.parse_claims([b"", b"1", *reply_of(body=body), *reply_of()]).claims
    assert damaged.error is not None
    assert damaged.error.startswith("envelope.")
    assert (damaged.id, damaged.attempt, damaged.seq, damaged.envelope) == (TASK_ID, 1, 7, body)
    assert (damaged.task_type, damaged.payload, damaged.extras, damaged.max_attempts) == ("", b"", b"", 0)
    assert good.error is None


def test_an_id_that_is_no_utf8_is_sent_back_as_it_came() -> None:
    claim = claim_of(task_id=b"a\xff")
    assert claim.id == "a\udcff"
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim, None, 1, 10)
    assert b"\r\na\xff\r\n" in outcomes.pack_turn(b"", 0, "c", 1, 1, 1, 1, False, [], [])


reply_items = st.binary(max_size=60) | st.integers() | st.none() | st.text(max_size=5)


@given(st.lists(reply_items, max_size=11))
def test_a_reply_of_another_shape_is_refused(reply: list[object]) -> None:
    try:
        turn = _core.parse_claims(reply)
    except _core.CoreError as error:
        assert error.field.startswith("reply")  # noqa: PT017 (either outcome is right)
    else:
        assert len(reply) <= 2 or len(turn.claims) * 4 + 2 <= len(reply) <= len(turn.claims) * 5 + 2


@given(*[st.binary(max_size=80)] * 4, st.integers(0, 9))
def test_hostile_bytes_make_a_claim_with_an_error(
    entry: bytes, task_id: bytes, token: bytes, body: bytes, band: int
) -> None:
    claim = _core.parse_claims([b"", b"1", entry, task_id, token, band, body]).claims[0]
    facts = [getattr(claim, name) for name in dir(claim) if not name.startswith("_")]
    assert facts
    repr(claim).encode(errors="replace")
    outcomes = _core.Outcomes("w")
    outcomes.settle(claim, "D", 1, 0, b"{}")
    outcomes.succeed(claim, {}, 1, 100)
    assert len(packed(outcomes)) == 2


@given(st.binary(max_size=30))
def test_any_tail_can_be_asked(tail: bytes) -> None:
    claim = claim_of(tail)
    assert claim.tail == tail
    assert claim.history == (b"h" in tail.split(b";"))
    assert claim.cancel_requested == (tail.split(b";")[-1] == b"c")
    assert claim.deadline_ms >= 0


# --- outcomes ---


def outcomes_of(turn: bytes) -> list[list[bytes]]:
    """[id, token, head, record] of each outcome of a turn without a prefix."""
    args = parse(turn)
    _, _, _, count, _, _, runs, _, shape = NUMBERS.unpack(args[2])
    heads = [head for run in range(runs) for head in [args[3 + 2 * run]] * int(args[4 + 2 * run])]
    rest = args[3 + 2 * runs :]
    tokens = rest.pop(0).split(b"\n") if shape & 2 else []
    greatest = rest.pop(0) if shape & 2 else b""
    columns = [[rest.pop(0) for _ in range(count)] for _ in range(3 if shape & 1 else 2)]
    assert rest == []
    assert not shape & 2 or greatest == max(columns[1], key=lambda entry: tuple(map(int, entry.split(b"-"))))
    records = columns[2] if shape & 1 else [b""] * count
    return [list(each) for each in zip(columns[0], tokens or columns[1], heads, records, strict=True)]


def packed(outcomes: _core.Outcomes) -> list[list[bytes]]:
    return outcomes_of(outcomes.pack_turn(b"", 0, "c", 1, 1, 1, 1, False, [], []))


def test_the_arguments_of_a_turn_stand_in_order() -> None:
    outcomes = _core.Outcomes("w")
    outcomes.settle(claim_of(), "C", 5, 0, b"{}")
    prefix = _core.pack_args(["EVALSHA", "sha"])
    turn = outcomes.pack_turn(prefix, 2, "w.1.2", 3, 4, 5, 6, True, [(7, b"8-0", b"nine")], [b"10-0", b"11-0"])
    args = parse(turn)
    assert args[:4] == [b"EVALSHA", b"sha", b"w.1.2", b"0000000000000003"]
    assert NUMBERS.unpack(args[4]) == (4, 5, 6, 1, 1, 2, 1, 1, 1)
    assert args[5:7] == [b"C50", b"1"]
    assert args[10:] == [b"7", b"8-0", b"nine", b"10-0", b"11-0"]


def test_plain_successes_are_sent_to_be_compared_in_one_go() -> None:
    """Joined live values and the greatest entry, then ids, entries and, if there are such, records."""
    outcomes, claim = _core.Outcomes("w"), claim_of(b"w;", body=envelope(0))
    for entry in (b"9-7", b"10-8", b"10-7"):
        (each,) = _core.parse_claims([b"", b"1", entry, *reply_of(b"w;", body=envelope(0))[1:]]).claims
        outcomes.succeed(each, None, 1, 100)
    args = parse(outcomes.pack_turn(b"", 0, "c", 1, 1, 1, 1, 0, [], []))
    assert NUMBERS.unpack(args[2])[-1] == 2
    ids = [TASK_ID.encode()] * 3
    assert args[3:] == [b"S50", b"3", b"\n".join([claim.token] * 3), b"10-8", *ids, b"9-7", b"10-8", b"10-7"]


def test_a_success_makes_a_record_with_the_result() -> None:
    outcomes = _core.Outcomes('w"1')
    claim = claim_of(attempt=2)
    outcomes.succeed(claim, {"ok": (1, 2)}, 1_700_000_000_900, 100)
    assert (len(outcomes), outcomes.ids) == (1, [TASK_ID])
    [[task_id, token, head, record]] = packed(outcomes)
    assert (task_id.decode(), token, head) == (TASK_ID, claim.token, b"S51000")
    parsed = _core.parse_record(record)
    assert (parsed.status, parsed.attempt, parsed.released) == (5, 2, 0)
    assert (parsed.created_ms, parsed.started_ms, parsed.ended_ms) == (
        *(1_700_000_000_000, 1_700_000_000_200, 1_700_000_000_900),
    )
    assert orjson.loads(parsed.detail) == {"worker_id": 'w"1', "result": {"ok": [1, 2]}}
    assert (parsed.token, parsed.envelope, parsed.history, parsed.place) == (claim.token, claim.envelope, b"", b"")


@pytest.mark.parametrize(
    ("retention_ms", "tail", "head", "has_record"),
    [
        (0, b"", b"S50", False),
        (0, b"d5;", b"S50", False),
        (0, b"h;", b"S50", True),
        (_core.FOREVER_MS, b"", b"S5-1", True),
        (7, b"", b"S57", True),
    ],
)
def test_retention_decides_about_the_record(retention_ms: int, tail: bytes, head: bytes, has_record: bool) -> None:
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim_of(tail, body=envelope(retention_ms)), None, 1, 100)
    [[_, _, found, record]] = packed(outcomes)
    assert (found, bool(record)) == (head, has_record)


@pytest.mark.parametrize("retention_ms", [0, 1000])
def test_a_result_is_checked_whatever_the_retention(retention_ms: int) -> None:
    outcomes = _core.Outcomes("w")
    claim = claim_of(body=envelope(retention_ms))
    outcomes.succeed(claim, None, 1, 100)
    before = packed(outcomes)
    with pytest.raises(_core.CoreError, match=r"^result\.a: set is not JSON"):
        outcomes.succeed(claim, {"a": set()}, 1, 100)
    with pytest.raises(_core.CoreError) as caught:
        outcomes.succeed(claim, "x" * 99, 1, 100)
    assert caught.value.kind == "too_large"
    assert packed(outcomes) == before
    outcomes.succeed(claim, "x" * 98, 1, 100)
    assert len(outcomes) == 2


@pytest.mark.parametrize(
    ("letter", "amount_ms", "head", "status"),
    [("R", 1500, b"R51500", 4), ("F", 9, b"F50", 6), ("D", 0, b"D50", 7), ("C", 0, b"C50", 8), ("L", 0, b"L50", 0)],
)
def test_other_ends_carry_detail_and_history(letter: Any, amount_ms: int, head: bytes, status: int) -> None:
    outcomes = _core.Outcomes("w")
    outcomes.settle(claim_of(), letter, 5, amount_ms, b'{"cause":"error"}', b'{"attempt":1}\n')
    [[_, _, found, record]] = packed(outcomes)
    parsed = _core.parse_record(record)
    assert (found, parsed.status, parsed.detail, parsed.history) == (
        *(head, status, b'{"cause":"error"}', b'{"attempt":1}\n'),
    )


def test_wrong_letters_and_amounts_are_refused() -> None:
    outcomes = _core.Outcomes("w")
    with pytest.raises(_core.CoreError, match="letter: must be one of R, F, D, C, L"):
        outcomes.settle(claim_of(), "S", 1, 0, b"")  # type: ignore[arg-type]
    with pytest.raises(_core.CoreError, match="amount_ms: must not be negative"):
        outcomes.settle(claim_of(), "R", 1, -1, b"")
    assert len(outcomes) == 0


@pytest.mark.parametrize(("task_id", "attempt", "created_ms"), [("mine", 1, 1_700_000_000_123), ("mine", 2, 0)])
def test_the_creation_time_of_a_given_id_is_that_of_the_first_entry(
    task_id: str, attempt: int, created_ms: int
) -> None:
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim_of(attempt=attempt, task_id=task_id.encode()), None, 1, 100)
    assert _core.parse_record(packed(outcomes)[0][3]).created_ms == created_ms


@given(st.integers(0, 6), st.integers(0, 8))
def test_the_oldest_outcomes_are_forgotten(count: int, forgotten: int) -> None:
    outcomes = _core.Outcomes("w")
    for index in range(count):
        outcomes.succeed(claim_of(task_id=b"id%d" % index), None, 1, 100)
    outcomes.clear(forgotten)
    assert outcomes.ids == [f"id{index}" for index in range(forgotten, count)]
    assert [task_id.decode() for task_id, *_ in packed(outcomes)] == outcomes.ids
    outcomes.clear()
    assert (len(outcomes), outcomes.ids) == (0, [])


# --- timings ---


def cells(outcomes: _core.Outcomes) -> dict[str, tuple[list[int], list[tuple[int, int, int]]]]:
    """By type: attempts by result, and of each measure its only bucket, how many it holds, and the sum in us."""
    found: dict[str, tuple[list[int], list[tuple[int, int, int]]]] = {}
    for name, cell in outcomes.take_timings():
        numbers = struct.unpack("<66Q", cell)
        measures: list[tuple[int, int, int]] = []
        for start in (6, 26, 46):
            counts = numbers[start : start + 19]
            measures.append((counts.index(max(counts)) if any(counts) else -1, sum(counts), numbers[start + 19]))
        found[name] = (list(numbers[:6]), measures)
    return found


MADE_MS, QUEUED_MS, ENDED_MS = 1_700_000_000_000, 1_700_000_000_123, 1_700_000_000_323


def test_an_attempt_is_counted_with_its_times() -> None:
    """Made at 0 ms, queued at 123, ended at 323 after 50: it waited 150 and took 323 in all."""
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim_of(), None, ENDED_MS, 100, 50_000_000)
    outcomes.settle(claim_of(), "R", ENDED_MS, 0, b"{}", b"", 0, 50_000_000)
    waited, ran, took = (7, 2, 300_000), (5, 2, 100_000), (8, 1, 323_000)
    assert cells(outcomes) == {"mail.send": ([1, 1, 0, 0, 0, 0], [waited, ran, took])}
    assert outcomes.take_timings() == []


def test_what_was_not_measured_is_not_counted() -> None:
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim_of(), None, ENDED_MS, 100)
    with pytest.raises(_core.CoreError):
        outcomes.succeed(claim_of(), "x" * 99, ENDED_MS, 10, 50_000_000)
    assert outcomes.take_timings() == []


@pytest.mark.parametrize(("tail", "attempt"), [(b"s;", 2), (b"h;s;c", 2)])
def test_an_attempt_on_the_entry_of_another_has_not_waited(tail: bytes, attempt: int) -> None:
    """After a death the entry is that of the attempt that died."""
    outcomes = _core.Outcomes("w")
    outcomes.succeed(claim_of(tail=tail, attempt=attempt), None, ENDED_MS, 100, 50_000_000)
    [(_, measures)] = cells(outcomes).values()
    assert [count for _, count, _ in measures] == [0, 1, 1]


def test_what_nobody_could_run_has_no_times_and_no_name() -> None:
    """The names of unknown types come from anybody."""
    outcomes = _core.Outcomes("w")
    outcomes.settle(claim_of(), "D", ENDED_MS, 0, b"{}", b"", 0, -1)
    outcomes.settle(claim_of(body=b"\x07"), "D", ENDED_MS, 0, b"{}", b"", 0, -1)
    [(name, (results, measures))] = cells(outcomes).items()
    assert (name, results, [count for _, count, _ in measures]) == ("(unknown)", [0, 0, 0, 2, 0, 0], [0, 0, 2])


@given(st.lists(st.integers(0, 2**62), max_size=30))
def test_every_duration_is_in_its_bucket(times: list[int]) -> None:
    outcomes = _core.Outcomes("w")
    for took in times:
        outcomes.succeed(claim_of(), None, ENDED_MS, 100, took)
    found = outcomes.take_timings()
    counts = struct.unpack("<66Q", found[0][1])[26:45] if found else (0,) * 19
    bounds = (*_core.TIMING_BOUNDS_NS, 2**63)
    assert list(_core.TIMING_BOUNDS_NS) == sorted(set(_core.TIMING_BOUNDS_NS))
    for index, bound in enumerate(bounds):
        assert sum(counts[: index + 1]) == sum(took <= bound for took in times)


# --- due tasks ---


def record(status: int = 4, body: bytes | None = None) -> bytes:
    return _core.encode_record(status, 1, 0, 1, 2, 3, b"", b"{}", envelope(band=7) if body is None else body)


def test_due_tasks_become_a_promote_call() -> None:
    reply: list[object] = [b"one", b"1700000000000", record(), b"two", 1.7e12, record(1), b"three", 12, None]
    due = _core.parse_due([*reply, b"four", b"1.7e+12", False, b"five", b"5", record(body=b"\x07")])
    told = [(task.id, task.score, task.band, task.status) for task in due]
    assert told[:2] == [("one", 1_700_000_000_000, 7, 4), ("two", 1_700_000_000_000, 7, 1)]
    assert told[2:] == [("three", 12, 0, 0), ("four", 1_700_000_000_000, 0, 0), ("five", 5, 0, 0)]
    assert [task.error is None for task in due] == [True, True, False, False, False]
    assert "unknown envelope version 7" in (due[4].error or "")
    args = parse(_core.encode_promote(due, _core.pack_args(["X"]), 1))
    assert args[:5] == [b"X", b"one", b"1700000000000", b"7", b""]
    assert args[9:13] == [b"three", b"12", b"0", (due[2].error or "").encode()]


@given(st.lists(st.binary(max_size=60) | st.integers() | st.floats() | st.none() | st.booleans(), max_size=9))
def test_a_due_batch_of_anything_is_refused_or_read(reply: list[object]) -> None:
    try:
        due = _core.parse_due(reply)
    except _core.CoreError as error:
        assert error.field.startswith("reply")  # noqa: PT017 (either outcome is right)
    else:
        assert len(due) * 3 == len(reply)
        assert len(parse(_core.encode_promote(due, b"$1\r\nX\r\n", 1))) == 1 + 4 * len(due)


@given(st.binary(max_size=120))
def test_a_damaged_record_is_an_error_of_its_task_only(data: bytes) -> None:
    damaged, good = _core.parse_due([b"a", b"1", b"\x01\x04" + data, b"b", b"2", record()])
    assert (damaged.error is not None and damaged.band == 0) or damaged.status == 4
    assert good.error is None


def test_what_is_no_due_task_is_refused() -> None:
    with pytest.raises(_core.CoreError, match=r"^due\[0\]: "):
        _core.encode_promote([1], b"", 0)  # type: ignore[list-item]
