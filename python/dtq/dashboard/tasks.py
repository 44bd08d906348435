"""Tasks: filtered by every field, page by page, live; or one by its id."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.pager import Pager
from dtq.dashboard.parts import TONES, here, status_word, tag, task_address
from dtq.dashboard.queue_choice import QueueChoice
from dtq.dashboard.table import Column, Row, Table, cell
from dtq.errors import AmbiguousTaskId, DtqError
from dtq.models import STATUSES, Task

ROWS = 50
COLUMNS = (
    Column("id", "Task", place="head"),
    Column("type", "Type", place="wide"),
    Column("status", "Status", place="bare"),
    Column("queue", "Queue"),
    Column("attempt", "Attempt", right=True),
    Column("created", "Created", right=True),
    Column("ran", "Ran", right=True),
)
TEXTS = (("task_type", "Task type"), ("worker_id", "Worker id"), ("batch_id", "Batch id"))
TIMES = (("created_after", "Created after (UTC)"), ("created_before", "Created before (UTC)"))


class Tasks:
    """One open list of tasks. Its filter stands in the address."""

    def __init__(self, page: Page) -> None:
        self._page = page
        with page_head("Tasks"):
            tag("span", classes="push")
            live = ui.switch("Live", value=True).props("dense")
        with tag("section", classes="card"):
            self._build_filter()
        with tag("section", classes="card"):
            self._table = Table(
                COLUMNS,
                nothing=("No task matches", "Widen the filter above, or enqueue a task:", "dtq enqueue TASK_TYPE"),
            )
            self._pager = Pager(page.refresh)
        timer = page.live(self._load)
        live.on_value_change(lambda event: timer.activate() if event.value else timer.deactivate())

    def _build_filter(self) -> None:
        given = {name: self._page.query.get(name, "") for name in ("queue", "status", *dict(TEXTS), *dict(TIMES))}
        with tag("div", classes="filters"):
            self._id = _field("Task id", "").on("keydown.enter", self._find)
            self._queue = QueueChoice(given["queue"], self._filtered, every="All queues", label="Queue")
            statuses = {"": "All"} | {str(one): status_word(one) for one in STATUSES}
            status = given["status"] if given["status"] in statuses else ""
            self._status = ui.select(statuses, value=status, label="Status", on_change=self._filtered)
            self._status.props("outlined dense options-dense")
            self._fields = {name: _field(label, given[name]).on("change", self._filtered) for name, label in TEXTS}
            for name, label in TIMES:
                field = _field(label, given[name]).props('placeholder="2030-12-31 23:59"')
                self._fields[name] = field.on("change", self._filtered)

    # --- what is meant -------------------------------------------------------------------------------------------

    def _chosen(self) -> dict[str, str]:
        found = {"queue": self._queue.value, "status": self._status.value}
        found |= {name: (field.value or "").strip() for name, field in self._fields.items()}
        return {name: str(value) for name, value in found.items() if value}

    async def _filtered(self) -> None:
        self._pager.start_over()
        self._page.note_address(here("tasks", **self._chosen()))
        await self._page.refresh()

    async def _find(self) -> None:
        """Opens the task of an id; where two queues hold it, the queue filter says which one is meant."""
        wanted = (self._id.value or "").strip()
        if not wanted:
            return
        try:
            found = await self._page.read(self._page.app.get, wanted, self._queue.value or None)
        except AmbiguousTaskId as error:
            self._page.tell(f"{error}: choose it in the filter", wrong=True)
        except DtqError as error:
            self._page.tell(str(error), wrong=True)
        else:
            self._page.go(task_address(found.queue, found.id))

    # --- reading -------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        chosen = self._chosen()
        which: dict[str, Any] = {
            **chosen,
            **{name: text.read_moment(name, chosen[name]) for name, _ in TIMES if name in chosen},
        }
        found = await self._page.read(self._page.app.tasks, limit=ROWS, cursor=self._pager.cursor, **which)
        names = await self._page.read(self._page.app.queue_names)
        self._queue.show({name: name for name in names})
        now_ms = self._page.now_ms
        self._table.show([_row(task, now_ms) for task in found.tasks])
        told = f"Page {self._pager.number}, {text.plural(len(found.tasks), 'task')}"
        if found.cursor is not None and not found.tasks:
            told += "; little matches, go on looking with Next"
        if found.partial:
            told += "; of ended tasks only the newest are listed, older ones are found by their id"
        self._pager.show(found.cursor, told)


def _field(label: str, value: str) -> ui.input:
    return ui.input(label, value=value).props("outlined dense")


def _row(task: Task, now_ms: int) -> Row:
    ended_ms = now_ms if task.ended_at is None else task.ended_at.timestamp() * 1000
    ran = None if task.started_at is None else max(0.0, ended_ms / 1000 - task.started_at.timestamp())
    word = status_word(task.status) + (", cancelling" if task.cancel_requested else "")
    return {
        "key": f"{task.queue} {task.id}",
        "id": cell(task.id, href=task_address(task.queue, task.id), look="mono", limit=40),
        "type": cell(task.task_type or "–"),
        "status": cell(word, tone=TONES[task.status]),
        "queue": cell(task.queue),
        "attempt": cell(f"{task.attempt}/{task.max_attempts}"),
        "created": cell(text.ago(task.created_at, now_ms), title=text.moment(task.created_at)),
        "ran": cell(text.duration(ran)),
    }
