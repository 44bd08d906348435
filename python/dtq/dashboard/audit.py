"""The audit: who did what that cannot be undone, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime

from dtq.broker import AuditEntry
from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.parts import button, enable, here, set_text, tag, task_address
from dtq.dashboard.table import Column, Row, Table, cell

ROWS = 50
COLUMNS = (
    Column("action", "Act", place="head"),
    Column("actor", "By"),
    Column("queue", "Queue"),
    Column("task", "Task", place="wide"),
    Column("facts", "Details", place="wide"),
    Column("request", "Request"),
    Column("at", "At", right=True),
)


class Audit:
    """One open page of the audit stream."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._pages: list[str | None] = [None]  # behind which entry each page up to this one begins
        self._next: str | None = None
        page_head("Audit")
        with tag("section", classes="card"):
            self._table = Table(
                COLUMNS,
                nothing=("Nothing to tell", "Cancels, requeues, discards, purges and pauses are written down here."),
            )
            with tag("div", classes="table-foot"):
                self._told = tag("span", "")
                tag("span", classes="push")
                self._back = button("Newer", self._newer, small=True)
                self._on = button("Older", self._older, small=True)
        enable(self._back, False, self._on, False)
        page.live(self._load)

    async def _older(self) -> None:
        if self._next is not None:
            self._pages.append(self._next)
            await self._page.refresh()

    async def _newer(self) -> None:
        if len(self._pages) > 1:
            self._pages.pop()
            await self._page.refresh()

    async def _load(self) -> None:
        entries = await self._page.app.aaudit(ROWS + 1, self._pages[-1])
        shown = entries[:ROWS]
        self._next = shown[-1].entry if len(entries) > ROWS else None
        now_ms = self._page.now_ms
        self._table.show([_row(entry, now_ms) for entry in shown])
        enable(self._back, len(self._pages) > 1, self._on, self._next is not None)
        set_text(self._told, f"Page {len(self._pages)}; the newest 10 000 acts are kept")


def _row(entry: AuditEntry, now_ms: int) -> Row:
    at = datetime.fromtimestamp(entry.time_ms / 1000, UTC)
    task = entry.task_id
    return {
        "key": entry.entry,
        "action": cell(entry.action.replace("_", " ")),
        "actor": cell(entry.actor),
        "queue": cell(entry.queue, href=here("queues", queue=entry.queue)) if entry.queue else None,
        "task": cell(task, href=task_address(entry.queue, task), look="mono", limit=40) if task else None,
        "facts": cell(text.as_json(entry.facts, indent=None)) if entry.facts else None,
        "request": cell(entry.request_id, look="mono", limit=24),
        "at": cell(text.ago(at, now_ms), title=text.moment(at)),
    }
