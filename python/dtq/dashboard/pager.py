"""The foot of a list that is read page by page: what stands there, and the buttons back and on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dtq.dashboard.parts import button, enable, set_text, tag


class Pager:
    """Knows where each page up to this one begins: a cursor leads on only, so those of the pages before are kept."""

    def __init__(self, turned: Callable[[], Awaitable[None]], back: str = "Previous", on: str = "Next") -> None:
        """turned: called when another page is to be shown. back, on: what the buttons say."""
        self._turned = turned
        self._cursors: list[str | None] = [None]
        self._following: str | None = None
        self.foot = tag("div", classes="table-foot")
        with self.foot:
            self._told = tag("span", "")
            tag("span", classes="push")
            self._back = button(back, self._turn_back, small=True)
            self._on = button(on, self._turn_on, small=True)
        enable(self._back, False, self._on, False)

    @property
    def cursor(self) -> str | None:
        """Where this page begins; None for the first one."""
        return self._cursors[-1]

    @property
    def number(self) -> int:
        """Of this page, from 1."""
        return len(self._cursors)

    def start_over(self) -> None:
        """Another list: its first page is next."""
        self._cursors = [None]

    def show(self, following: str | None, told: str) -> None:
        """What was read. following: where the next page begins, None where there is none. told: stands in the foot."""
        self._following = following
        enable(self._back, self.number > 1, self._on, following is not None)
        set_text(self._told, told)

    async def _turn_on(self) -> None:
        if self._following is not None:
            self._cursors.append(self._following)
            self._following = None  # a second click before the page is there leads no further
            await self._turned()

    async def _turn_back(self) -> None:
        if self.number > 1:
            self._cursors.pop()
            await self._turned()
