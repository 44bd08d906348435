"""How far bulk acts are, on the pages that start them, with a button to stop each."""

from __future__ import annotations

from dtq.dashboard import text
from dtq.dashboard.bulk import BulkAct
from dtq.dashboard.page import Page
from dtq.dashboard.parts import tag
from dtq.dashboard.table import Column, Row, Table, actions, cell

COLUMNS = (
    Column("title", "Bulk act", place="head"),
    Column("state", "State", place="bare"),
    Column("done", "Done", right=True),
    Column("refused", "Refused", right=True),
    Column("actor", "By"),
    Column("act", "", right=True, place="buttons"),
)
TONES = {"running": "busy", "done": "good", "stopped": "warn", "failed": "bad"}
SHOWN = 5


class Progress:
    """The latest bulk acts of this process; nothing at all while there are none."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._surface = tag("section", classes="card")
        self._surface.visible = False
        with self._surface:
            self._table = Table(COLUMNS, nothing=("", ""), on_act=self._act)

    def show(self) -> None:
        """As they stand now."""
        acts = self._page.desk.bulk.all()[:SHOWN]
        self._surface.visible = bool(acts)
        self._table.show([_row(act) for act in acts])

    async def _act(self, name: str, key: str) -> None:
        async def stop() -> str:
            self._page.desk.bulk.stop(int(key))
            return "It stops behind the step under way"

        await self._page.act(stop)


def _row(act: BulkAct) -> Row:
    return {
        "key": str(act.number),
        "title": cell(act.title, note=act.problem),
        "state": cell(act.state, tone=TONES[act.state]),
        "done": cell(text.number(act.done)),
        "refused": cell(text.number(act.refused)),
        "actor": cell(act.actor or "–"),
        "act": actions(("stop", "Stop", "danger")) if act.state == "running" else None,
    }
