"""JSON of others is read as it stands, or refused with the place of what would be changed."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq import _core
from dtq.errors import InvalidTask
from dtq.raw_json import read_json

text = st.text(max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=12),
    max_leaves=12,
)


@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_whatever_is_json_comes_back(value: object, escaped: bool, indent: int | None) -> None:
    written = json.dumps(value, ensure_ascii=escaped, indent=indent).encode("utf-8", "surrogatepass")
    try:
        expected = orjson.loads(written)
    except orjson.JSONDecodeError:
        with pytest.raises(InvalidTask, match="no JSON"):
            read_json(written)
    else:
        assert repr(read_json(written)) == repr(expected)


@given(st.dictionaries(text, st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_a_key_that_stands_twice_is_found_wherever_and_however_it_is_written(
    members: dict[str, int], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(members)))
    pairs = [(name, json.dumps(name, ensure_ascii=data.draw(st.booleans()))) for name in members]
    written = [f"{quoted}:{members[name]}" for name, quoted in pairs]
    written.insert(data.draw(st.integers(0, len(written))), json.dumps(key) + ": 0")
    body = ("{" + ",".join(written) + "}").encode("utf-8", "surrogatepass")
    with pytest.raises(InvalidTask, match=r"stands twice|no JSON"):
        read_json(body)


@given(st.binary(max_size=60))
def test_the_check_refuses_no_bytes_for_being_no_json(body: bytes) -> None:
    try:
        _core.check_json(body)
    except _core.CoreError as error:
        assert "no JSON" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"a":[1,{"b":18446744073709551616}]}', "payload.a[1].b: the integer is outside -2**63 ... 2**64-1; "),
        (b'{"a":-1e999}', "payload.a: the number is beyond the range of a double; "),
        (b'[{"x":1,"x":1}]', 'payload[0]: the key "x" stands twice in one object; remove one'),
        (b"[NaN]", "payload: no JSON: "),
        (b'"\\ud800"', "payload: no JSON: "),
        (b"", "payload: no JSON: "),
    ],
)
def test_what_is_refused_is_named(body: bytes, message: str) -> None:
    with pytest.raises(InvalidTask) as raised:
        read_json(body)
    assert str(raised.value).startswith(message)
