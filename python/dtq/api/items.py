"""The tasks of a batch as they come: lines of JSON, or the items of one JSON list, in memory for one item."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dtq.api.limits import too_large
from dtq.errors import DtqError, InvalidTask

Item = bytes | DtqError
"""The raw JSON of one task, or why it is none."""


class Lines:
    """One task a line; empty lines are none. limit: most bytes of a line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0
        self._too_long = False

    def feed(self, piece: bytes) -> Iterator[Item]:
        """The lines that end in this piece, and a line that has become too long."""
        first, newline, others = piece.partition(b"\n")
        if newline:
            yield from self._line(first)
            *whole, first = others.split(b"\n")
            for line in whole:
                if len(line) > self._limit:
                    yield too_large(self._limit, "line")
                elif line and not line.isspace():
                    yield line
        if not self._too_long:
            self._rest.append(first)
            self._size += len(first)
            if self._size > self._limit:
                self._rest, self._size, self._too_long = [], 0, True
                yield too_large(self._limit, "line")

    def finish(self) -> Iterator[Item]:
        """The last line, which need not end."""
        yield from self._line(b"")

    def _line(self, end: bytes) -> Iterator[Item]:
        """The line whose beginning came before."""
        line, too_long = b"".join((*self._rest, end)), self._too_long
        self._rest, self._size, self._too_long = [], 0, False
        if too_long:
            return
        if len(line) > self._limit:
            yield too_large(self._limit, "line")
        elif line and not line.isspace():
            yield line


_LONG_BYTES = 262_144
"""A string that goes on for longer is looked at again only once there is twice as much of it."""
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_WITHIN_LIST = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+", re.DOTALL)
"""What goes on up to a bracket or a comma; a quote behind it begins a string whose end has not come yet."""
_WITHIN_ITEM = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
"""The same, commas and all."""


class ListItems:
    """The items of one JSON list. limit: most bytes of an item."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = b""
        self._pieces: list[bytes] = []  # what has come since
        self._size = 0  # of both
        self._at = 0  # what stands before has been looked at
        self._start: int = 0  # of the item that is open
        self._depth: int = 0  # of brackets; the list's own is 1
        self._look_from = 0  # less text than this does not end the string that is open
        self._count = 0
        self._ended = False

    def feed(self, piece: bytes) -> Iterator[Item]:
        """The items that end in this piece.

        Raises InvalidTask, PayloadTooLarge: where the list goes on is not known.
        """
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= self._look_from:
            yield from self._scan()

    def finish(self) -> Iterator[Item]:
        """What has not been looked at yet; raises InvalidTask where the list has no end."""
        yield from self._scan()
        if not self._ended:
            raise InvalidTask("body", f"the list has no end; it breaks off in or behind item {self._count}")

    def _scan(self) -> Iterator[Item]:
        text = self._text = b"".join((self._text, *self._pieces))
        self._pieces, self._look_from = [], 0
        at, depth = self._at, self._depth
        while True:
            found = (_WITHIN_ITEM if depth > 1 else _WITHIN_LIST).match(text, at)
            at = found.end() if found is not None else at
            token = text[at : at + 1]
            if token in b'"':  # or nothing: the rest has not come yet
                if token and len(text) > _LONG_BYTES:
                    self._look_from = min(2 * len(text), self._limit)
                break
            if self._ended:
                break
            if token in b"[{":
                depth += 1
                if depth == 1:
                    self._start = at + 1
            else:
                if depth == 1:
                    if token == b"}":
                        raise InvalidTask("body", f"a }} stands where item {self._count} or the list should end")
                    yield from self._item(at, token != b",")
                if token != b",":
                    depth -= 1
            at += 1
        self._at, self._depth = at - self._start, depth
        if self._ended and text[self._start :].strip():
            raise InvalidTask("body", "something stands behind the end of the list")
        self._text, self._start = text[self._start :], 0
        self._size = len(self._text)
        if self._size > self._limit:
            raise too_large(self._limit, f"[{self._count}]")

    def _item(self, end: int, last: bool) -> Iterator[Item]:
        """The item that ends here."""
        item = self._text[self._start : end].strip()
        self._start, self._ended = end + 1, last
        if last and not item and self._count == 0:
            return  # an empty list
        self._count += 1
        yield item if item else InvalidTask(f"[{self._count - 1}]", "there is nothing between two commas")


def items_of(beginning: bytes, limit: int) -> Lines | ListItems:
    """What splits a body that begins so: a list begins with its bracket, all else is lines."""
    return ListItems(limit) if beginning.lstrip()[:1] == b"[" else Lines(limit)
