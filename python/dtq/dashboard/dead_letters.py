"""Dead letters of a queue: filter and select them, edit one, queue them again at a rate, or discard them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from nicegui import ui

from dtq.dashboard import text
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.pager import Pager
from dtq.dashboard.parts import answer_of, button, here, set_text, tag, task_address
from dtq.dashboard.progress import Progress
from dtq.dashboard.queue_choice import QueueChoice
from dtq.dashboard.requeue import edit_and_requeue
from dtq.dashboard.table import Column, Row, Table, actions, cell
from dtq.dead_letters import DeadLetter, DeadLetterFilter, read_condition
from dtq.errors import DtqError, InvalidTask
from dtq.queues import Queue

ROWS = 50
COLUMNS = (
    Column("task", "Task", place="head"),
    Column("type", "Type"),
    Column("error", "Error", place="wide"),
    Column("attempts", "Attempts", right=True),
    Column("died", "Died", right=True),
    Column("act", "", right=True, place="buttons"),
)
SLOWEST, FASTEST = 0.1, 100_000.0
"""Bounds of the rate of a requeue, in tasks a second."""
UNITS = {"min": 60.0, "h": 3600.0, "d": 86_400.0}


class DeadLetters:
    """One open page of dead letters."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._name = page.query.get("queue", "")
        self._letters: dict[str, DeadLetter] = {}
        self._which = DeadLetterFilter()
        with page_head("Dead letters"):
            tag("span", classes="push")
            self._choice = QueueChoice(self._name, self._other_queue)
        self._progress = Progress(page)
        self._filter = tag("section", classes="card")
        with self._filter:
            self._build_filter()
        with tag("section", classes="card"):
            self._build_acts()
            self._table = Table(
                COLUMNS,
                nothing=(
                    "No dead letters here",
                    "Tasks that failed for good would stand here, to be looked at and sent again.",
                ),
                on_act=self._edit,
                on_select=self._selected,
            )
            self._pager = Pager(self._turned, "Newer", "Older")
        self._selected([])
        self._show_parts(acts=False)
        page.live(self._load)

    def _show_parts(self, *, acts: bool) -> None:
        """What belongs to a queue is there once one is chosen; what acts on dead letters, where there are some."""
        for part in (self._filter, self._pager.foot):
            part.visible = bool(self._name)
        self._choice.visible = bool(self._name)
        self._acts.visible = acts

    def _build_filter(self) -> None:
        with tag("div", classes="filters five"):
            self._fields = {
                name: ui.input(label, placeholder=example).props("outlined dense").on("change", self._filtered)
                for name, label, example in (
                    ("task_type", "Task type", ""),
                    ("error_class", "Error class", "ValueError"),
                    ("older_than_s", "Dead for at least", "30 min"),
                    ("newer_than_s", "Dead for at most", "2 h"),
                    ("where", "Payload", "order.id=7"),
                )
            }

    def _build_acts(self) -> None:
        self._acts = tag("div", classes="card-head")
        with self._acts:
            self._chosen = tag("span", "", "quiet-text")
            self._on_chosen = tag("div", classes="buttons")
            with self._on_chosen:
                button("Requeue", self._requeue_selected, "main", small=True)
                button("Discard", self._discard_selected, "danger", small=True)
            tag("span", classes="push")
            with tag("div", classes="buttons"):
                button("Requeue all …", self._requeue_all, small=True)
                button("Discard all …", self._discard_all, "danger", small=True)

    # --- what is meant -------------------------------------------------------------------------------------------

    def _queue(self) -> Queue:
        return self._page.app.queue(self._name, actor=self._page.actor)

    async def _other_queue(self) -> None:
        if self._choice.value == self._name:
            return
        self._name = self._choice.value
        self._page.note_address(here("dead-letters", queue=self._name))
        await self._start_over()

    async def _filtered(self) -> None:
        try:
            self._which = _filter({name: (field.value or "").strip() for name, field in self._fields.items()})
        except InvalidTask as error:
            self._page.tell(str(error), wrong=True)
            return
        await self._start_over()

    async def _start_over(self) -> None:
        self._pager.start_over()
        await self._turned()

    async def _turned(self) -> None:
        self._table.select([])
        await self._page.refresh()

    def _selected(self, keys: list[str]) -> None:
        set_text(self._chosen, f"{len(keys)} selected" if keys else "Select some, or act on all that match")
        self._on_chosen.visible = bool(keys)

    # --- reading -------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        rows = await self._page.desk.figures.queues()
        dead = {row.name: row.counts.dead for row in rows}
        if not self._name and dead:
            # Where most are: that is what somebody comes for.
            self._name = max(dead, key=lambda name: dead[name])
        labels = {name: f"{name} ({text.number(count)})" if count else name for name, count in dead.items()}
        self._choice.show(labels, self._name)
        self._progress.show()
        if not self._name:
            self._table.show([])
            self._show_parts(acts=False)
            return
        now_ms = self._page.now_ms
        found = await self._queue().adead_letter_page(self._which, limit=ROWS, cursor=self._pager.cursor)
        shown = found.letters
        self._letters = {letter.entry: letter for letter in shown}
        self._table.show([_row(letter, now_ms) for letter in shown])
        self._show_parts(acts=bool(shown))
        total = dead.get(self._name, 0)
        told = f"Page {self._pager.number}, {text.plural(len(shown), 'dead letter')} of {text.number(total)}"
        told += "; little matches, go on looking with Older" if found.cursor and not shown else ""
        self._pager.show(found.cursor, told)

    # --- acts ----------------------------------------------------------------------------------------------------

    async def _edit(self, name: str, entry: str) -> None:
        letter = self._letters.get(entry)
        if letter is None or letter.task is None:
            return
        await edit_and_requeue(self._page, self._name, entry, letter.task)

    async def _requeue_selected(self) -> None:
        entries, queue = list(self._table.selected), self._queue()

        async def steps() -> AsyncGenerator[tuple[int, str]]:
            for entry in entries:
                try:
                    await queue.arequeue(entry)
                except DtqError as error:
                    yield 0, str(error)
                else:
                    yield 1, ""

        await self._begin(f"Requeue of {text.plural(len(entries), 'dead letter')} of queue {queue.name}", steps())

    async def _discard_selected(self) -> None:
        entries, queue = list(self._table.selected), self._queue()
        what = text.plural(len(entries), "dead letter")
        explanation = "Their tasks stay dead lettered and are not queued again. That cannot be undone."
        if not await self._page.ask(f"Discard {what}?", explanation, f"Discard {what}"):
            return

        async def steps() -> AsyncGenerator[tuple[int, str]]:
            for entry in entries:
                try:
                    await queue.adiscard(entry)
                except DtqError as error:
                    yield 0, str(error)
                else:
                    yield 1, ""

        await self._begin(f"Discard of {what} of queue {queue.name}", steps())

    async def _requeue_all(self) -> None:
        queue, which = self._queue(), self._which
        rate = await self._ask_rate(queue.name)
        if rate is None:
            return

        async def steps() -> AsyncGenerator[tuple[int, str]]:
            async for one in queue.arequeue_all(which, rate=rate or None):
                yield (1, "") if one.error is None else (0, str(one.error))

        await self._begin(f"Requeue of {self._meant()} of queue {queue.name}", steps())

    async def _discard_all(self) -> None:
        queue, which = self._queue(), self._which
        explanation = (
            f"{self._meant().capitalize()} of queue {queue.name} go: their tasks stay dead lettered and are not queued "
            f"again. That cannot be undone."
        )
        if not await self._page.ask("Discard all that match?", explanation, "Discard all"):
            return

        async def steps() -> AsyncGenerator[tuple[int, str]]:
            async for _ in queue.adiscard_all(which):
                yield 1, ""

        await self._begin(f"Discard of {self._meant()} of queue {queue.name}", steps())

    def _meant(self) -> str:
        return "all dead letters" if self._which == DeadLetterFilter() else "the dead letters that match"

    async def _begin(self, title: str, steps: AsyncGenerator[tuple[int, str]]) -> None:
        self._table.select([])
        await self._page.begin(title, steps)

    async def _ask_rate(self, queue: str) -> float | None:
        """The rate to requeue with, 0 for as fast as it goes; None where it was thought better of."""
        with ui.dialog() as dialog, ui.card().classes("dialog-card"):
            tag("h2", "Requeue all that match?")
            tag(
                "div", f"{self._meant().capitalize()} of queue {queue} are queued again, the oldest first.", "body data"
            )
            rate = ui.number("Tasks a second (empty: as fast as it goes)", min=SLOWEST, max=FASTEST)
            rate.props("outlined dense").style("width: 100%")

            def submit() -> None:
                value = rate.value
                if value is not None and not SLOWEST <= value <= FASTEST:
                    self._page.tell(f"rate: use {SLOWEST:g} to {FASTEST:g} tasks a second", wrong=True)
                    return
                dialog.submit(value or 0.0)

            with tag("div", classes="buttons"):
                button("Keep things as they are", lambda: dialog.submit(None))
                button("Requeue all", submit, "main")
        answer = await answer_of(dialog)
        return None if answer is None else float(answer)


def _filter(given: dict[str, str]) -> DeadLetterFilter:
    return DeadLetterFilter(
        task_type=given["task_type"] or None,
        error_class=given["error_class"] or None,
        older_than_s=_seconds("older_than", given["older_than_s"]),
        newer_than_s=_seconds("newer_than", given["newer_than_s"]),
        where=dict([read_condition(given["where"])] if given["where"] else []),
    )


def _seconds(name: str, given: str) -> float | None:
    """`90`, `30 min`, `2 h` or `1 d` in seconds; None for nothing."""
    if not given:
        return None
    for unit, factor in UNITS.items():
        if given.endswith(unit):
            given, by = given.removesuffix(unit).strip(), factor
            break
    else:
        given, by = given.removesuffix("s").strip(), 1.0
    try:
        value = float(given) * by
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidTask(name, "it is no time span; write it like 90 s, 30 min, 2 h or 1 d")
    return value


def _row(letter: DeadLetter, now_ms: int) -> Row:
    task = letter.task
    died = cell(text.ago(letter.died_at, now_ms), title=text.moment(letter.died_at))
    name = letter.task_id or letter.entry
    shown = cell(
        name, href=task_address(letter.queue, letter.task_id) if letter.task_id else None, look="mono", limit=40
    )
    if task is None:
        told = cell(
            "no task of dtq", note=f"{text.plural(len(letter.raw), 'byte')} that something else wrote, or damaged"
        )
        return {"key": letter.entry, "task": shown, "error": told, "died": died}
    error = cell(task.error_class or task.cause or "–", note=task.error, limit=140)
    return {
        "key": letter.entry,
        "task": shown,
        "type": cell(task.task_type),
        "error": error,
        "attempts": cell(task.attempt),
        "died": died,
        "act": actions(("edit", "Edit and requeue", "plain")),
    }
