"""A table in shared memory on which handlers note when they started, for the benchmark to read without asking Redis."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_ROW = struct.Struct("<qii")  # start (CLOCK_MONOTONIC, the same in all processes), pid, how often


class Row(NamedTuple):
    """The latest start of one task. started_ns: time.monotonic_ns(), 0 if it has not started yet."""

    started_ns: int
    pid: int
    runs: int


class Board:
    """Rows by number. Make one with `Board.create`, hand its `path` on, and `Board.open` it elsewhere."""

    def __init__(self, path: Path, owner: bool) -> None:
        self.path = path
        self._owner = owner
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, rows: int) -> Self:
        """A new board in a temporary file, which close() removes."""
        shared = Path("/dev/shm")  # noqa: S108 - mkstemp makes the name
        descriptor, name = tempfile.mkstemp(prefix="dtq-board-", dir=shared if shared.is_dir() else None)
        os.truncate(descriptor, rows * _ROW.size)
        os.close(descriptor)
        return cls(Path(name), owner=True)

    @classmethod
    def open(cls, path: str) -> Self:
        """A board that another process has made."""
        return cls(Path(path), owner=False)

    def write(self, row: int, started_ns: int) -> None:
        """Note a start by this process."""
        runs = self.read(row).runs
        _ROW.pack_into(self._memory, row * _ROW.size, started_ns, os.getpid(), runs + 1)

    def read(self, row: int) -> Row:
        """What is noted."""
        return Row(*_ROW.unpack_from(self._memory, row * _ROW.size))

    def wait(self, row: int, runs: int = 1, timeout_s: float = 30.0, pause_s: float = 0.001) -> Row:
        """The row once it says that its task has started `runs` times; TimeoutError after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (found := self.read(row)).runs < runs:
            if time.monotonic() > deadline:
                raise TimeoutError(f"task {row} started {found.runs} times within {timeout_s} s, expected {runs}")
            time.sleep(pause_s)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memory.close()
        if self._owner:
            self.path.unlink(missing_ok=True)
