"""Collecting steps: a label, the state it leads to (or the invariant it breaks), and whether it is a fault."""

from __future__ import annotations

from collections.abc import Callable

from tests.protocol.rules import Config
from tests.protocol.state import Broken, State


class Steps:
    """All steps out of one state."""

    def __init__(self, c: Config, s: State, tidy: Callable[[Config, State], None] | None) -> None:
        self.found: list[tuple[str, State | Broken, bool]] = []
        self._config = c
        self._state = s
        self._tidy = tidy

    def add(self, label: str, change: Callable[[State], object], fault: bool = False) -> None:
        """A step: `change` is given a copy of the state; where it answers False there is no such step."""
        new = self._state.copy()
        try:
            if change(new) is False:
                return
            if self._tidy:
                self._tidy(self._config, new)
        except Broken as broken:
            self.found.append((label, broken, fault))
            return
        self.found.append((label, new, fault))
