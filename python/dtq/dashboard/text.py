"""Everything a task carries, made fit to be shown as text: nothing hidden, nothing that turns a line, cut visibly.

No function here makes markup. What these answer is set as text nodes, so the browser escapes it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from dtq import legible
from dtq.errors import InvalidTask
from dtq.legible import age, printable

CELL = 120
"""Longest text of a table's cell, in characters."""
LINE = 400
"""Longest text on a line of its own."""
BLOCK = 20_000
"""Longest text shown in one go; what is longer is opened on request."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def line(value: object, limit: int = LINE) -> str:
    """One line: control, invisible and direction-changing characters written as escapes, cut after `limit`."""
    return printable(value, limit)


def block(text: str) -> str:
    """The same with its line ends and tabs kept, and whole."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "\n".join(
        "\t".join(printable(piece, len(piece)) for piece in row.split("\t"))
        for row in text.replace("\r\n", "\n").split("\n")
    )


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """A JSON value as JSON text; every character that would not be seen, or would turn the line, as an escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    # All of these stand inside of strings, so JSON's own escape means the same to whoever reads the text back.
    return "".join(one if one == "\n" or one.isprintable() else json.dumps(one)[1:-1] for one in text)


def number(value: float) -> str:
    """1234567 as 1 234 567, with thin spaces that do not break."""
    return f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Tasks a second, with as many digits as say something."""
    if value is None:
        return "–"
    if value >= 100:
        return number(value)
    return f"{value:.1f}" if value >= 0.05 or value == 0 else f"{value:.2f}"


def size(count: int | None) -> str:
    """Bytes: 7.0 MiB."""
    return "–" if count is None else legible.size(count)


def duration(seconds: float | None) -> str:
    """A time span: 12 µs, 1.24 s, 3 min 20 s."""
    return "–" if seconds is None else legible.duration(seconds)


def moment(when: datetime | None) -> str:
    """A time in full, in UTC."""
    return "–" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def read_moment(name: str, given: str) -> datetime:
    """A time that somebody typed, in UTC unless an offset stands with it. Raises InvalidTask, naming the field."""
    try:
        moment = datetime.fromisoformat(given.strip())
    except ValueError:
        raise InvalidTask(name, f"{given!r} is no time; write it like 2030-12-31 23:59") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def ago(when: datetime | None, now_ms: int) -> str:
    """How long ago, or in how long: "12 s ago", "in 3 min"."""
    if when is None:
        return "–"
    seconds = now_ms / 1000 - (when - _EPOCH).total_seconds()
    if seconds < 0:
        return f"in {_coarse(-seconds)}"
    return "now" if seconds < 1 else f"{_coarse(seconds)} ago"


def _coarse(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else age(seconds)


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
