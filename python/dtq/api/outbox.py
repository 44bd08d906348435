"""Answers that the caller has not read yet: a little in memory, the rest in a file without a name."""

from __future__ import annotations

from asyncio import Event
from collections import deque
from tempfile import TemporaryFile
from typing import IO

IN_MEMORY_BYTES = 1024 * 1024
PIECE_BYTES = 65_536


class Outbox:
    """Takes pieces and gives them back in order; never refuses one, never grows in memory.

    A client that sends all of a long body before it reads the first answer would wait for a server that waits for it.
    """

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._file: IO[bytes] | None = None
        self._read = self._written = 0
        self._arrived = Event()
        self._ended = False
        self._failure: BaseException | None = None

    def put(self, piece: bytes) -> None:
        """Add a piece; what was put once the memory is full goes to the file until all of that has been read."""
        if self._written > self._read or self._size + len(piece) > IN_MEMORY_BYTES:
            if self._file is None:
                self._file = TemporaryFile(prefix="dtq-")  # noqa: SIM115 -- closed by close()
            self._file.seek(self._written)
            self._file.write(piece)
            self._written += len(piece)
        else:
            self._pieces.append(piece)
            self._size += len(piece)
        self._arrived.set()

    def end(self, failure: BaseException | None = None) -> None:
        """No more pieces come; failure: raised to the reader once it has read all."""
        self._ended, self._failure = True, failure
        self._arrived.set()

    async def get(self) -> bytes | None:
        """The next piece; None at the end."""
        while True:
            if self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                return piece
            if self._file is not None and self._read < self._written:
                self._file.seek(self._read)
                piece = self._file.read(PIECE_BYTES)
                self._read += len(piece)
                if self._read == self._written:
                    self._read = self._written = 0
                    self._file.truncate(0)
                return piece
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return None
            self._arrived.clear()
            await self._arrived.wait()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._pieces.clear()
