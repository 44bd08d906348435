"""dtq._core: commands in wire form, and the chunk of an enqueue call."""

from typing import Any

import hiredis
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import Connection

from dtq import _core

arguments = st.binary() | st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**64)
HEAD = _core.EnvelopeHead("mail.send", 5, 5, 60_000, 86_400_000)


def parse(command: bytes) -> list[bytes]:
    """The arguments of a command, read by hiredis."""
    reader = hiredis.Reader()
    reader.feed(command)
    arguments: list[bytes] = reader.gets()
    assert reader.gets() is False, "one command, nothing after it"
    return arguments


@given(st.lists(arguments, max_size=8))
def test_a_command_is_what_redis_py_sends(args: list[bytes | str | int]) -> None:
    packed = _core.pack_command([b"EVALSHA", *args])
    assert packed == b"".join(Connection().pack_command("EVALSHA", *args))  # type: ignore[no-untyped-call]
    assert packed == b"*%d\r\n" % (1 + len(args)) + _core.pack_args(["EVALSHA", *args])


@pytest.mark.parametrize("wrong", [1.5, None, True, [], "\ud800", 2**128])
def test_other_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises(_core.CoreError) as caught:
        _core.pack_command(["GET", wrong])
    assert caught.value.field == "args[1]"


def test_a_chunk_packs_its_places_then_id_and_envelope_of_each_task() -> None:
    chunk = _core.Chunk()
    assert (len(chunk), chunk.byte_size, chunk.ids) == (0, 0, [])
    chunk.add("one", b"envelope", b"5")
    chunk.add_payload("two", HEAD, {"a": 1}, 100, b"5b7;")
    assert chunk.extend(["three", "four"], HEAD, [{"b": 2}, {}], 100, b"0") == []
    assert (len(chunk), chunk.ids) == (4, ["one", "two", "three", "four"])
    prefix = _core.pack_args(["EVALSHA", "sha", 1, "key"])
    packed = chunk.pack(prefix, 4)
    assert len(prefix) + chunk.byte_size <= len(packed) + 20
    assert parse(packed) == [
        *(b"EVALSHA", b"sha", b"1", b"key"),
        *(b"3", b"5", b"1", b"5b7;", b"1", b"0", b"2"),
        *(b"one", b"envelope"),
        *(b"two", HEAD.encode({"a": 1}, 100)),
        *(b"three", HEAD.encode({"b": 2}, 100)),
        *(b"four", HEAD.encode({}, 100)),
    ]


def test_the_only_task_of_a_chunk_packs_for_the_short_script() -> None:
    chunk = _core.Chunk()
    chunk.add("one", b"envelope", b"5")
    assert parse(chunk.pack_one(_core.pack_args([b"X"]), 1)) == [b"X", b"5", b"one", b"envelope"]
    chunk.add("two", b"envelope", b"5")
    with pytest.raises(_core.CoreError, match=r"^chunk: has 2 tasks"):
        chunk.pack_one(b"", 0)


def test_a_task_packs_with_a_new_id_behind_a_front() -> None:
    now_ms, random = 1_700_000_000_000, bytes(range(10))
    task_id, command = HEAD.pack_task(b"*3\r\n" + _core.pack_args([b"X"]), now_ms, random, {"a": 1}, 100)
    assert [task_id] == _core.new_ids(now_ms, random, 1)
    assert parse(command) == [b"X", task_id.encode(), HEAD.encode({"a": 1}, 100)]


@pytest.mark.parametrize(
    ("now_ms", "random", "payload", "complaint"),
    [
        (1 << 48, bytes(10), {}, r"^now_ms: must fit 48 bits"),
        (1, bytes(9), {}, r"^random: 9 bytes given, an id needs 10"),
        (1, bytes(11), {}, r"^random: 11 bytes given"),
        (1, bytes(10), [], r"^payload: "),
        (1, bytes(10), {"a": "x" * 100}, r"^payload: "),
        (1, bytes(10), {"a": {1}}, r"^payload\.a: "),
    ],
)
def test_a_task_that_cannot_be_packed(now_ms: int, random: bytes, payload: object, complaint: str) -> None:
    with pytest.raises(_core.CoreError, match=complaint):
        HEAD.pack_task(b"", now_ms, random, payload, 100)


@given(st.lists(st.one_of(st.dictionaries(st.text(), st.integers() | st.floats() | st.text()), st.integers())))
def test_bad_payloads_are_left_out_and_reported(payloads: list[Any]) -> None:
    chunk = _core.Chunk()
    ids = _core.new_ids(1, bytes(10 * len(payloads)), len(payloads))
    refused = dict(chunk.extend(ids, HEAD, payloads, 60, b"5"))
    accepted = [index for index in range(len(payloads)) if index not in refused]
    assert chunk.ids == [ids[index] for index in accepted]
    envelopes = parse(chunk.pack(b"", 0))[4::2] if accepted else []
    assert [orjson.loads(_core.parse_envelope(envelope).payload) for envelope in envelopes] == [
        payloads[index] for index in accepted
    ]
    for index, error in refused.items():
        with pytest.raises(_core.CoreError) as caught:
            HEAD.encode(payloads[index], 60)
        assert (str(error), error.kind) == (str(caught.value), caught.value.kind)


def test_a_refused_task_leaves_the_chunk_unchanged() -> None:
    chunk = _core.Chunk()
    chunk.add("one", b"envelope", b"5")
    before = chunk.pack(b"", 0)
    with pytest.raises(_core.CoreError):
        chunk.add_payload("two", HEAD, {"a": {1, 2}}, 100, b"5")
    with pytest.raises(_core.CoreError, match=r"^id: "):
        chunk.add("\ud800", b"", b"")
    with pytest.raises(_core.CoreError, match=r"^ids: 1 ids for 2 payloads"):
        chunk.extend(["two"], HEAD, [{}, {}], 100, b"5")
    with pytest.raises(_core.CoreError, match=r"^ids\[1\]: "):
        chunk.extend(["two", 3], HEAD, [{}, {}], 100, b"5")  # type: ignore[list-item]
    assert chunk.pack(b"", 0) == before
