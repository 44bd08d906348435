"""Raw JSON from the command line is refused rather than changed."""

from __future__ import annotations

import io
import sys

import pytest

from dtq.cli.payload import read_payload


def test_an_object_comes_back_exactly() -> None:
    assert read_payload('{"a": 9223372036854775807, "b": [1.5, "é", null, true]}') == {
        "a": 9223372036854775807,
        "b": [1.5, "é", None, True],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "payload: the key 'a' stands twice in one object; remove one"),
        ('{"a": [{"b": 1, "b": 1}]}', "payload: the key 'b' stands twice in one object; remove one"),
        ('{"a": NaN}', "payload: NaN is not JSON; use null or a string"),
        ('{"a": -Infinity}', "payload: -Infinity is not JSON; use null or a string"),
        ('{"a": 1e999}', "payload: 1e999 is beyond the range of a double; write it as a string"),
        ("[1]", 'payload: a JSON object is needed, such as {"name": 1}, not an array'),
        ("null", 'payload: a JSON object is needed, such as {"name": 1}, not null'),
        ("{", "payload: not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        ('{"a": ' + "[" * 100_000, "payload: nested too deeply; at most 128 levels"),
        ('{"a": ' + "9" * 5000 + "}", "payload: an integer of 5000 digits; write it as a string"),
    ],
)
def test_what_is_refused_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        read_payload(text)
    assert str(caught.value) == message


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    assert read_payload("-") == {"a": 1}


def test_standard_input_must_be_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xff"}')))
    with pytest.raises(ValueError, match="payload: not UTF-8 at byte 7"):
        read_payload("-")
