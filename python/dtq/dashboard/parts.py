"""The small parts that pages are built of: text, links, status, figures, facts, buttons, empty states.

All text goes in as text nodes; what others wrote is made visible by dtq.dashboard.text first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from nicegui import ui
from nicegui.element import Element

from dtq.dashboard import text
from dtq.models import TaskStatus

Act = Callable[[], object]
"""What a click does; may be a coroutine function."""

TONES = {
    TaskStatus.PENDING: "off",
    TaskStatus.QUEUED: "off",
    TaskStatus.RUNNING: "busy",
    TaskStatus.RETRYING: "warn",
    TaskStatus.SUCCEEDED: "good",
    TaskStatus.FAILED: "bad",
    TaskStatus.DEAD_LETTERED: "bad",
    TaskStatus.CANCELLED: "calm",
    TaskStatus.EXPIRED: "calm",
}
"""What colour stands beside the word of a status."""


def status_word(status: TaskStatus) -> str:
    """`dead_lettered` as people write it."""
    return str(status).replace("_", " ")


def here(page: str, **query: object) -> str:
    """The relative address of a page of the dashboard: `tasks?queue=mail`; what is None is left out."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return page + (f"?{urlencode(given)}" if given else "")


def task_address(queue: str, task_id: str) -> str:
    """Where one task is shown."""
    return here("task", queue=queue, id=task_id)


def tag(name: str, content: str | None = None, classes: str = "", **properties: Any) -> Element:
    """An element of HTML with text in it. Properties are attributes; `_` stands for `-`."""
    element = Element(name)
    if classes:
        element.classes(classes)
    if content is not None:
        element._text = content  # pyright: ignore[reportPrivateUsage]  # as its own ui.label does
    for key, value in properties.items():
        element.props[key.replace("_", "-")] = value
    return element


def set_text(element: Element, content: str) -> None:
    """Another text for an element of `tag`; sent only where it changed."""
    if element._text != content:  # pyright: ignore[reportPrivateUsage]
        element._text = content  # pyright: ignore[reportPrivateUsage]
        element.update()


def data(content: object, *, mono: bool = False, limit: int = text.LINE, element: str = "span") -> Element:
    """What others wrote, on one line; the whole stands in its tooltip where it was cut."""
    shown = text.line(content, limit)
    made = tag(element, shown, "data mono" if mono else "data")
    if shown.endswith("…"):
        made.props["title"] = text.line(content, 2000)
    return made


def link(content: str, address: str, classes: str = "") -> Element:
    """A link to a page of the dashboard."""
    return tag("a", content, classes, href=address)


def status(word: str, tone: str, *, large: bool = False) -> Element:
    """A status: its word beside a dot."""
    return tag("span", word, f"status status-{tone}{' large' if large else ''}")


def button(label: str, act: Act, kind: str = "plain", *, icon: str | None = None, small: bool = False) -> ui.button:
    """kind: plain, main (the one most wanted), danger (asks first) or quiet."""
    made = ui.button(label, on_click=act, icon=icon, color=None).props("unelevated no-caps")
    made.classes(f"{kind}{' small' if small else ''}")
    if kind == "quiet":
        made.props("flat")
    return made


def enable(back: ui.button, backward: bool, on: ui.button, forward: bool) -> None:
    """The two buttons of a list of pages; neither is there while all stands on one page."""
    for one, possible in ((back, backward), (on, forward)):
        one.set_enabled(possible)
        one.visible = backward or forward


@contextmanager
def card(title: str | None = None) -> Generator[Element]:
    """A surface; with a title there is a head, whose element is given to put more into it."""
    with tag("section", classes="card") as surface:
        if title is None:
            yield surface
            return
        with tag("div", classes="card-head") as head:
            tag("h2", title)
        yield head


def empty(title: str, hint: str, code: str = "") -> Element:
    """What stands where nothing is: what that means, and what to do next."""
    with tag("div", classes="empty") as made:
        tag("div", title, "title")
        with tag("div", classes="hint"):
            tag("span", hint)
            if code:
                tag("span", " ")
                tag("code", code)
    return made


async def answer_of(dialog: ui.dialog) -> Any:
    """What was submitted to a dialog, which is then removed; None where it was left, or its page."""
    answer = await dialog
    if not dialog.is_deleted:
        dialog.delete()
    return answer


class Figures:
    """A row of figures, each under its name."""

    def __init__(self, names: Iterable[tuple[str, str | None]]) -> None:
        """names: what each is called, and the page behind it."""
        self._values: dict[str, Element] = {}
        with tag("div", classes="figures"):
            for name, address in names:
                with tag("a" if address else "div", classes="figure") as box:
                    if address:
                        box.props["href"] = address
                    tag("span", name, "name")
                    self._values[name] = tag("span", "–", "value")

    def show(self, name: str, value: str, *, bad: bool = False) -> None:
        """Sets one of them."""
        element = self._values[name]
        if ("bad" in element.classes) != bad:
            element.classes(add="bad" if bad else None, remove=None if bad else "bad")
        set_text(element, value)


def fact(name: str, value: object | None, *, mono: bool = False, href: str | None = None) -> None:
    """A name and its value; nothing at all where there is no value."""
    if value is None or value == "":
        return
    with tag("div", classes="fact"):
        tag("div", name, "name")
        with tag("div", classes="value"):
            if href is not None:
                link(text.line(value), href, "data mono" if mono else "data")
            else:
                data(value, mono=mono)


def time_fact(name: str, when: datetime | None, now_ms: int | None = None) -> None:
    """A time in full; with `now_ms` also how long ago, for what is shown anew all the time."""
    if when is None:
        return
    with tag("div", classes="fact"):
        tag("div", f"{name} (UTC)", "name")
        with tag("div", classes="value"):
            tag("div", text.moment(when).removesuffix(" UTC"))
            if now_ms is not None:
                tag("div", text.ago(when, now_ms), "cell-note")
