"""Queues: pause, resume, purge; and the task types of one of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dtq.broker import QueueCounts
from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.parts import Figures, button, here, link, tag
from dtq.dashboard.progress import Progress
from dtq.dashboard.queue_cells import COUNT_COLUMNS, count_cells
from dtq.dashboard.table import Cell, Column, Row, Table, actions, cell

COLUMNS = (
    Column("queue", "Queue", place="head"),
    Column("state", "State", place="bare"),
    *COUNT_COLUMNS,
    Column("act", "", right=True, place="buttons"),
)
TYPE_COLUMNS = (
    Column("type", "Task type", place="head"),
    Column("state", "State", place="bare"),
    Column("act", "", right=True, place="buttons"),
)
TOTALS = ("submitted", "succeeded", "retried", "failed", "dead_lettered", "cancelled", "expired")


class Queues:
    """One open page: all queues, or the one that the address names."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._chosen = page.query.get("queue", "")
        self._types: Table | None = None
        self._totals: Figures | None = None
        with page_head("Queues") as head:
            if self._chosen:
                head.clear()
                with head:
                    link("Queues", "queues")
                    tag("span", "/", "lead")
                    tag("h1", text.line(self._chosen), "data")
        self._progress = Progress(page)
        with tag("section", classes="card"):
            self._table = Table(
                COLUMNS,
                nothing=("No queues yet", "A queue appears with its first task. Try it from a shell:", "dtq demo")
                if not self._chosen
                else ("This queue is not known", "It appears with its first task, or when it is paused."),
                on_act=self._act,
                rows_a_page=100,
            )
        if self._chosen:
            self._build_one()
        page.live(self._load)

    def _build_one(self) -> None:
        self._totals = Figures((name.replace("_", " ").capitalize(), None) for name in TOTALS)
        with tag("section", classes="card"):
            with tag("div", classes="card-head"):
                tag("h2", "Task types")
                tag("span", classes="push")
                button("Show its tasks", lambda: self._page.go(here("tasks", queue=self._chosen)), small=True)
            self._types = Table(
                TYPE_COLUMNS,
                nothing=("No task types seen", "They appear when tasks of this queue have run."),
                on_act=self._act_on_type,
            )

    async def _load(self) -> None:
        rows = await self._page.desk.figures.queues()
        shown = [row.counts for row in rows if self._chosen in ("", row.name)]
        self._table.show([_row(counts) for counts in shown])
        self._progress.show()
        if self._types is None or self._totals is None or not shown:
            return
        counts = shown[0]
        types = await self._page.app.queue(self._chosen).atask_types()
        self._types.show([_type_row(name, name in counts.paused_types) for name in types])
        for name in TOTALS:
            self._totals.show(name.replace("_", " ").capitalize(), text.number(counts.totals.get(name, 0)))

    # --- acts ----------------------------------------------------------------------------------------------------

    async def _act(self, name: str, queue: str) -> None:
        if name == "purge":
            await self._purge(queue)
        else:
            await self._switch(name, queue, None)

    async def _act_on_type(self, name: str, task_type: str) -> None:
        await self._switch(name, self._chosen, task_type)

    async def _switch(self, name: str, queue: str, task_type: str | None) -> None:
        what = f"Queue {queue}" if task_type is None else f"Task type {task_type} of queue {queue}"

        async def switch() -> str:
            chosen = self._page.app.queue(queue, actor=self._page.actor)
            if name == "pause":
                changed = await chosen.apause(task_type)
                return f"{what} is paused: nothing new starts" if changed else f"{what} was paused already"
            changed = await chosen.aresume(task_type)
            return f"{what} is resumed" if changed else f"{what} was not paused"

        self._page.desk.figures.forget()
        await self._page.act(switch)

    async def _purge(self, queue: str) -> None:
        page = self._page
        counts = await page.app.queue(queue).acounts()
        waiting = counts.waiting + counts.scheduled
        if not waiting:
            page.tell(f"Queue {queue} is empty: nothing waits, nothing is scheduled")
            return
        explanation = (
            f"{text.plural(waiting, 'waiting or scheduled task')} of queue {queue} would end as cancelled, without a "
            f"record. What runs goes on. That cannot be undone."
        )
        if not await page.ask(f"Purge queue {queue}?", explanation, f"Purge {text.plural(waiting, 'task')}"):
            return

        async def steps() -> AsyncGenerator[tuple[int, str]]:
            async for taken in page.app.queue(queue, actor=page.actor).apurge_steps():
                yield taken, ""

        page.desk.figures.forget()
        await page.begin(f"Purge of queue {queue}", steps())


def _row(counts: QueueCounts) -> Row:
    name = counts.queue
    types = len(counts.paused_types)
    return {
        "key": name,
        "queue": cell(
            name, href=here("queues", queue=name), note=f"{text.plural(types, 'type')} paused" if types else None
        ),
        "state": cell("paused", tone="warn") if counts.paused else cell("open", tone="good"),
        **count_cells(counts),
        "act": actions(_switch(counts.paused), ("purge", "Purge", "danger")),
    }


def _type_row(name: str, paused: bool) -> Row:
    state: Cell = cell("paused", tone="warn") if paused else cell("open", tone="good")
    return {"key": name, "type": cell(name, look="mono"), "state": state, "act": actions(_switch(paused))}


def _switch(paused: bool) -> tuple[str, str, str]:
    return ("resume", "Resume", "plain") if paused else ("pause", "Pause", "plain")
