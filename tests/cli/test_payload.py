"""Raw JSON from the command line is refused rather than changed."""

from __future__ import annotations

import io
import sys

import pytest

from dtq.cli.payload import read_payload
from dtq.errors import InvalidTask


def test_an_object_comes_back_exactly() -> None:
    assert read_payload('{"a": 9223372036854775807, "b": [1.5, "é", null, true]}') == {
        "a": 9223372036854775807,
        "b": [1.5, "é", None, True],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', 'payload: the key "a" stands twice in one object; remove one'),
        ('{"a": [{"b": 1, "b": 1}]}', 'payload.a[0]: the key "b" stands twice in one object; remove one'),
        ('{"a": NaN}', "payload: no JSON: "),
        ('{"a": -Infinity}', "payload: no JSON: "),
        ('{"a": 1e999}', "payload.a: the number is beyond the range of a double; pass it as a string"),
        ('{"a": 18446744073709551616}', "payload.a: the integer is outside -2**63 ... 2**64-1; pass it as a string"),
        ("[1]", 'payload: a JSON object is needed, such as {"name": 1}, not an array'),
        ("null", 'payload: a JSON object is needed, such as {"name": 1}, not null'),
        ("{", "payload: no JSON: "),
        ("{\udcff}", "payload: no JSON: "),
        ('{"a": ' + "[" * 100_000, "payload.a"),
        ('{"a": ' + "9" * 5000 + "}", "payload.a: the integer is outside -2**63 ... 2**64-1; pass it as a string"),
    ],
)
def test_what_is_refused_says_why(text: str, message: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        read_payload(text)
    assert str(caught.value).startswith(message)


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    assert read_payload("-") == {"a": 1}


def test_standard_input_must_be_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xff"}')))
    with pytest.raises(InvalidTask, match="payload: no JSON: "):
        read_payload("-")
