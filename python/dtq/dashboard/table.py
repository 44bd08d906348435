"""Tables: rows of cells that are text, links, states or buttons; on a narrow screen each row becomes a card.

One template serves all cells. It sets text and addresses by Vue's own binding, which never makes markup of them; and
addresses are made here, never by what a task carries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nicegui import ui
from nicegui.events import GenericEventArguments, TableSelectionEventArguments

from dtq.dashboard import parts, text

Cell = dict[str, Any]
Row = dict[str, Any]
OnAct = Callable[[str, str], Awaitable[None]]
"""Called with the name of a button and the key of its row."""

_CELL = """
<q-td :props="props" :data-label="props.col.label" :class="{'cell-none': !props.value}">
  <template v-if="props.value">
    <span v-if="props.value.actions" class="cell-actions">
      <q-btn v-for="one in props.value.actions" :key="one.name" :label="one.label" no-caps unelevated
        :class="one.kind + ' small'" :aria-label="one.title || one.label"
        @click="() => $parent.$emit('act', {name: one.name, key: props.key})" />
    </span>
    <a v-else-if="props.value.href" :href="props.value.href" :title="props.value.title"
      :class="'data ' + (props.value.look || '')">{{ props.value.text }}</a>
    <span v-else :title="props.value.title"
      :class="props.value.tone ? 'status status-' + props.value.tone : 'data ' + (props.value.look || '')"
      >{{ props.value.text }}</span>
    <span v-if="props.value.note" class="cell-note data" :title="props.value.full">{{ props.value.note }}</span>
  </template>
</q-td>
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. place: how it stands on a narrow screen: `head` (the first line), `wide` (a line of its own),
    `bare` (without its name), `buttons`, or '' (name and value)."""

    name: str
    label: str
    right: bool = False
    place: str = ""

    def properties(self) -> dict[str, Any]:
        """As the library wants it."""
        return {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "align": "right" if self.right else "left",
            "classes": f"cell-{self.place}" if self.place else "",
        }


def cell(
    content: object,
    *,
    href: str | None = None,
    tone: str | None = None,
    note: object | None = None,
    title: str | None = None,
    look: str = "",
    limit: int = text.CELL,
) -> Cell:
    """A cell: its text made visible and cut; the whole, up to 2 000 characters, is its tooltip.

    tone: makes it a status of that colour. look: `mono`, `quiet` or `bad`. note: a quieter line below.
    """
    shown = text.line(content, limit)
    made: Cell = {"text": shown}
    if title is None and shown.endswith("…"):
        title = text.line(content, 2000)
    if href is not None:
        made["href"] = href
    if tone is not None:
        made["tone"] = tone
    if note not in (None, ""):
        made["note"] = text.line(note, 2 * limit)
        if len(made["note"]) > limit // 2:
            made["full"] = text.line(note, 2000)
    if title is not None:
        made["title"] = title
    if look:
        made["look"] = look
    return made


def count_cell(count: int, href: str, *, bad: bool = False) -> Cell:
    """A number that leads to what it counts; nought is quiet. bad: more than nought is."""
    return cell(text.number(count), href=href, look="quiet" if not count else "bad" if bad else "")


def actions(*buttons: tuple[str, str, str]) -> Cell:
    """A cell of buttons: name, label and kind of each."""
    return {"actions": [{"name": name, "label": label, "kind": kind} for name, label, kind in buttons]}


class Table:
    """A table, and what stands in its place while it has no rows."""

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        nothing: tuple[str, str, str] | tuple[str, str],
        on_act: OnAct | None = None,
        on_select: Callable[[list[str]], None] | None = None,
        rows_a_page: int = 0,
    ) -> None:
        """nothing: title, hint and code of the empty state. on_select: makes rows selectable; gets their keys.

        rows_a_page: sends so many rows, and buttons for the others; 0 for all.
        """
        self._rows: list[Row] | None = None
        self.selected: list[str] = []
        self._on_select = on_select
        self.waiting = parts.tag("div", "Loading …", "empty")
        self.nothing = parts.empty(*nothing)
        self.nothing.visible = False
        self._table = ui.table(
            rows=[],
            columns=[column.properties() for column in columns],
            row_key="key",
            selection="multiple" if on_select is not None else None,
            on_select=self._selected if on_select is not None else None,
        )
        self._table.add_slot("body-cell", _CELL)
        self._table.props("flat hide-no-data hide-bottom color=primary")
        self._table.visible = False
        if on_act is not None:
            self._on_act = on_act
            self._table.on("act", self._acted)
        self._pages = _Pages(rows_a_page, self._send) if rows_a_page else None

    def show(self, rows: list[Row]) -> None:
        """Other rows, each with its `key`; nothing is sent where they are as they were."""
        if rows == self._rows:
            return
        self._rows = rows
        self.waiting.visible = False
        self.nothing.visible = not rows
        self._table.visible = bool(rows)
        known = {row["key"] for row in rows}
        if any(key not in known for key in self.selected):
            self.select([key for key in self.selected if key in known])
        self._send()

    def _send(self) -> None:
        rows = self._rows or []
        self._table.rows = rows if self._pages is None else self._pages.cut(rows)

    def select(self, keys: list[str]) -> None:
        """Selects these rows, and no others."""
        self._table.selected = [{"key": key} for key in keys]
        self._take(keys)

    async def _acted(self, event: GenericEventArguments) -> None:
        await self._on_act(str(event.args["name"]), str(event.args["key"]))

    def _selected(self, event: TableSelectionEventArguments) -> None:
        self._take([str(row["key"]) for row in cast("list[dict[str, Any]]", event.selection)])

    def _take(self, keys: list[str]) -> None:
        self.selected = keys
        if self._on_select is not None:
            self._on_select(keys)


class _Pages:
    """Which part of many rows is sent, and the buttons for the others."""

    def __init__(self, rows_a_page: int, changed: Callable[[], None]) -> None:
        self._size = rows_a_page
        self._start = 0
        self._changed = changed
        with parts.tag("div", classes="table-foot") as self._foot:
            self._told = parts.tag("span", "")
            parts.tag("span", classes="push")
            self._back = parts.button("Previous", lambda: self._move(-1), small=True)
            self._on = parts.button("Next", lambda: self._move(1), small=True)

    def cut(self, rows: list[Row]) -> list[Row]:
        """The rows of this page; the last one where there are fewer by now."""
        count = len(rows)
        self._start = min(self._start, max(0, count - 1) // self._size * self._size)
        end = min(count, self._start + self._size)
        self._foot.visible = count > self._size
        parts.set_text(self._told, f"{text.number(self._start + 1)} to {text.number(end)} of {text.number(count)}")
        parts.enable(self._back, self._start > 0, self._on, end < count)
        return rows[self._start : end]

    def _move(self, pages: int) -> None:
        self._start = max(0, self._start + pages * self._size)
        self._changed()
