"""Workers: each with its children, what they run and since when, their memory, and why children were replaced."""

from __future__ import annotations

from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.parts import empty, fact, here, link, status, tag, task_address, time_fact
from dtq.dashboard.table import Column, Row, Table, cell
from dtq.workers import Child, Worker

CHILD_COLUMNS = (
    Column("number", "Child", place="head"),
    Column("pid", "Process", right=True),
    Column("memory", "Private memory", right=True),
    Column("task", "Runs", place="wide"),
    Column("type", "Type"),
    Column("since", "Since", right=True),
)
RESTART_COLUMNS = (
    Column("child", "Child", place="head"),
    Column("cause", "Cause", place="wide"),
    Column("at", "When", right=True),
)
RESTARTS = 10
TASKS = 5
"""Running tasks that are listed of one child."""


class Workers:
    """One open page of workers."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cards: dict[str, _Card] = {}
        page_head("Workers")
        self._nothing = tag("section", classes="card")
        self._nothing.visible = False
        with self._nothing:
            empty(
                "No worker is running", "Tasks wait until one is. Start it where your code is:", "dtq worker MODULE:APP"
            )
        self._body = tag("div").style("display: contents")
        page.live(self._load)

    async def _load(self) -> None:
        workers = await self._page.desk.figures.workers()
        self._nothing.visible = not workers
        if list(self._cards) != [worker.id for worker in workers]:
            self._body.clear()
            with self._body:
                self._cards = {worker.id: _Card() for worker in workers}
        for worker in workers:
            self._cards[worker.id].show(worker, self._page.now_ms)


class _Card:
    """One worker."""

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        with tag("section", classes="card"):
            self._head = tag("div", classes="card-head")
            self._facts = tag("div", classes="facts")
            self._children = Table(CHILD_COLUMNS, nothing=("No children yet", "They are started in a moment."))
            self._restarts_box = tag("div")
            with self._restarts_box:
                tag("div", "Replaced children", "part-head")
                self._restarts = Table(RESTART_COLUMNS, nothing=("", ""))

    def show(self, worker: Worker, now_ms: int) -> None:
        """As it stands now."""
        minute = now_ms // 60_000
        known = (worker.id, worker.draining, worker.leader, worker.queues, worker.version, minute)
        if known != self._known:
            self._known = known
            self._head.clear()
            self._facts.clear()
            with self._head:
                tag("h2", text.line(worker.host), "data")
                status("draining", "warn") if worker.draining else status("working", "good")
                if worker.leader:
                    tag("span", "leader", "tag", title="It runs the scheduler and takes over from dead workers")
                tag("span", classes="push")
                link(worker.id, here("tasks", worker_id=worker.id), "data mono").props["title"] = "Show its tasks"
            with self._facts:
                fact("Process", worker.pid)
                time_fact("Started", worker.started_at, now_ms)
                fact("Version", " · ".join(one for one in (worker.version, worker.python) if one))
                fact("Application", worker.app, mono=True)
                fact("Queues", ", ".join(worker.queues))
        self._children.show([row for child in worker.children for row in _child_rows(child, now_ms)])
        self._restarts_box.visible = bool(worker.restarts)
        self._restarts.show(
            [
                {
                    "key": f"{place} {restart.at.isoformat()}",
                    "at": cell(text.ago(restart.at, now_ms), title=text.moment(restart.at)),
                    "child": cell("–" if restart.number is None else f"child {restart.number}"),
                    "cause": cell(restart.cause),
                }
                for place, restart in enumerate(worker.restarts[:RESTARTS])
            ]
        )


def _child_rows(child: Child, now_ms: int) -> list[Row]:
    """A row for each task it runs, the oldest first; one row where it runs none."""
    first: Row = {
        "key": f"{child.number}",
        "number": cell(f"child {child.number}"),
        "pid": cell(child.pid),
        "memory": cell(text.size(child.private_bytes)),
        "task": cell("idle", tone="off"),
    }
    rows: list[Row] = []
    for task in child.tasks[:TASKS]:
        running = {
            "key": f"{child.number} {task.task_id}",
            "task": cell(task.task_id, href=task_address(task.queue, task.task_id), look="mono", limit=40),
            "type": cell(task.task_type),
            "since": cell(
                text.duration(max(0.0, now_ms / 1000 - task.since.timestamp())), title=text.moment(task.since)
            ),
        }
        rows.append(running if rows else {**first, **running})
    if len(child.tasks) > TASKS:
        rows.append({"key": f"{child.number} more", "task": cell(f"and {len(child.tasks) - TASKS} more")})
    return rows or [first]
