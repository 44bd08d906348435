"""One open page: who looks at it, how it reads without ever blocking, how it acts, asks and tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from nicegui import ui
from nicegui.element import Element
from starlette.requests import Request

from dtq.app import App
from dtq.clock import Clock
from dtq.dashboard import text
from dtq.dashboard.access import Access, Visitor
from dtq.dashboard.bulk import BulkActs
from dtq.dashboard.feed import Feed
from dtq.dashboard.figures import LONGEST_REST_S, Figures
from dtq.dashboard.parts import answer_of, button, set_text, tag
from dtq.errors import DtqError
from dtq.off_loop import in_thread

P = ParamSpec("P")
T = TypeVar("T")

EVERY_S = 2.0
"""A page reads anew so often, in seconds; and not before REST times what the reading took, LONGEST_REST_S at most."""
REST = 4


@dataclass(frozen=True)
class Desk:
    """What all pages of one dashboard share."""

    app: App
    access: Access
    figures: Figures
    bulk: BulkActs
    feed: Feed

    @property
    def clock(self) -> Clock:
        """The clocks of the app."""
        return self.app.client.clock


class Page:
    """Made by dtq.dashboard.layout for each load of a page."""

    def __init__(self, desk: Desk, request: Request, visitor: Visitor, banner: Element) -> None:
        self.desk = desk
        self.app = desk.app
        self.query = request.query_params
        self.actor = visitor.name
        self._visitor = visitor
        self._banner = banner
        self._client = ui.context.client
        self._load: Callable[[], Awaitable[None]] | None = None
        self._timer: ui.timer | None = None
        self._every_s = EVERY_S
        self._reading = asyncio.Lock()

    @property
    def now_ms(self) -> int:
        """The time of this host, to tell ages by."""
        return self.desk.clock.now_ms()

    # --- reading -------------------------------------------------------------------------------------------------

    def live(self, load: Callable[[], Awaitable[None]], every_s: float = EVERY_S) -> ui.timer:
        """Calls `load` now and again and again, one call after the other; tells what is wrong while it fails."""
        self._load = load
        self._every_s = every_s
        self._timer = ui.timer(every_s, self.refresh)
        return self._timer

    def every(self, seconds: float) -> None:
        """Reads so often from now on."""
        self._every_s = seconds

    async def refresh(self) -> None:
        """Reads anew, now."""
        if self._load is None or not self._still_in():
            return
        async with self._reading:
            began, rest = self.desk.clock.monotonic(), 0.0
            try:
                await self._load()
            except DtqError as error:
                self._trouble(str(error))
            else:
                self._trouble("")
                rest = min(REST * (self.desk.clock.monotonic() - began), LONGEST_REST_S)
            if self._timer is not None:
                self._timer.interval = max(self._every_s, rest)

    def _trouble(self, problem: str) -> None:
        if problem:
            set_text(self._banner, text.line(problem, 600))
        self._banner.visible = bool(problem)

    def _still_in(self) -> bool:
        """Whether the session stands; a page that was left open leads to the sign-in otherwise."""
        if self.desk.access.still(self._visitor):
            return True
        with self._client.content:
            ui.navigate.to("/login")
        return False

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking verb in a thread."""
        return await in_thread(call, *args, **kwargs)

    # --- acting --------------------------------------------------------------------------------------------------

    async def act(self, call: Callable[[], Awaitable[str]]) -> bool:
        """Does something, tells what happened, and reads anew. False where it was refused."""
        if not self._still_in():
            return False
        try:
            told, done = await call(), True
        except DtqError as error:
            told, done = str(error), False
        self.tell(told, wrong=not done)
        await self.refresh()
        return done

    async def begin(self, title: str, steps: AsyncGenerator[tuple[int, str]]) -> None:
        """Begins an act that takes its time; dtq.dashboard.bulk says what steps are."""

        async def begin() -> str:
            self.desk.bulk.start(title, self.actor, steps)
            return f"{title} has begun"

        await self.act(begin)

    def tell(self, message: str, *, wrong: bool = False) -> None:
        """A notice; one that says what went wrong stays until it is closed."""
        with self._client.content:
            ui.notify(
                text.line(message, 600),
                position="bottom-right",
                timeout=0 if wrong else 5000,
                close_button="Close" if wrong else False,
                multi_line=len(message) > 60,
                icon="error_outline" if wrong else "check_circle_outline",
                classes="notice wrong" if wrong else "notice",
                textColor="notice",  # a name without a colour of its own: that of the sheet counts
            )

    async def ask(self, question: str, explanation: str, yes: str) -> bool:
        """Asks before what cannot be undone. yes: what the button says that does it."""
        if not self._still_in():
            return False
        with self._client.content, ui.dialog() as dialog, ui.card().classes("dialog-card"):
            tag("h2", question)
            tag("div", explanation, "body data")
            with tag("div", classes="buttons"):
                button("Keep things as they are", lambda: dialog.submit(False))
                button(yes, lambda: dialog.submit(True), "danger filled")
        return bool(await answer_of(dialog))

    def go(self, address: str) -> None:
        """Opens another page of the dashboard, by its relative address."""
        with self._client.content:
            ui.navigate.to("/" + address)

    def note_address(self, address: str) -> None:
        """Makes the address bar say what is shown, so that it can be kept, sent and reloaded."""
        with self._client.content:
            ui.navigate.history.replace(address)
