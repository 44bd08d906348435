"""How `dtq top` is drawn: tables under each other, cut to the height of the screen. Everything shown is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dtq.cli.figures import Figures, QueueFigures
from dtq.cli.output import longest, with_room
from dtq.cli.queue import duration_ms, named
from dtq.cli.timings import ROW
from dtq.cli.workers import NONE_ALIVE, child_rows, worker_row
from dtq.legible import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType

_AROUND = 5
"""Lines of a table beside its rows: heading, rule, what is left out, and room above and below."""
_LEAST_NAME = 8
"""Columns in which a name can still be told from others."""
_LEAST = 3
"""Rows that every table may have, however low the screen is."""


def draw(figures: Figures, height: int | None, trouble: str = "") -> Group:
    """The whole screen. height: in lines; None: everything. trouble: what is wrong with the server."""
    from rich.console import Group
    from rich.text import Text

    queues = [_queue_row(queue) for queue in sorted(figures.queues, key=_by_work)]
    workers = [worker_row(worker) for worker in figures.workers]
    children = [
        [worker.id, *row[2:]]
        for worker in figures.workers
        for child in worker.children
        for row in child_rows(worker, child)
    ]
    children.sort(key=lambda row: row[3] == "-")  # who runs something first
    parts: list[RenderableType] = [Text(_headline(figures), style="bold", no_wrap=True, overflow="ellipsis")]
    if trouble:
        parts.append(Text(trouble, style="bold red"))
    slowest = [[f"{one.task_type} ({one.queue})", *one.row()[1:]] for one in figures.slowest]
    tables = [queues, workers, children, slowest]
    around = sum(_AROUND if rows else 1 for rows in tables)
    room = None if height is None else max(len(tables) * _LEAST, height - around - len(parts))
    shares = _shares(room, [len(rows) for rows in tables])
    columns = ["queue", "waiting", "running", "sched", "dead", "oldest", "in/s", "done/s", "fail/s", "retry/s"]
    parts.append(_Table(columns, queues, shares[0], numbers=range(1, 10)) if queues else Text("no queue yet"))
    if workers:
        headings = ["worker", "state", "children", "running", "memory", "queues", "up"]
        parts.append(_Table(headings, workers, shares[1], numbers=(2, 3, 4, 6)))
    else:
        parts.append(Text(NONE_ALIVE))
    if children:
        headings = ["worker", "pid", "memory", "running", "task", "since"]
        parts.append(_Table(headings, children, shares[2], numbers=(1, 2, 5), ids=(4,)))
    if slowest:
        parts.append(_Table(ROW, slowest, shares[3], numbers=range(1, len(ROW))))
    return Group(*parts)


def _by_work(queue: QueueFigures) -> tuple[bool, int, str]:
    counts = queue.counts
    held = counts.waiting + counts.running
    return (not held, -held, counts.queue)


def _headline(figures: Figures) -> str:
    at = datetime.fromtimestamp(figures.at_ms / 1000, UTC).astimezone()
    waiting = sum(queue.counts.waiting for queue in figures.queues)
    running = sum(queue.counts.running for queue in figures.queues)
    rates = ", ".join(f"{figures.rate(name):.1f} {name}" for name in ("submitted", "succeeded", "failed"))
    return f"dtq top  {at:%H:%M:%S}  {waiting} waiting, {running} running; a second: {rates}"


def _queue_row(queue: QueueFigures) -> list[object]:
    counts = queue.counts
    rates = (queue.rates[name] for name in ("submitted", "succeeded", "failed", "retried"))
    return [
        *(named(counts), counts.waiting, counts.running, counts.scheduled, counts.dead, duration_ms(counts.oldest_ms)),
        *(f"{rate:.1f}" for rate in rates),
    ]


def _shares(room: int | None, wanted: Sequence[int]) -> list[int]:
    """How many rows each table gets: what it needs, and where that is too much, an even share of what is left."""
    if room is None or sum(wanted) <= room:
        return list(wanted)
    shares, left = [0] * len(wanted), room
    by_need = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for tables, index in zip(range(len(wanted), 0, -1), by_need, strict=True):
        shares[index] = min(wanted[index], max(_LEAST, left // tables))
        left -= shares[index]
    return shares


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the first rows, drawn as wide as the screen is.

    numbers, ids: columns that are never cut, the former set flush right. Names share what is left; where that is not
    enough to tell one from another, the last numbers are left out.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    most: int
    numbers: Collection[int]
    ids: Collection[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        whole, cells = {*self.numbers, *self.ids}, [[printable(cell) for cell in row] for row in self.rows[: self.most]]
        widths = [longest(name, cells, index) for index, name in enumerate(self.columns)]
        kept, left_out = with_room(
            widths, whole, sorted(self.numbers, reverse=True), options.max_width, least=_LEAST_NAME, between=2
        )
        table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=True, collapse_padding=True)
        for index in kept:
            # A line each: the screen is cut by rows, so none may take two.
            justify: JustifyMethod = "right" if index in self.numbers else "left"
            least, ratio = (widths[index], None) if index in whole else (1, widths[index])
            head = Text(self.columns[index])
            table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least, ratio=ratio)
        for row in cells:
            table.add_row(*(Text(row[index]) for index in kept))
        told = [f"and {len(self.rows) - self.most} more"] if len(self.rows) > self.most else []
        if left_out:
            told.append(f"no room for {', '.join(self.columns[index] for index in sorted(left_out))}")
        if told:
            table.caption = Text("; ".join(told), no_wrap=True, overflow="ellipsis")
            table.caption_justify = "left"
        yield table
