"""The choice of a queue, whose names are filled in when they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from dtq.dashboard import text
from dtq.dashboard.parts import Act


class QueueChoice:
    """A list of queues to choose from. value: the one chosen, '' for all. label: above it; without one it is wide."""

    def __init__(self, value: str, on_change: Act, *, every: str = "", label: str | None = None) -> None:
        """every: what stands for all queues; without it one of them has to be chosen."""
        self._every = {"": every} if every else {}
        # The library types its options as lists and dicts of anything.
        self._select: Any = ui.select({**self._every, value: text.line(value) or every}, value=value, label=label)
        self._select.props("outlined dense options-dense").on_value_change(on_change)
        if label is None:
            self._select.props('aria-label="Queue"').style("min-width: 168px")

    @property
    def value(self) -> str:
        """The queue that is chosen."""
        return str(self._select.value or "")

    @property
    def visible(self) -> bool:
        """Whether it is there to be seen."""
        return bool(self._select.visible)

    @visible.setter
    def visible(self, value: bool) -> None:
        self._select.visible = value

    def show(self, queues: Mapping[str, str], value: str | None = None) -> None:
        """queues: name and label of each. value: another choice. What is chosen stays, also where it is not known."""
        chosen = self.value if value is None else value
        options = {**self._every, **queues}
        options.setdefault(chosen, text.line(chosen))
        if self._select.options != options or self.value != chosen:
            self._select.set_options(options, value=chosen)
