"""dtq._core: payloads come back exactly as they were, or are refused by name."""

import enum
import math
import struct
from collections import Counter, OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dtq import _core

text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=30,
)


def same(left: object, right: object) -> bool:
    """Equal, and of the same types (1 == 1.0 == True in Python)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right)
    return left == right


@given(json_values)
def test_the_bytes_are_those_of_orjson_and_come_back_exactly(value: object) -> None:
    encoded = _core.encode_json(value)
    assert encoded == orjson.dumps(value)
    assert same(orjson.loads(encoded), value)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e16)
@example(1e15)
@example(1e-5)
@example(1e-4)
@example(-0.0)
@example(5e-324)
@example(1.7976931348623157e308)
@example(123456789012345680.0)
@example(9007199254740993.0)
def test_floats_are_written_as_orjson_does(number: float) -> None:
    assert _core.encode_json(number) == orjson.dumps(number)


@pytest.mark.parametrize("code", range(0x100))
def test_every_character_is_escaped_as_orjson_does(code: int) -> None:
    for value in (chr(code), "x" * 7 + chr(code) + "y" * 9, {chr(code): 1}):
        assert _core.encode_json(value) == orjson.dumps(value)


class Text(str):
    __slots__ = ()


class Real(float):
    pass


class Whole(int):
    pass


class Row(list[int]):
    pass


def test_subclasses_are_written_as_their_base() -> None:
    value = {
        Text("a"): Text("b"),
        "c": Real(1.5),
        "d": Whole(2),
        "e": OrderedDict(x=1),
        "f": Counter("zz"),
        "g": Row([1]),
    }
    assert _core.encode_json(value) == b'{"a":"b","c":1.5,"d":2,"e":{"x":1},"f":{"z":2},"g":[1]}'


def test_tuples_become_lists() -> None:
    assert _core.encode_json({"a": (1, (2,), ())}) == b'{"a":[1,[2],[]]}'


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


Point = namedtuple("Point", "x y")
cycle: list[object] = []
cycle.append(cycle)
deep: dict[str, Any] = {}
for _ in range(128):
    deep = {"a": deep}
sequence_of_types = "pass a dict, list, str, int, float, bool or None"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"items": [0, 1, 2, {"price": math.nan}]}, "payload.items[3].price: NaN is not JSON; use None or a string"),
        ({"a": -math.inf}, "payload.a: infinity is not JSON; use None or a string"),
        (
            {"a": "x\ud800"},
            "payload.a: the string holds a lone surrogate, which UTF-8 cannot carry; clean it, or decode it otherwise",
        ),
        (
            {"a": {"\udfff": 1}},
            "payload.a: a key holds a lone surrogate, which UTF-8 cannot carry; clean it, or decode it otherwise",
        ),
        ({"a": {1: 2}}, "payload.a: a key is int, keys must be str; convert it"),
        ({None: 2}, "payload: a key is NoneType, keys must be str; convert it"),
        ({Color.RED: 2}, "payload: a key is the enum Color; use its .value"),
        ({"a": [2**64]}, "payload.a[0]: the integer is outside -2**63 ... 2**64-1; pass it as a string"),
        ({"a": -(2**63) - 1}, "payload.a: the integer is outside -2**63 ... 2**64-1; pass it as a string"),
        (
            {"two words": Level.LOW},
            'payload["two words"]: Level is an enum and would come back as its value; pass .value',
        ),
        ({"a": Color.RED}, "payload.a: Color is an enum and would come back as its value; pass .value"),
        ({"a": Point(1, 2)}, "payload.a: Point is a named tuple and would come back as a list; pass a dict or a list"),
        ({"a": b"x"}, f"payload.a: bytes is not JSON; {sequence_of_types}"),
        ({"a": {1}}, f"payload.a: set is not JSON; {sequence_of_types}"),
        ({"a": datetime.now(UTC)}, f"payload.a: datetime is not JSON; {sequence_of_types}"),
        ({"a": Decimal(1)}, f"payload.a: Decimal is not JSON; {sequence_of_types}"),
        ({"a": object()}, f"payload.a: object is not JSON; {sequence_of_types}"),
        ({"": {"1a": [cycle]}}, None),
        ({"a": deep}, None),
    ],
)
def test_a_refusal_names_the_path_and_the_way_out(payload: dict[Any, Any], message: str | None) -> None:
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json(payload)
    if message is None:
        assert str(caught.value).endswith(": nested deeper than 128 levels (or in a cycle); flatten it")
        assert len(str(caught.value)) < 300
    else:
        assert str(caught.value) == message
    assert str(caught.value).startswith(caught.value.field + ": ")
    assert caught.value.kind == "invalid"


def test_the_deepest_nesting_is_accepted() -> None:
    assert orjson.loads(_core.encode_json(deep["a"])) == deep["a"]
    nested: list[object] = []
    for _ in range(127):
        nested = [nested]
    assert _core.encode_json(nested) == b"[" * 128 + b"]" * 128
    with pytest.raises(_core.CoreError):
        _core.encode_json([nested])


@given(json_values, st.integers(0, 200))
def test_the_size_limit_is_exact(value: object, limit: int) -> None:
    size = len(orjson.dumps(value))
    if size <= limit:
        assert len(_core.encode_json(value, max_bytes=limit)) == size
        return
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json(value, "result", limit)
    assert (caught.value.kind, caught.value.field) == ("too_large", "result")
    assert f"the limit of {limit} bytes of compact JSON: {size} bytes;" in str(caught.value)


def test_a_huge_value_ends_early() -> None:
    shared = ["x" * 1000] * 1000
    payload = {"a": [shared] * 100_000}  # 100 GB of JSON, 2 MB of memory
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json(payload, max_bytes=262_144)
    assert caught.value.kind == "too_large"
    assert "of compact JSON: more than " in str(caught.value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (["x" * 1000] * 300, "300901 bytes"),
        ({str(i): i for i in range(100_000)}, "1377781 bytes"),
        ("\n" * 100_000, "200002 bytes"),
        ("x" * 100_000_000, "more than 100000000 bytes"),
        (["x" * 1000, float("nan")], "more than 1004 bytes"),
    ],
)
def test_the_size_of_what_is_too_large_is_told(value: object, size: str) -> None:
    """Limit and actual size, so that it is known how far off it is (S081); counted up to a bound."""
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json(value, "result", 100)
    assert str(caught.value) == (
        f"result: larger than the limit of 100 bytes of compact JSON: {size}; store the data elsewhere and pass "
        f"a reference"
    )


@given(
    st.recursive(
        st.floats() | st.text() | st.integers() | st.binary(),
        lambda inner: st.dictionaries(st.text() | st.integers(), inner) | st.lists(inner),
    )
)
def test_whatever_is_accepted_comes_back(value: object) -> None:
    try:
        encoded = _core.encode_json(value)
    except _core.CoreError:
        return
    assert same(orjson.loads(encoded), value)
