"""What the census found, at its end: top files, totals, throughput, latencies and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dtq.cli.output import print_fields, print_line, print_table
from dtq.demo.files import short_name
from dtq.legible import age
from dtq.models import Task, TaskStatus

_TOP = 5
_COUNTS = ("lines", "functions", "classes", "imports", "bytes")
_RANKED = ("lines", "functions", "nesting")
_PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Session:
    """What only the process that watched knows: seconds it took, tasks that ended meanwhile, children used."""

    seconds: float
    finished: int
    children: int
    resumed: bool


def summary(tasks: Sequence[Task], session: Session) -> dict[str, Any]:
    """Return the whole report as plain JSON values."""
    counted = [task for task in tasks if task.status is TaskStatus.SUCCEEDED]
    lost = [task for task in tasks if task.status is not TaskStatus.SUCCEEDED]
    return {
        "files": len(tasks),
        "succeeded": len(counted),
        "failed": len(lost),
        "resumed": session.resumed,
        "children": session.children,
        "seconds": round(session.seconds, 3),
        "finished_now": session.finished,
        "tasks_per_second": round(session.finished / session.seconds, 1) if session.seconds > 0 else 0.0,
        "totals": {name: sum(task.result[name] for task in counted) for name in _COUNTS},
        "top": {name: _top(counted, name) for name in _RANKED},
        "enqueue_to_finish_seconds": _percentiles(
            [span for task in tasks if (span := _span(task, "created_at")) is not None]
        ),
        "run_seconds": _percentiles([span for task in tasks if (span := _span(task, "started_at")) is not None]),
        "dead_letters": [
            {
                "file": _file(task),
                "status": task.status.value,
                "error_class": task.error_class,
                "error": task.error or task.cause,
                "attempts": task.attempt,
                "task_id": task.id,
            }
            for task in sorted(lost, key=_file)
        ],
    }


def print_report(report: dict[str, Any]) -> None:
    """Write the report as tables on stdout."""
    ranked = [report["top"][name] for name in _RANKED]
    rows = [
        [
            cell
            for column in ranked
            for cell in ((f"{column[row]['count']:,}", column[row]["file"]) if row < len(column) else ("", ""))
        ]
        for row in range(max(map(len, ranked), default=0))
    ]
    print_table("Top files", ["lines", "file", "functions", "file", "nesting", "file"], rows, numbers=(0, 2, 4))
    if report["dead_letters"]:
        print_table(
            "Dead letters (files that do not parse; a few are meant to be here)",
            ["file", "status", "reason"],
            [
                (row["file"], row["status"], f"{row['error_class'] or 'cause'}: {row['error']}")
                for row in report["dead_letters"]
            ],
        )
    totals = report["totals"]
    print_fields(
        [
            ("files", f"{report['files']:,} ({report['succeeded']:,} counted, {report['failed']:,} failed)"),
            ("totals", ", ".join(f"{totals[name]:,} {name}" for name in _COUNTS)),
            (
                "throughput",
                f"{report['finished_now']:,} tasks in {age(report['seconds'])}, "
                f"{report['tasks_per_second']:,.1f} tasks/s "
                f"with {report['children']} {'child' if report['children'] == 1 else 'children'}",
            ),
            ("enqueue to finish", _latency_line(report["enqueue_to_finish_seconds"])),
            ("run time", _latency_line(report["run_seconds"])),
        ]
    )
    if report["resumed"]:
        print_line("resumed: the time between the two starts is part of the times from enqueue to finish")


def _top(tasks: Sequence[Task], name: str) -> list[dict[str, Any]]:
    best = sorted(tasks, key=lambda task: (-task.result[name], _file(task)))[:_TOP]
    return [{"file": _file(task), "count": task.result[name]} for task in best]


def _file(task: Task) -> str:
    return short_name(str((task.payload or {}).get("path", task.id)))


def _span(task: Task, begin: str) -> float | None:
    """Return the seconds from `begin` to the end, or None where one of them is not known."""
    first: datetime | None = getattr(task, begin)
    if first is None or task.ended_at is None:
        return None
    return max(0.0, (task.ended_at - first).total_seconds())


def _percentiles(values: list[float]) -> dict[str, float]:
    values.sort()
    if not values:
        return {}
    return {f"p{percent}": values[min(len(values) - 1, len(values) * percent // 100)] for percent in _PERCENTILES}


def _latency_line(percentiles: dict[str, float]) -> str:
    return ", ".join(f"{name} {1000 * value:,.0f} ms" for name, value in percentiles.items()) or "not known"
