"""The overview: how much waits and runs, the last hour as charts, and all queues with their figures."""

from __future__ import annotations

from dtq.dashboard import text
from dtq.dashboard.charts import ACCENT, BAD, CALM, GOOD, WARN, Chart, Line
from dtq.dashboard.figures import QueueRow
from dtq.dashboard.layout import page_head
from dtq.dashboard.page import Page
from dtq.dashboard.parts import Figures, here, tag
from dtq.dashboard.queue_cells import COUNT_COLUMNS, count_cells
from dtq.dashboard.queue_choice import QueueChoice
from dtq.dashboard.table import Column, Row, Table, cell
from dtq.history import Minute, Timing

COLUMNS = (
    Column("queue", "Queue", place="head"),
    *COUNT_COLUMNS,
    Column("rate", "Rate", right=True),
)

SHORTEST_S = 10.0
"""A minute that has lasted less than that tells no rate yet."""


class Overview:
    """One open overview."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._queue = page.query.get("queue", "")
        with page_head("Overview"):
            tag("span", classes="push")
            self._choice = QueueChoice(self._queue, self._chosen, every="All queues")
        self._figures = Figures(
            (
                ("Waiting", "tasks?status=queued"),
                ("Running", "tasks?status=running"),
                ("Scheduled", "tasks?status=pending"),
                ("Dead letters", "dead-letters"),
                ("Workers", "workers"),
                ("Rate", None),
            )
        )
        self._charts = tag("div", classes="charts")
        with self._charts:
            self._throughput = Chart(
                "Throughput",
                (Line("succeeded", GOOD, area=True), Line("submitted", CALM)),
                unit="/s",
            )
            self._failures = Chart(
                "Failures",
                (
                    Line("retried", WARN, bars=True),
                    Line("failed", CALM, bars=True),
                    Line("dead-lettered", BAD, bars=True),
                ),
                whole=True,
            )
            self._waits = Chart("Wait time", (Line("p50", CALM), Line("p95", ACCENT)), unit="ms")
            self._runs = Chart("Run time", (Line("p50", CALM), Line("p95", ACCENT)), unit="ms")
        with tag("section", classes="card"):
            with tag("div", classes="card-head"):
                tag("h2", "Queues")
            self._table = Table(
                COLUMNS,
                nothing=("No queues yet", "A queue appears with its first task. Try it from a shell:", "dtq demo"),
                rows_a_page=100,
            )
        page.live(self._load)

    async def _chosen(self) -> None:
        self._queue = self._choice.value
        self._page.note_address(here("./", queue=self._queue))
        await self._page.refresh()

    async def _load(self) -> None:
        figures = self._page.desk.figures
        rows = await figures.queues()
        workers = await figures.workers()
        self._choice.show({row.name: row.name for row in rows})
        chosen = [row for row in rows if self._queue in ("", row.name)]
        self._show_figures(chosen, sum(not worker.draining for worker in workers))
        self._charts.visible = bool(rows)  # where nothing is yet, the empty state below says what to do
        self._show_charts(await figures.history(self._queue or None))
        self._table.show([_row(row) for row in rows])

    def _show_figures(self, rows: list[QueueRow], workers: int) -> None:
        counts = [row.counts for row in rows]
        rates = [row.rate for row in rows if row.rate is not None]
        waiting, dead = sum(one.waiting for one in counts), sum(one.dead for one in counts)
        show = self._figures.show
        show("Waiting", text.number(waiting))
        show("Running", text.number(sum(one.running for one in counts)))
        show("Scheduled", text.number(sum(one.scheduled for one in counts)))
        show("Dead letters", text.number(dead), bad=dead > 0)
        show("Workers", text.number(workers), bad=workers == 0 and waiting > 0)
        show("Rate", f"{text.rate(sum(rates))}/s" if rates else "–")

    def _show_charts(self, minutes: list[Minute]) -> None:
        times = [round(minute.at.timestamp() * 1000) for minute in minutes]
        # The minute that still goes on counts as far as it has come, and not at all in its first seconds.
        lasted = [min(60.0, (self._page.now_ms - at) / 1000) for at in times]
        self._throughput.show(
            times,
            (
                [_rate(minute.succeeded, seconds) for minute, seconds in zip(minutes, lasted, strict=True)],
                [_rate(minute.submitted, seconds) for minute, seconds in zip(minutes, lasted, strict=True)],
            ),
        )
        self._failures.show(
            times,
            (
                [minute.retried for minute in minutes],
                [minute.failed for minute in minutes],
                [minute.dead_lettered for minute in minutes],
            ),
        )
        self._waits.show(times, _quantiles([minute.wait for minute in minutes]))
        self._runs.show(times, _quantiles([minute.execution for minute in minutes]))


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds >= SHORTEST_S else None


def _quantiles(timings: list[Timing]) -> tuple[list[float | None], list[float | None]]:
    """Median and p95 in milliseconds; a gap where nothing was measured."""

    def quantile(q: float) -> list[float | None]:
        return [timing.quantile(q) * 1000 if timing.count else None for timing in timings]

    return quantile(0.5), quantile(0.95)


def _row(row: QueueRow) -> Row:
    counts, name = row.counts, row.name
    return {
        "key": name,
        "queue": cell(name, href=here("queues", queue=name), note="paused" if counts.paused else None),
        **count_cells(counts),
        "rate": cell("–" if row.rate is None else f"{text.rate(row.rate)}/s"),
    }
