"""Events as they happen: what becomes of tasks, the newest first."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.parts import here, set_text, tag, task_address
from dtq.dashboard.table import Column, Row, Table, cell
from dtq.watching import EVENT_TYPES

ROWS = 100
EVERY_S = 1.0
COLUMNS = (
    Column("type", "Event", place="bare"),
    Column("task", "Task", place="head"),
    Column("task_type", "Type", place="wide"),
    Column("queue", "Queue"),
    Column("attempt", "Attempt", right=True),
    Column("worker", "Worker"),
    Column("at", "At (UTC)", right=True),
)
TONES = {
    "TASK_STARTED": "busy",
    "TASK_SUCCEEDED": "good",
    "TASK_FAILED": "bad",
    "TASK_DEAD_LETTERED": "bad",
    "TASK_RETRY_SCHEDULED": "warn",
    "TASK_RETRIED": "warn",
    "TASK_RELEASED": "warn",
    "TASK_CANCELLED": "calm",
    "TASK_EXPIRED": "calm",
    "WORKER_STARTED": "good",
    "WORKER_STALE": "bad",
    "CONFIGURATION_CHANGED": "warn",
}


class Events:
    """One open page of events. It shows what comes from its opening on; a pause keeps what is shown."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._seen = page.desk.feed.count
        self._kept: deque[tuple[int, dict[str, Any]]] = deque(maxlen=ROWS)
        self._missed = 0
        with page_head("Events"):
            tag("span", classes="push")
            live = ui.switch("Live", value=True).props("dense")
        with tag("section", classes="card"):
            with tag("div", classes="filters"):
                self._queue = ui.input("Queue", on_change=self._filtered).props("outlined dense debounce=300")
                types = {"": "All"} | {name: _word(name) for name in EVENT_TYPES}
                self._type = ui.select(types, value="", label="Event", on_change=self._filtered)
                self._type.props("outlined dense options-dense")
                self._task_type = ui.input("Task type", on_change=self._filtered).props("outlined dense debounce=300")
            self._table = Table(
                COLUMNS,
                nothing=("Nothing has happened yet", "Events appear here as tasks are enqueued, started and ended."),
            )
            with tag("div", classes="table-foot"):
                self._told = tag("span", "")
        timer = page.live(self._load, EVERY_S)
        live.on_value_change(lambda event: timer.activate() if event.value else timer.deactivate())

    async def _filtered(self) -> None:
        self._kept.clear()
        self._seen, self._missed = self._page.desk.feed.count, 0
        await self._page.refresh()

    async def _load(self) -> None:
        feed = self._page.desk.feed
        found = feed.since(self._seen)
        first = feed.count - len(found)
        self._missed += max(0, first - self._seen)
        self._seen = feed.count
        self._kept.extend((first + place, event) for place, event in enumerate(found) if self._means(event))
        self._table.show([_row(number, event) for number, event in reversed(self._kept)])
        told = f"The newest {text.plural(len(self._kept), 'event')}"
        if self._missed:
            told += f"; {text.number(self._missed)} came too fast to be shown"
        set_text(self._told, text.line(feed.problem) if feed.problem else told)

    def _means(self, event: dict[str, Any]) -> bool:
        wanted = (
            ("queue", (self._queue.value or "").strip()),
            ("type", self._type.value),
            ("task_type", (self._task_type.value or "").strip()),
        )
        return all(not value or event.get(name) == value for name, value in wanted)


def _word(name: str) -> str:
    return name.removeprefix("TASK_").replace("_", " ").lower()


def _row(number: int, event: dict[str, Any]) -> Row:
    kind, task_id, queue = str(event.get("type")), str(event.get("task_id") or ""), str(event.get("queue") or "")
    when = event.get("ts")
    at = datetime.fromtimestamp(when / 1000, UTC) if isinstance(when, int | float) else None
    return {
        "key": str(number),
        "type": cell(_word(kind), tone=TONES.get(kind, "off")),
        "task": cell(task_id, href=task_address(queue, task_id), look="mono", limit=40) if task_id else None,
        "task_type": cell(event["task_type"]) if event.get("task_type") else None,
        "queue": cell(queue, href=here("queues", queue=queue)) if queue else None,
        "attempt": cell(event["attempt"]) if event.get("attempt") else None,
        "worker": cell(event["worker_id"], look="mono", limit=24) if event.get("worker_id") else None,
        "at": cell("–" if at is None else at.strftime("%H:%M:%S.%f")[:-3], title=text.moment(at)),
    }
