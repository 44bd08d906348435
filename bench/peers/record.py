"""What handlers note of themselves: one memory-mapped file for each process, so that progress costs Redis nothing.

A file outlives a `kill -9` of its process. Its layout, which the programs in other languages keep as well, is

    0       three float64 for each kind of KINDS: how many ended, when the first started, when the last ended
    4096    LATENCIES float64: from the enqueue call to the start of a `stamp`, in seconds
    36864   LATENCIES float64: the same of a `load`
    69632   IDS bytes: how often the task of this number ended (up to 255)
    593920  IDS bytes: how often a `once` of this number started

Times are CLOCK_MONOTONIC, which is one clock for all processes of the machine. Tasks of a kind are numbered from 0;
the payload adds FIRST to the number, so that all are of one length.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from array import array
from pathlib import Path
from typing import NamedTuple

KINDS = ("noop", "burn", "nap", "stamp", "load", "once")
LATENCIES = 4096
IDS = 524_288
FIRST = 100_000
STAMPS_AT = 4096
LOADS_AT = STAMPS_AT + 8 * LATENCIES
ENDED_AT = LOADS_AT + 8 * LATENCIES
STARTED_AT = ENDED_AT + IDS
SIZE = STARTED_AT + IDS


class Record:
    """The file of this process, opened at the first task, and anew after a fork."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._pid = 0
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def started(self, number: int) -> None:
        """Count a start of `once`."""
        with self._lock:
            self._open()
            self._bytes[STARTED_AT + number] += 1

    def ended(self, kind: int, number: int, start: float, sent: float = 0.0) -> None:
        """Note that a task of this kind and number has ended; sent: when it was enqueued, for the latency."""
        with self._lock:
            self._open()
            head, place = self._head, 3 * kind
            count = int(head[place])
            if sent:
                times = self._stamps if kind == KINDS.index("stamp") else self._loads
                times[count % LATENCIES] = start - sent
            if not count:
                head[place + 1] = start
            head[place + 2] = time.monotonic()
            if self._bytes[ENDED_AT + number] < 255:
                self._bytes[ENDED_AT + number] += 1
            head[place] = count + 1

    def _open(self) -> None:
        if self._pid:
            return
        self._pid = os.getpid()
        file = os.open(os.path.join(self._directory, f"{self._pid}.record"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, SIZE)
        whole = memoryview(mmap.mmap(file, SIZE))
        os.close(file)
        self._bytes = whole
        self._head = whole[: 24 * len(KINDS)].cast("d")
        self._stamps = whole[STAMPS_AT:LOADS_AT].cast("d")
        self._loads = whole[LOADS_AT:ENDED_AT].cast("d")

    def _forget(self) -> None:
        self._pid = 0
        self._lock = threading.Lock()


class Tally(NamedTuple):
    """What all processes noted of one kind. ran: how often tasks ended; times are CLOCK_MONOTONIC seconds."""

    ran: int
    first_start: float
    last_end: float


def tally(directory: Path, kind: str) -> Tally:
    """The sum over all processes."""
    place = 24 * KINDS.index(kind)
    total, first, last = 0, float("inf"), 0.0
    for path in directory.glob("*.record"):
        head = array("d", _read(path, place, 24).ljust(24, b"\0"))
        if head[0]:
            total, first, last = total + int(head[0]), min(first, head[1]), max(last, head[2])
    return Tally(total, first, last)


def latencies(directory: Path, kind: str) -> list[float]:
    """Seconds from enqueue call to handler start of every `stamp` or `load`."""
    offset = STAMPS_AT if kind == "stamp" else LOADS_AT
    found: list[float] = []
    for path in directory.glob("*.record"):
        count = int(array("d", _read(path, 24 * KINDS.index(kind), 8).ljust(8, b"\0"))[0])
        found += array("d", _read(path, offset, 8 * min(count, LATENCIES)))
    return found


def ended(directory: Path, tasks: int) -> list[int]:
    """How often each of the tasks numbered 0 … tasks - 1 ended."""
    return _sums(directory, ENDED_AT, tasks)


def started(directory: Path, tasks: int) -> list[int]:
    """How often each `once` started."""
    return _sums(directory, STARTED_AT, tasks)


def _sums(directory: Path, offset: int, tasks: int) -> list[int]:
    rows = [_read(path, offset, tasks).ljust(tasks, b"\0") for path in directory.glob("*.record")]
    return list(map(sum, zip(*rows, strict=True))) if rows else [0] * tasks


def _read(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), size, offset)
