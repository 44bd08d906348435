"""JSON and times from the command line: read so that nothing in them is changed silently."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from typing import NoReturn, cast


def read_payload(text: str) -> dict[str, object]:
    """Return the JSON object in `text`, or that on stdin when `text` is "-".

    Raises ValueError naming `payload` when it is not one JSON object, holds a key twice, NaN or an infinity, or a
    number that Python would have to change. Size and integer bounds are checked when the task is enqueued.
    """
    if text == "-":
        text = _standard_input()
    try:
        value: object = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"payload: not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ValueError("payload: nested too deeply; at most 128 levels") from None
    if not isinstance(value, dict):
        raise ValueError(f'payload: a JSON object is needed, such as {{"name": 1}}, not {_kind(value)}')
    return cast("dict[str, object]", value)


def read_time(name: str, text: str | None) -> datetime | None:
    """Return the time in `text`. Raises ValueError naming the option when it is none."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is no time; write it like 2030-12-31T23:59:00+00:00") from None


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"payload: not UTF-8 at byte {error.start}") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"payload: the key {key!r} stands twice in one object; remove one")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"payload: {name} is not JSON; use null or a string")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"payload: {text[:40]} is beyond the range of a double; write it as a string")
    return value


def _integer(text: str) -> int:
    # The bounds are the encoder's to name with a path; this stops numbers that Python itself refuses to read.
    if len(text) > 100:
        raise ValueError(f"payload: an integer of {len(text)} digits; write it as a string")
    return int(text)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "a string" if isinstance(value, str) else "an array"
