"""The audit of acts on many dead letters: each page of them is named before the first is touched."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice

from dtq.dead_letters import DeadLetter
from dtq.errors import (
    IdempotencyKeyReused,
    IllegalTransition,
    InvalidTask,
    QueueFull,
    TaskNotFound,
    UniqueConflict,
)

PAGE = 100
"""How many dead letters are read at a time, and named in one audit entry of a bulk act."""
REFUSALS = (InvalidTask, IllegalTransition, TaskNotFound, UniqueConflict, IdempotencyKeyReused, QueueFull)
"""What says that an act was not done. After a lost reply it may have been."""


class AnnouncedPages:
    """An audit entry names the dead letters of a page, and another one those that were refused or not reached.

    So a kill leaves no act without its entry. write: writes one, given `ids` or `not_done` and the names.
    """

    def __init__(self, write: Callable[[str, list[str]], None]) -> None:
        self._write = write
        self._ahead: list[str] = []
        self._refused: list[str] = []

    def over(self, letters: Iterator[DeadLetter]) -> Generator[DeadLetter]:
        """The same letters, announced. Raises BrokerUnavailable."""
        while page := list(islice(letters, PAGE)):
            self._ahead = [_name(letter) for letter in page]
            self._write("ids", list(self._ahead))
            yield from page
            self.close()

    @contextmanager
    def act(self, letter: DeadLetter) -> Generator[None]:
        """The act on the next one of them."""
        self._ahead.remove(_name(letter))
        try:
            yield
        except REFUSALS:
            self._refused.append(_name(letter))
            raise

    def close(self) -> None:
        """Write down what was not done. Raises BrokerUnavailable."""
        names = self._refused + self._ahead
        self._refused, self._ahead = [], []
        if names:
            self._write("not_done", names)


def _name(letter: DeadLetter) -> str:
    return letter.task_id or letter.entry
