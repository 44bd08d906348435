"""Splitting a list or a stream of lines gives the same items however it is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtq.api.items import Item, Lines, ListItems, items_of
from dtq.errors import DtqError, InvalidTask, PayloadTooLarge

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
text = st.text('a"\\\\[]{},:\n\u00e9 ', max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)


def split(body: bytes, cuts: Iterable[int], limit: int = 10_000) -> list[Item]:
    splitter = items_of(body, limit)
    found: list[Item] = []
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in pairwise(places):
        found += splitter.feed(body[start:end])
    return [*found, *splitter.finish()]


@few
@given(st.lists(values), st.lists(st.integers(min_value=0)), st.sampled_from([None, 2]))
def test_the_items_of_a_list(items: list[object], cuts: list[int], indent: int | None) -> None:
    body = json.dumps(items, ensure_ascii=False, indent=indent).encode("utf-8", "replace")
    found = split(body, cuts, len(body) + 1)
    assert [json.loads(item) for item in found if isinstance(item, bytes)] == json.loads(body)


@few
@given(st.lists(values.filter(lambda value: not isinstance(value, list))), st.lists(st.integers(min_value=0)))
def test_lines(items: list[object], cuts: list[int]) -> None:
    body = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    assert [json.loads(item) for item in split(body, cuts) if isinstance(item, bytes)] == items


@few
@given(st.binary(), st.lists(st.integers(min_value=0)))
def test_anything_at_all_ends(body: bytes, cuts: list[int]) -> None:
    with suppress(DtqError):
        split(b"[" + body, cuts)


def test_a_list_does_not_end_with_a_brace() -> None:
    splitter = ListItems(100)
    found: list[Item] = []
    with pytest.raises(InvalidTask, match="a } stands where item 1"):
        found.extend(splitter.feed(b"[{},{}}"))
    assert list(ListItems(100).feed(b"[{},{}")) == [b"{}"]


def test_a_line_that_is_too_long_is_told_once_and_kept_nowhere() -> None:
    lines = Lines(10)
    assert list(lines.feed(b"1\n")) == [b"1"]
    (told,) = lines.feed(b"x" * 11)
    assert isinstance(told, PayloadTooLarge)
    assert list(lines.feed(b"x" * 1000)) == []
    assert not lines._rest
    assert list(lines.feed(b"x\n2\n3")) == [b"2"]
    assert list(lines.finish()) == [b"3"]
    assert [type(item) for item in Lines(10).feed(b"1\n" + b"x" * 11 + b"\n2\n")] == [bytes, PayloadTooLarge, bytes]


def test_an_item_that_is_too_long_ends_the_list() -> None:
    items = ListItems(10)
    assert list(items.feed(b"[1,")) == [b"1"]
    with pytest.raises(PayloadTooLarge, match=r"\[1\]"):
        list(items.feed(b'"' + b"x" * 11))


def test_a_long_string_in_small_pieces_is_not_looked_at_again_and_again() -> None:
    items = ListItems(10_000_000)
    found = list(items.feed(b'["'))
    for _ in range(10_000):
        found += items.feed(b"x" * 100)
    found += [*items.feed(b'"]'), *items.finish()]
    assert [len(item) for item in found if isinstance(item, bytes)] == [1_000_002]


def test_what_stands_behind_the_list() -> None:
    with pytest.raises(InvalidTask, match="behind the end"):
        split(b"[1] [2]", [])
    assert split(b" [1] \n ", [3]) == [b"1"]
