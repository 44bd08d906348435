"""The audit: who did what that cannot be undone, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime

from dtq.broker import AuditEntry
from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.pager import Pager
from dtq.dashboard.parts import here, tag, task_address
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
        page_head("Audit")
        with tag("section", classes="card"):
            self._table = Table(
                COLUMNS,
                nothing=("Nothing to tell", "Cancels, requeues, discards, purges and pauses are written down here."),
            )
            self._pager = Pager(page.refresh, "Newer", "Older")
        page.live(self._load)

    async def _load(self) -> None:
        entries = await self._page.app.aaudit(ROWS + 1, self._pager.cursor)
        shown = entries[:ROWS]
        now_ms = self._page.now_ms
        self._table.show([_row(entry, now_ms) for entry in shown])
        following = shown[-1].entry if len(entries) > ROWS else None
        self._pager.show(following, f"Page {self._pager.number}; the newest 10 000 acts are kept")


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
