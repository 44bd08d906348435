"""How commands speak: JSON or tables on stdout, one line per error on stderr, nothing from Redis printed raw."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING

from dtq.legible import printable

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 160
"""Width of tables that go into a pipe or a file."""

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
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = ()
) -> None:
    """Write a table on stdout; every cell is escaped.

    columns: headings. numbers: indexes of the columns to set flush right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    right, cells = set(numbers), [[printable(cell) for cell in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        if index in right:  # a number that is cut is a wrong number: on a narrow screen texts give way
            table.add_column(Text(name), justify="right", no_wrap=True, min_width=longest(name, cells, index))
        else:
            table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    screen = console(sys.stdout)
    if title:  # on a line of its own: as the table's it would be broken to the width of that
        screen.print(Text(printable(title), style="italic"))
    screen.print(table)


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
