"""dtq._core: shared memory between processes, and the core on both sides of a fork."""

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtq import _core


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("slots")
    yield fd
    os.close(fd)


def forked(work: Callable[[], bytes]) -> tuple[int, int]:
    """Run `work` in a forked child; its pid and a pipe with its answer, b"!" for an exception."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = b"!" + repr(error).encode()
        with open(write, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(write)
    return pid, read


def answer_of(pid: int, read: int) -> bytes:
    with open(read, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer


def test_the_parts_of_a_slot(fd: int) -> None:
    slots = _core.Slots(fd, 2, 3, create=True)
    assert os.fstat(fd).st_size == _core.Slots.byte_size(2, 3)
    assert (slots.children, slots.places, slots.safe_until()) == (2, 3, 0)
    slots.set_safe_until(2**64 - 1)
    again = _core.Slots(fd, 2, 3)
    assert again.safe_until() == 2**64 - 1


def test_claims_begin_in_order_until_revoked(fd: int) -> None:
    slots = _core.Slots(fd, 1, 1, True)
    assert not slots.begin(0, 0)
    assert slots.offer(0, 10, 3)
    assert not slots.begin(0, 11)
    assert slots.begin(0, 10)
    assert not slots.begin(0, 10)
    assert slots.offer(0, 13, 1)
    assert not slots.offer(0, 15, 1)
    assert (slots.watermark(0), slots.window(0)) == (11, 3)
    assert slots.revoke(0) == (11, 14)
    assert slots.revoke(0) == (11, 11)
    assert not slots.begin(0, 11)
    assert not slots.offer(0, 10, 1)
    assert slots.offer(0, 20, 1)
    assert slots.begin(0, 20)
    slots.reset(0)
    assert (slots.watermark(0), slots.window(0)) == (0, 0)


def test_rows_show_what_is_executing(fd: int) -> None:
    slots = _core.Slots(fd, 2, 3, True)
    slots.start(1, 2, b"1700000000000-12", 300, 9, 77, 70_000, 2**63, 0)
    slots.start(1, 0, b"1-0", 0, 0, 78, 1, 5, 6)
    first, second = slots.rows(1)
    assert (first.place, first.entry, first.limit_ns) == (0, b"1-0", 6)
    assert (second.place, second.entry, second.queue, second.band) == (2, b"1700000000000-12", 300, 9)
    assert (second.seq, second.attempt, second.started_ns, second.limit_ns) == (77, 70_000, 2**63, 0)
    assert slots.rows(0) == []
    slots.finish(1, 0)
    assert [row.place for row in slots.rows(1)] == [2]
    slots.reset(1)
    assert slots.rows(1) == []


def test_what_is_out_of_range_is_refused(fd: int) -> None:
    slots = _core.Slots(fd, 2, 3, True)
    for child in (2, 2**40):
        for call in (slots.watermark, slots.window, slots.revoke, slots.reset, slots.rows):
            with pytest.raises(IndexError, match=f"child {child} of 2"):
                call(child)
        with pytest.raises(IndexError, match=f"child {child} of 2"):
            slots.begin(child, 1)
    with pytest.raises(IndexError, match="place 3 of 3"):
        slots.finish(1, 3)
    with pytest.raises(IndexError, match="place 3 of 3"):
        slots.start(1, 3, b"1-0", 0, 0, 1, 1, 1, 1)
    for entry in (b"", b"1", b"1-", b"a-b", b"99999999999999999999-0"):
        with pytest.raises(_core.CoreError, match=r"^entry: must be a stream entry id"):
            slots.start(1, 0, entry, 0, 0, 1, 1, 1, 1)
    assert slots.rows(1) == []


def test_a_file_that_is_no_slots_is_refused(fd: int) -> None:
    with pytest.raises(_core.CoreError, match=r"^fd: the file has 0 bytes"):
        _core.Slots(fd, 1, 1)
    os.ftruncate(fd, 100_000)
    with pytest.raises(_core.CoreError, match=r"^fd: the file holds no slots for these numbers"):
        _core.Slots(fd, 1, 1)
    _core.Slots(fd, 1, 1, True)
    with pytest.raises(_core.CoreError, match=r"^fd: "):
        _core.Slots(fd, 1, 2)
    for wrong in (-1, 10**6):
        with pytest.raises(_core.CoreError, match=r"^fd: "):
            _core.Slots(wrong, 1, 1)
    for children, places, field in ((0, 1, "children"), (1, 0, "places"), (65_536, 1, "children")):
        with pytest.raises(_core.CoreError, match=f"^{field}: must be 1 to 65535"):
            _core.Slots.byte_size(children, places)


def test_the_file_descriptor_may_be_closed() -> None:
    fd = os.memfd_create("slots")
    slots = _core.Slots(fd, 1, 1, True)
    os.close(fd)
    assert slots.offer(0, 1, 1)
    assert slots.begin(0, 1)


@given(st.lists(st.tuples(st.sampled_from("obrn"), st.integers(0, 12), st.integers(0, 4)), max_size=40))
@settings(max_examples=200)
def test_the_word_follows_its_rules(steps: list[tuple[str, int, int]]) -> None:
    fd = os.memfd_create("slots")
    slots = _core.Slots(fd, 1, 1, True)
    os.close(fd)
    watermark, window = 0, 0
    for step, seq, count in steps:
        if step == "o":
            fresh = window == 0 and seq >= watermark
            more = window > 0 and seq == watermark + window
            assert slots.offer(0, seq, count) == (fresh or more)
            if fresh:
                watermark, window = seq, count
            elif more:
                window += count
        elif step == "b":
            allowed = window > 0 and seq == watermark
            assert slots.begin(0, seq) == allowed
            if allowed:
                watermark, window = watermark + 1, window - 1
        elif step == "r":
            assert slots.revoke(0) == (watermark, watermark + window)
            window = 0
        else:
            assert (slots.watermark(0), slots.window(0)) == (watermark, window)


def test_a_child_sees_and_writes_the_same_memory(fd: int) -> None:
    slots = _core.Slots(fd, 1, 2, True)
    slots.offer(0, 1, 2)

    def work() -> bytes:
        begun = slots.begin(0, 1)
        slots.start(0, 1, b"5-6", 0, 5, 1, 1, 7, 8)
        return b"%d" % begun

    assert answer_of(*forked(work)) == b"1"
    assert (slots.watermark(0), slots.window(0)) == (2, 1)
    assert [(row.place, row.entry) for row in slots.rows(0)] == [(1, b"5-6")]


def test_begin_and_revoke_of_two_processes_never_meet(fd: int) -> None:
    slots = _core.Slots(fd, 1, 1, True)
    window = 10

    def work() -> bytes:
        begun = bytearray()
        while slots.safe_until() == 0:
            first = len(begun)
            begun += bytes(window)
            assert slots.offer(0, first, window), "all of the last window has begun or was revoked"
            for seq in range(first, first + window):
                if not slots.begin(0, seq):
                    break
                begun[seq] = 1
        return bytes(begun)

    child = forked(work)
    ranges: list[tuple[int, int]] = []
    try:
        while len(ranges) < 200:
            start, end = slots.revoke(0)
            if start < end:
                ranges.append((start, end))
    finally:
        slots.set_safe_until(1)
    begun = answer_of(*child)
    assert not begun.startswith(b"!"), begun
    ranges.append(slots.revoke(0))
    times_revoked = bytearray(len(begun))
    for start, end in ranges:
        for seq in range(start, end):
            times_revoked[seq] += 1
    assert all(one + other == 1 for one, other in zip(begun, times_revoked, strict=True))


def test_a_reader_in_another_process_never_sees_half_a_row(fd: int) -> None:
    slots = _core.Slots(fd, 1, 1, True)

    def work() -> bytes:
        number = 0
        while slots.safe_until() == 0:
            number += 1
            slots.start(0, 0, b"%d-%d" % (number, number), 0, 5, number, number, number, number)
            if number % 4 == 0:
                slots.finish(0, 0)
        return b""

    child = forked(work)
    rows: list[_core.SlotRow] = []
    try:
        while len(rows) < 5000:
            rows += slots.rows(0)
    finally:
        slots.set_safe_until(1)
    assert answer_of(*child) == b""
    for row in rows:
        number = row.seq
        assert (row.entry, row.attempt) == (b"%d-%d" % (number, number), number)
        assert (row.started_ns, row.limit_ns) == (number, number)


def test_the_core_works_on_both_sides_of_a_fork() -> None:
    head = _core.EnvelopeHead("t", 5, 5, 0, 0)
    chunk = _core.Chunk()
    outcomes = _core.Outcomes("w")

    def work() -> bytes:
        chunk.extend(_core.new_ids(1, bytes(20), 2), head, [{"a": 1}, {"a": 2}], 100, b"5")
        turn = outcomes.pack_turn(b"", 0, "c", 1, 1, 1, 1, False, [], [])
        return chunk.pack(b"", 0) + turn

    chunk_before = chunk.pack(b"", 0)
    in_child = answer_of(*forked(work))
    assert chunk.pack(b"", 0) == chunk_before
    assert work() == in_child
