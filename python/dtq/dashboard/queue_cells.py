"""The figures of a queue as cells, wherever queues are listed."""

from __future__ import annotations

from dtq.broker import QueueCounts
from dtq.dashboard import text
from dtq.dashboard.parts import here
from dtq.dashboard.table import Column, Row, cell, count_cell

COUNT_COLUMNS = (
    Column("waiting", "Waiting", right=True),
    Column("running", "Running", right=True),
    Column("scheduled", "Scheduled", right=True),
    Column("dead", "Dead", right=True),
    Column("oldest", "Oldest", right=True),
)


def count_cells(counts: QueueCounts) -> Row:
    """What stands in them; each number leads to what it counts."""
    name = counts.queue
    return {
        "waiting": count_cell(counts.waiting, here("tasks", queue=name, status="queued")),
        "running": count_cell(counts.running, here("tasks", queue=name, status="running")),
        "scheduled": count_cell(counts.scheduled, here("tasks", queue=name, status="pending")),
        "dead": count_cell(counts.dead, here("dead-letters", queue=name), bad=True),
        "oldest": cell("–" if counts.oldest_ms is None else text.duration(counts.oldest_ms / 1000)),
    }
