"""A JSON value as a tree that opens level by level: whatever its size, only what is looked at is sent.

Strings and keys stand in quotes, with JSON's escapes for what would not be seen; long ones are cut, with a button for
the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nicegui import ui
from nicegui.element import Element

from dtq.dashboard import text
from dtq.dashboard.parts import button, tag

CHILDREN = 50
"""Members of an object or array that are sent in one go."""
OPEN_AT_FIRST = 40
"""The top level stands open; all of it does where it has so few members in all."""
STRING = 300
"""Longest string that is shown without asking."""


def json_tree(value: Any, name: str) -> None:
    """The value, and buttons for its text as a whole. name: of the file to download."""
    with tag("div", classes="json"):
        _node(None, value, opened=True, inner=_size(value, OPEN_AT_FIRST) <= OPEN_AT_FIRST)
    with tag("div", classes="buttons").style("margin-top: 10px"):
        button("Show as text", lambda: show_whole(name, text.as_json(value)), "quiet", small=True)
        button("Download", lambda: ui.download(text.as_json(value).encode(), f"{name}.json"), "quiet", small=True)


def show_whole(title: str, content: str) -> None:
    """A dialog with a text as it is, to read and to copy from; at its end it is removed."""
    with ui.dialog() as dialog, ui.card().classes("dialog-card wide"):
        tag("h2", title)
        tag("pre", content, "text data")
        with tag("div", classes="buttons"):
            button("Close", dialog.close)
    dialog.on("hide", dialog.delete)
    dialog.open()


def long_text(content: str, title: str) -> None:
    """A block of text; where it is very long its beginning, and a button for the whole."""
    shown = text.block(content)
    if len(shown) <= text.BLOCK:
        tag("pre", shown, "text")
        return
    tag("pre", shown[: text.BLOCK] + "…", "text")
    more = tag("button", f"Show all {text.number(len(content))} characters", "more", type="button")
    more.on("click", lambda: show_whole(title, shown))


def _node(key: str | int | None, value: Any, *, opened: bool, inner: bool) -> None:
    """opened: this one stands open; inner: all that is in it does."""
    if isinstance(value, dict):
        _branch(key, _Members("{", "}", "key", list(cast("dict[str, Any]", value).items())), opened, inner)
    elif isinstance(value, list):
        items = cast("list[Any]", cast("object", value))
        _branch(key, _Members("[", "]", "item", list(enumerate(items))), opened, inner)
    else:
        with tag("div", classes="leaf"):
            _name(key)
            _leaf(value)


@dataclass(frozen=True, slots=True)
class _Members:
    left: str
    right: str
    kind: str
    all: Sequence[tuple[str | int, Any]]


def _branch(key: str | int | None, members: _Members, opened: bool, inner: bool) -> None:
    if not members.all:
        with tag("div", classes="leaf"):
            _name(key)
            tag("span", members.left + members.right, "kind")
        return
    with tag("details") as details:
        with tag("summary"):
            _name(key)
            tag("span", f"{members.left} {text.plural(len(members.all), members.kind)} {members.right}", "kind")
        inside = tag("div", classes="inside")
    filled = False

    def fill() -> None:
        nonlocal filled
        if not filled:
            filled = True
            _fill(inside, iter(members.all), len(members.all), inner)

    if opened:
        details.props["open"] = True
        fill()
    else:
        details.on("toggle", fill, [])


def _fill(inside: Element, members: Iterator[tuple[str | int, Any]], left: int, opened: bool) -> None:
    """The next members; and a button for more while there are."""
    with inside:
        for _ in range(min(CHILDREN, left)):
            key, value = next(members)
            _node(key, value, opened=opened, inner=opened)
        left -= min(CHILDREN, left)
        if not left:
            return
        more = tag("button", f"Show {min(CHILDREN, left)} more of {text.number(left)}", "more leaf", type="button")

        def go_on() -> None:
            more.delete()
            _fill(inside, members, left, opened)

        more.on("click", go_on, [])


def _size(value: Any, most: int) -> int:
    """How many members there are in all; counting ends above `most`."""
    waiting, count = [value], 0
    while waiting and count <= most:
        branch = waiting.pop()
        if isinstance(branch, dict):
            waiting += cast("dict[str, Any]", branch).values()
        elif isinstance(branch, list):
            waiting += branch
        count += 1
    return count


def _name(key: str | int | None) -> None:
    if isinstance(key, str):
        tag("span", text.as_json(key if len(key) <= STRING else key[:STRING] + "…"), "key")
        tag("span", ": ", "kind")
    elif key is not None:
        tag("span", f"{key}: ", "kind")


def _leaf(value: Any) -> None:
    if not isinstance(value, str):
        tag("span", text.as_json(value), "word" if value is None or isinstance(value, bool) else "number")
        return
    if len(value) <= STRING:
        tag("span", text.as_json(value), "string")
        return
    tag("span", text.as_json(value[:STRING]) + "… ", "string")
    more = tag("button", f"Show all {text.number(len(value))} characters", "more", type="button")
    more.on("click", lambda: show_whole("Text", text.block(value)), [])
