"""dtq._core: ids, envelopes and records, and what becomes of damaged ones."""

import os
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq import _core

HEAD = struct.Struct("<BBHIQB")
RECORD_HEAD = struct.Struct("<BBHHQQQ")
milliseconds = st.integers(0, 2**48 - 1)


# --- ids ---


@given(milliseconds, st.binary(min_size=30, max_size=40))
def test_an_id_is_22_characters_and_tells_its_time(now_ms: int, random: bytes) -> None:
    ids = _core.new_ids(now_ms, random, 3)
    assert len(ids) == 3
    for task_id in ids:
        assert len(task_id) == 22
        assert task_id.isalnum()
        assert task_id.isascii()
        assert _core.id_time_ms(task_id) == now_ms


@given(milliseconds, milliseconds, st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_ids_sort_by_time(one_ms: int, other_ms: int, one: bytes, other: bytes) -> None:
    ids = _core.new_ids(one_ms, one, 1) + _core.new_ids(other_ms, other, 1)
    if one_ms != other_ms:
        assert (ids[0] < ids[1]) == (one_ms < other_ms)


def test_ids_differ() -> None:
    assert len(set(_core.new_ids(1_700_000_000_000, os.urandom(100_000), 10_000))) == 10_000


@given(st.text())
def test_other_ids_have_no_time(text: str) -> None:
    assert _core.id_time_ms(text) is None or len(text) == 22


def test_too_little_randomness_is_refused() -> None:
    with pytest.raises(_core.CoreError, match="random: 19 bytes given, 10 needed for each of 2 ids"):
        _core.new_ids(0, bytes(19), 2)
    with pytest.raises(_core.CoreError, match="now_ms: must fit 48 bits"):
        _core.new_ids(2**48, bytes(10), 1)
    assert _core.new_ids(0, b"", 0) == []


# --- envelopes ---


@given(
    task_type=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    band=st.integers(0, 9),
    max_attempts=st.integers(1, 65535),
    timeout_ms=st.integers(0, 2**32 - 1),
    retention_ms=st.integers(0, _core.FOREVER_MS),
    dead_letter=st.booleans(),
    extras=st.binary(max_size=50),
    payload=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 99)),
)
def test_an_envelope_holds_what_was_put_in(payload: dict[str, int], **options: Any) -> None:
    envelope = _core.EnvelopeHead(**options).encode(payload, 10_000)
    parsed = _core.parse_envelope(envelope)
    assert {name: getattr(parsed, name) for name in options} == options
    assert (parsed.version, parsed.payload) == (1, orjson.dumps(payload))
    assert _core.EnvelopeHead(**options).encode_raw(orjson.dumps(payload)) == envelope
    # The documented layout, read without the core.
    numbers = HEAD.unpack_from(envelope)
    off = 0 if options["dead_letter"] else 1
    expected = (1, options["band"], options["max_attempts"], options["timeout_ms"], options["retention_ms"], off)
    assert numbers == expected
    name = options["task_type"].encode()
    rest = bytes([len(name)]) + name + struct.pack("<I", len(options["extras"])) + options["extras"] + parsed.payload
    assert envelope[HEAD.size :] == rest


def head(**changes: Any) -> _core.EnvelopeHead:
    options: dict[str, Any] = {
        "task_type": "t",
        "band": 5,
        "max_attempts": 5,
        "timeout_ms": 0,
        "retention_ms": 0,
    } | changes
    return _core.EnvelopeHead(**options)


@pytest.mark.parametrize(
    "changes",
    [
        {"task_type": ""},
        {"task_type": "ä" * 128},
        {"task_type": "\ud800"},
        {"band": 10},
        {"band": -1},
        {"max_attempts": 0},
        {"max_attempts": 65536},
        {"timeout_ms": -1},
        {"timeout_ms": 2**32},
        {"retention_ms": -1},
        {"retention_ms": 2**53},
    ],
    ids=str,
)
def test_an_option_out_of_bounds_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(_core.CoreError) as caught:
        head(**changes)
    assert caught.value.field == next(iter(changes))


def test_a_payload_must_be_a_dict_and_fit() -> None:
    with pytest.raises(_core.CoreError, match=r"^payload: must be a dict, not list$"):
        head().encode([1], 100)
    assert head().encode({}, 2).endswith(b"{}")
    with pytest.raises(_core.CoreError) as caught:
        head(extras=b"x" * 500).encode({"a": 1}, 6)
    assert caught.value.kind == "too_large"


def test_both_versions_are_named() -> None:
    for parse, bytes_of in ((_core.parse_envelope, "envelope"), (_core.parse_record, "record")):
        with pytest.raises(_core.CoreError, match=f"unknown {bytes_of} version 2; this dtq reads version 1"):
            parse(b"\x02whatever")


@given(st.binary(max_size=200))
def test_damaged_envelopes_are_refused_or_read(data: bytes) -> None:
    for candidate in (data, b"\x01" + data):
        try:
            parsed = _core.parse_envelope(candidate)
        except _core.CoreError as error:
            assert error.field.startswith("envelope.")  # noqa: PT017 (either outcome is right)
        else:
            assert candidate.endswith(parsed.extras + parsed.payload)


@given(st.data())
def test_a_flipped_byte_never_breaks_the_parser(data: st.DataObject) -> None:
    envelope = bytearray(head(task_type="mail.send", extras=b"{}").encode({"a": [1, 2, 3]}, 100))
    envelope[data.draw(st.integers(0, len(envelope) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        _core.parse_envelope(bytes(envelope))
    except _core.CoreError as error:
        assert error.field.startswith("envelope.")  # noqa: PT017 (either outcome is right)


# --- records ---

u16, u64, blocks = st.integers(0, 2**16 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=60)


@given(
    status=st.integers(0, 9),
    attempt=u16,
    released=u16,
    created_ms=u64,
    started_ms=u64,
    ended_ms=u64,
    token=blocks,
    detail=blocks,
    envelope=blocks,
    history=blocks,
    place=blocks,
)
def test_a_record_holds_what_was_put_in(**fields: Any) -> None:
    record = _core.encode_record(**fields)
    parsed = _core.parse_record(record)
    assert {name: getattr(parsed, name) for name in fields} == fields
    numbers = ("status", "attempt", "released", "created_ms", "started_ms", "ended_ms")
    expected = RECORD_HEAD.pack(1, *(fields[name] for name in numbers))
    expected += bytes([len(fields["place"])]) + fields["place"]
    for name in ("token", "detail", "envelope"):
        expected += struct.pack("<I", len(fields[name])) + fields[name]
    assert record == expected + fields["history"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", 10), ("status", -1), ("attempt", 65536), ("released", -1), ("created_ms", -1), ("place", b"x" * 256)],
)
def test_a_record_field_that_does_not_fit_is_named(field: str, value: object) -> None:
    fields: dict[str, Any] = dict.fromkeys(("status", "attempt", "released", "created_ms", "started_ms", "ended_ms"), 1)
    fields |= {"token": b"", "detail": b"", "envelope": b"", field: value}
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_record(**fields)
    assert caught.value.field == field


@given(st.binary(max_size=200))
def test_damaged_records_are_refused_or_read(data: bytes) -> None:
    for candidate in (data, b"\x01\x05" + data):
        try:
            parsed = _core.parse_record(candidate)
        except _core.CoreError as error:
            assert error.field.startswith("record.")  # noqa: PT017 (either outcome is right)
        else:
            assert candidate.endswith(parsed.history)
