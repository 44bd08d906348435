"""kill -9 of a whole worker when half of its tasks have ended, and a new worker at once: what is lost, what runs
twice.

Entrants take their turns until nothing moves any more; those that wait for a time-out do so beside the others' turns,
each on a server of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers.entrant import Entrant, Session
from bench.peers.record import ended, started, tally
from bench.peers.server import Server
from bench.peers.workers import Workers

QUIET_S = 4.0
"""An entrant that has not moved for so long waits for a time-out, and the next one has its turn."""


def kill_all(entrants: list[Entrant], wait_s: float) -> Iterator[tuple[Entrant, dict[str, Any], list[str]]]:
    """Each entrant's figures, in the order given. wait_s: how long after the kill it may take."""
    turn = threading.Lock()
    with ThreadPoolExecutor(max_workers=max(1, len(entrants))) as pool:
        waiting = [(entrant, pool.submit(_kill, entrant, wait_s, turn)) for entrant in entrants]
        for entrant, future in waiting:
            try:
                yield entrant, future.result(), []
            except (RuntimeError, OSError, TimeoutError) as error:
                yield entrant, {}, [f"kill: {error}"]


def _kill(entrant: Entrant, wait_s: float, turn: threading.Lock) -> dict[str, Any]:
    held = _Turn(turn)
    try:
        with Server() as server:
            session = Session(entrant, server, results=False)
            try:
                return _half_and_rest(session, entrant.size("kill"), wait_s, held)
            finally:
                session.close()
    finally:
        held.end()


def _half_and_rest(session: Session, tasks: int, wait_s: float, turn: _Turn) -> dict[str, Any]:
    session.fill("once", tasks)
    with session.workers() as workers:
        _until_half(session, workers, tasks)
    killed = time.monotonic()
    before = ended(session.records, tasks)
    begun = started(session.records, tasks)
    with session.workers() as workers:
        seconds = _until_done(session, workers, tasks, killed, wait_s, turn)
    after, starts = ended(session.records, tasks), started(session.records, tasks)
    return {
        "kill_tasks": tasks,
        "kill_ended_before": sum(map(bool, before)),
        "kill_interrupted": sum(1 for begin, end in zip(begun, before, strict=True) if begin > end),
        "kill_lost": after.count(0),
        "kill_twice": sum(1 for count in after if count > 1),
        "kill_started_twice": sum(1 for count in starts if count > 1),
        "kill_seconds": seconds,
        "kill_waited_s": wait_s,
    }


def _until_half(session: Session, workers: Workers, tasks: int) -> None:
    deadline = time.monotonic() + 90
    while tally(session.records, "once").ran < tasks // 2:
        workers.check_alive()
        if time.monotonic() > deadline:
            raise TimeoutError(f"half of {tasks} tasks did not end in 90 s. {session.log_tail()}")
        time.sleep(0.005)


def _until_done(
    session: Session, workers: Workers, tasks: int, killed: float, wait_s: float, turn: _Turn
) -> float | None:
    """Seconds from the kill until every task had ended; None: not within wait_s."""
    last, moved = -1, time.monotonic()
    while time.monotonic() - killed < wait_s:
        count = tally(session.records, "once").ran
        if count >= tasks and not ended(session.records, tasks).count(0):
            return tally(session.records, "once").last_end - killed
        if count != last:
            last, moved = count, time.monotonic()
        elif time.monotonic() - moved > QUIET_S:
            turn.end()
        workers.check_alive()
        time.sleep(0.01)
    return None


class _Turn:
    """The right to use the machine's CPUs, given up once."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock: threading.Lock | None = lock
        lock.acquire()

    def end(self) -> None:
        """Let the next one go."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
