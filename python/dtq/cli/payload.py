"""JSON and times from the command line: read so that nothing in them is changed silently."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from dtq.raw_json import read_object


def read_payload(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`, or that on stdin when `text` is "-".

    Raises InvalidTask naming the place in `payload` of what is no JSON or would have to be changed. Size and nesting
    are checked when the task is enqueued.
    """
    # Bytes that are no UTF-8 come from the command line as surrogates, and are refused as what they are.
    return read_object(sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape"))


def read_time(name: str, text: str | None) -> datetime | None:
    """Return the time in `text`. Raises ValueError naming the option when it is none."""
    if text is None:
        return None
    way_out = "write it like 2030-12-31T23:59:00+00:00"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is no time; {way_out}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{name}: {text!r} has no offset from UTC; {way_out}")
    return moment
