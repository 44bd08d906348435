"""How commands speak: JSON or tables on stdout, one line per error on stderr, nothing from Redis printed raw."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Literal

from dtq.legible import printable

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 160
"""Width of tables that go into a pipe or a file."""

_LONGEST_WHOLE = 48
"""Columns that a cell may need without being broken: an id of the demo has 38."""
_LEAST_TEXT = 16
"""Columns in which a text that is broken into lines can still be read."""
_BETWEEN = 3
"""Columns between two cells of a table; the edges together take fewer."""

_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.]*://)[^/\s?#]*@", re.IGNORECASE)
_SECRET_QUERY = re.compile(r"([?&](?:username|password)=)[^&\s]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return `text` with the user and password of every URL in it replaced by "***"."""
    return _SECRET_QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def print_error(message: str, *, keep_lines: bool = False) -> None:
    """Write `dtq: message` on stderr, as one line. keep_lines: the text is dtq's own and set in lines on purpose."""
    lines = [line for line in without_secrets(message.removeprefix("dtq: ")).splitlines() if line.strip()]
    if not keep_lines:
        lines = ["; ".join(line.strip() for line in lines)]
    shown = "\n".join(printable(line, 2000) for line in lines)
    sys.stderr.write(f"dtq: {shown}\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    """Write one JSON document on stdout, pure ASCII: what is in it cannot steer a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True, default=str) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """Write one line on stdout, escaped."""
    sys.stdout.write(f"{printable(text, 2000)}\n")
    sys.stdout.flush()


def console(file: IO[str] | None = None) -> Console:
    """Return a Rich console that never reads markup, emoji codes or highlights out of a text."""
    from rich.console import Console

    wide = None if (file or sys.stdout).isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(file=file, markup=False, emoji=False, highlight=False, width=wide)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Iterable[int] = (),
    whole: Iterable[int] = (),
    spare: Iterable[int] = (),
) -> None:
    """Write a table on stdout; every cell is escaped.

    columns: headings. numbers: indexes of the columns to set flush right. whole: of those not to be broken into lines,
    because somebody copies an id or compares times. spare: of those to leave out, the first one first, until the others
    have room, and after them numbers, the last one first; a line says so.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    screen = console(sys.stdout)
    right, cells = set(numbers), [[printable(cell) for cell in row] for row in rows]
    widths = [longest(name, cells, index) for index, name in enumerate(columns)]
    firm = {index for index in whole if widths[index] <= _LONGEST_WHOLE} | right
    spared = dict.fromkeys((*spare, *sorted(right, reverse=True)))  # without room for them, rich leaves names out
    kept, left_out = with_room(widths, firm, spared, screen.width)
    if _needed(widths, firm, kept) > screen.width:
        firm = right  # broken into lines after all: cut, an id would be of no use
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index in kept:
        if index in firm:  # a number that is cut is a wrong number: on a narrow screen texts give way
            justify: Literal["left", "right"] = "right" if index in right else "left"
            table.add_column(Text(columns[index]), justify=justify, no_wrap=True, min_width=widths[index])
        else:
            table.add_column(Text(columns[index]), overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[index]) for index in kept))
    if title:  # on a line of its own: as the table's it would be broken to the width of that
        screen.print(Text(printable(title), style="italic"))
    screen.print(table)
    if left_out:
        names = ", ".join(columns[index] for index in sorted(left_out))
        screen.print(Text(f"no room for {names} (--json shows all)"))


def with_room(
    widths: Sequence[int],
    firm: Collection[int],
    spare: Iterable[int],
    width: int,
    *,
    least: int = _LEAST_TEXT,
    between: int = _BETWEEN,
) -> tuple[list[int], list[int]]:
    """The columns that are shown, and those of `spare` that had to give way. least: columns that a text may do with."""
    kept, left_out = list(range(len(widths))), list[int]()
    for index in spare:
        if _needed(widths, firm, kept, least, between) <= width:
            break
        kept.remove(index)
        left_out.append(index)
    return kept, left_out


def _needed(
    widths: Sequence[int],
    firm: Collection[int],
    kept: Sequence[int],
    least: int = _LEAST_TEXT,
    between: int = _BETWEEN,
) -> int:
    """How wide these columns are where texts are broken as far as they may be."""
    return sum(between + (widths[index] if index in firm else min(widths[index], least)) for index in kept)


def longest(heading: str, cells: Iterable[Sequence[str]], index: int) -> int:
    """How wide a column has to be, so that nothing of it is cut."""
    return max([len(heading), *(len(row[index]) for row in cells)])


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Write `name  value` lines on stdout, names padded to one width, values escaped."""
    listed = [(name, value) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        sys.stdout.write(f"{name:<{width}}  {printable(value, 4000)}\n")
    sys.stdout.flush()
