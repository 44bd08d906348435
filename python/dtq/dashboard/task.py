"""One task: its attempts as a timeline, payload and result as trees, and what can be done to it."""

from __future__ import annotations

from datetime import datetime

from nicegui.element import Element

from dtq.dashboard import text
from dtq.dashboard.json_tree import json_tree, long_text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import EVERY_S, Page
from dtq.dashboard.parts import (
    TONES,
    button,
    card,
    data,
    empty,
    fact,
    here,
    status,
    status_word,
    tag,
    time_fact,
)
from dtq.dashboard.requeue import edit_and_requeue
from dtq.errors import InvalidTask, TaskNotFound
from dtq.handles import Handle
from dtq.models import AttemptRecord, Task, TaskStatus

ENDED_S = 10.0
"""A task that has ended is read anew so often, in seconds."""
_WAITS = (TaskStatus.PENDING, TaskStatus.RETRYING)
_ENDS_WELL = ("succeeded",)


class OneTask:
    """One open task. It is built anew whenever it has changed."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._id = page.query.get("id", "")
        self._queue = page.query.get("queue", "")
        self._shown: Task | str | None = None
        with page_head("Task"):
            data(self._id, mono=True).classes("lead")
            tag("span", classes="push")
            self._buttons = tag("div", classes="buttons")
        self._body = tag("div").style("display: contents")
        page.live(self._load)

    def _handle(self) -> Handle[object]:
        return self._page.app.handle(self._id, self._queue or None)

    async def _load(self) -> None:
        try:
            found: Task | str = await self._page.read(self._handle().task)
        except (TaskNotFound, InvalidTask) as error:
            found = str(error)
        # What has ended rarely changes, and may be large.
        self._page.every(ENDED_S if isinstance(found, str) or found.status.terminal else EVERY_S)
        if found == self._shown:
            if isinstance(found, Task) and not found.status.terminal:
                self._show_facts(found)  # ages grow; the trees below stay as they were opened
            return
        self._shown = found
        self._buttons.clear()
        self._body.clear()
        with self._body:
            if isinstance(found, str):
                with tag("section", classes="card"):
                    empty("This task is not known", found)
                return
            with self._buttons:
                self._offer(found)
            self._build(found)

    # --- acts ----------------------------------------------------------------------------------------------------

    def _offer(self, task: Task) -> None:
        if task.status in _WAITS:
            button("Run now", self._run, "main")
        if task.status is TaskStatus.DEAD_LETTERED and task.dead_letter_id is not None:
            button("Requeue", self._run, "main")
            button("Edit and requeue", self._edit)
        if not task.status.terminal and not task.cancel_requested:
            button("Cancel", self._cancel, "danger")
        if task.status.terminal:
            button("Delete", self._delete, "danger")

    async def _run(self) -> None:
        handle = self._handle()

        async def run() -> str:
            await handle.arun(actor=self._page.actor)
            return f"Task {handle.id} is queued to run now"

        await self._page.act(run)

    async def _edit(self) -> None:
        if isinstance(self._shown, Task):
            await edit_and_requeue(self._page, self._queue or self._shown.queue, self._id, self._shown)

    async def _cancel(self) -> None:
        handle, page = self._handle(), self._page
        running = isinstance(self._shown, Task) and self._shown.status is TaskStatus.RUNNING
        explanation = (
            "It runs: its handler is interrupted, its result is discarded."
            if running
            else "It never starts. Its record stays as cancelled."
        )
        if not await page.ask("Cancel this task?", explanation, "Cancel the task"):
            return

        async def cancel() -> str:
            answer = await handle.acancel(actor=page.actor)
            if answer == "cancelled":
                return f"Task {handle.id} is cancelled"
            return f"Task {handle.id} runs; its worker is told to stop it"

        await page.act(cancel)

    async def _delete(self) -> None:
        handle, page = self._handle(), self._page
        explanation = "Its record, its result and its history go, its dead letter too. That cannot be undone."
        if not await page.ask("Delete this task?", explanation, "Delete"):
            return

        async def delete() -> str:
            await handle.adelete(actor=page.actor)
            return f"Task {handle.id} is deleted"

        await page.act(delete)

    # --- what is shown -------------------------------------------------------------------------------------------

    def _build(self, task: Task) -> None:
        with tag("section", classes="card"):
            with tag("div", classes="card-head"):
                word = status_word(task.status) + (", cancel requested" if task.cancel_requested else "")
                status(word, TONES[task.status], large=True)
                data(task.task_type or "unknown type", mono=True)
            self._facts = tag("div", classes="facts")
            self._show_facts(task)
        if task.error and not task.history:
            with card("Error"), tag("div", classes="card-body"):
                long_text(task.error, "Error")
        with tag("section", classes="card"):
            with tag("div", classes="card-head"):
                tag("h2", "Attempts")
            with tag("div", classes="card-body"):
                _timeline(task)
        for name, value, shown in (
            ("Payload", task.payload, True),
            ("Result", task.result, task.status is TaskStatus.SUCCEEDED),
            ("Metadata", task.metadata, bool(task.metadata)),
            ("Headers", task.headers, bool(task.headers)),
        ):
            if shown:
                with tag("section", classes="card"):
                    with tag("div", classes="card-head"):
                        tag("h2", name)
                    with tag("div", classes="card-body"):
                        json_tree(value, name.lower())

    def _show_facts(self, task: Task) -> None:
        self._facts.clear()
        with self._facts:
            _facts(task, None if task.status.terminal else self._page.now_ms)


def _facts(task: Task, now_ms: int | None) -> None:
    fact("Queue", task.queue, href=here("tasks", queue=task.queue))
    fact(
        "Attempt", f"{task.attempt} of {task.max_attempts}" + (f", {task.released} uncharged" if task.released else "")
    )
    fact("Priority", task.priority)
    fact("Worker", task.worker_id, mono=True, href=here("tasks", worker_id=task.worker_id))
    time_fact("Created", task.created_at, now_ms)
    time_fact("Due", task.due_at, now_ms)
    time_fact("Started", task.started_at, now_ms)
    time_fact("Ended", task.ended_at, now_ms)
    fact("Ran", None if task.ended_at is None else _span(task.started_at, task.ended_at))
    fact("Time limit", None if task.timeout is None else text.duration(task.timeout.total_seconds()))
    fact("Must start within", None if task.ttl is None else text.duration(task.ttl.total_seconds()))
    time_fact("Deadline", task.deadline, now_ms)
    kept = "for ever" if task.retention is None else text.duration(task.retention.total_seconds())
    fact("Kept after its end", kept)
    fact("Batch", task.batch_id, href=here("tasks", batch_id=task.batch_id))


def _timeline(task: Task) -> None:
    with tag("div", classes="attempts"):
        for record in task.history:
            last = record is task.history[-1]
            _attempt(record, _tone(task, record, last), task.traceback if last else None)
        if task.status is TaskStatus.RUNNING:
            current = AttemptRecord(task.attempt, "running", task.started_at, None, task.worker_id)
            _attempt(current, "busy", None)
        elif task.status is TaskStatus.SUCCEEDED and (not task.history or task.history[-1].attempt < task.attempt):
            done = AttemptRecord(task.attempt, "succeeded", task.started_at, task.ended_at, task.worker_id)
            _attempt(done, "good", None)
        elif not task.history:
            told = "It has not started yet." if not task.status.terminal else "It ended without an attempt."
            with tag("div", classes="attempt"):
                tag("div", classes="rail")
                tag("div", f"{told}{f' Cause: {text.line(task.cause)}.' if task.cause else ''}", "body data")


def _span(start: datetime | None, end: datetime | None) -> str | None:
    return None if start is None or end is None else text.duration(max(0.0, (end - start).total_seconds()))


def _tone(task: Task, record: AttemptRecord, last: bool) -> str:
    if record.cause in _ENDS_WELL:
        return "good"
    return "bad" if last and task.status in (TaskStatus.FAILED, TaskStatus.DEAD_LETTERED) else "warn"


def _attempt(record: AttemptRecord, tone: str, traceback: str | None) -> Element:
    took = _span(record.started_at, record.ended_at)
    with tag("div", classes=f"attempt {tone}") as made:
        tag("div", classes="rail")
        with tag("div", classes="body"):
            tag("div", f"Attempt {record.attempt}: {text.line(record.cause)}", "title data")
            parts = [
                text.moment(record.started_at) if record.started_at is not None else "",
                f"took {took}" if took is not None else "",
                f"worker {text.line(record.worker_id)}" if record.worker_id else "",
            ]
            tag("div", " · ".join(part for part in parts if part), "when data")
            if record.error_class or record.error:
                data(": ".join(one for one in (record.error_class, record.error) if one), element="div").classes(
                    "error"
                )
            if traceback:
                with tag("details"):
                    tag("summary", "Traceback", "link")
                    long_text(traceback, "Traceback")
    return made
