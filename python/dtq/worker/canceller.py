"""How a worker learns that a task it executes has been cancelled: it is told by pub/sub, and it looks by itself.

Both ways end in the inbox; what follows from it is done by the supervisor's main thread (limits.py).
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from dtq._core import SlotRow, Slots
from dtq.broker import Broker, CancelNote
from dtq.clock import SYSTEM
from dtq.errors import DtqError
from dtq.worker.journal import LOGGER
from dtq.worker.pool import ChildProcess

LOOK_S = 1.0
"""How often, and for attempts that run longer than this, a worker looks for the flag by itself."""
_KEEP_S = 5.0
"""So long a note is kept whose claim is not executing: its handler may be about to begin."""
_POLL_S = 0.5
_SLICE = 200


class CancelInbox:
    """Cancelled claims on their way to the supervisor's main thread. ring: wakes it; called from any thread."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._notes: deque[CancelNote] = deque()
        self._ring = ring

    def put(self, note: CancelNote) -> None:
        """Hand one in, from any thread. The same one may come often."""
        self._notes.append(note)
        self._ring()

    def deliver(self, children: Iterable[ChildProcess], now: float) -> None:
        """In the main thread: note each at the child that holds it; the next look at the child does the rest."""
        if not self._notes:
            return
        consumers = {child.consumer: child for child in children}
        while self._notes:
            note = self._notes.popleft()
            if child := consumers.get(note.consumer):
                child.cancels[note.seq] = now + _KEEP_S


class CancelListener(threading.Thread):
    """Hears cancels by pub/sub, over a connection of its own. What it misses while that is down, FlagWatch finds."""

    def __init__(self, broker: Broker, inbox: CancelInbox) -> None:
        super().__init__(name="dtq-cancels", daemon=True)
        self._broker = broker
        self._inbox = inbox
        self._worker_id = ""
        self._stopping = threading.Event()
        self._backoff_s = 0.0

    def serve(self, worker_id: str) -> None:
        """Hear what is for this worker id, from now on."""
        self._worker_id = worker_id
        if not self.is_alive():
            self.start()

    def stop(self) -> None:
        """End, within moments, without waiting for it."""
        self._stopping.set()

    def run(self) -> None:
        """Listen until stopped."""
        while not self._stopping.is_set():
            try:
                self._listen(self._worker_id)
                continue
            except DtqError as error:
                if not self._backoff_s:
                    LOGGER.info("cancels are not heard at once, but found within %g s: %s", LOOK_S, error)
            except Exception:
                LOGGER.exception("hearing cancels failed; this is a bug in dtq")
            self._backoff_s = min(2.0, max(0.05, self._backoff_s * 2))
            self._stopping.wait(self._backoff_s * random.uniform(0.5, 1.0))

    def _listen(self, worker_id: str) -> None:
        """Until stopped, or until the worker has another id."""
        notes = self._broker.hear_cancels(worker_id)
        try:
            while not self._stopping.is_set() and worker_id == self._worker_id:
                note = notes.get(_POLL_S)
                self._backoff_s = 0.0
                if note is not None:
                    self._inbox.put(note)
        finally:
            notes.close()


class FlagWatch:
    """Looks for the flag of what runs longer than LOOK_S: one script call a second and queue, none where nothing does.

    queues: in the order of the slots' queue numbers.
    """

    def __init__(self, broker: Broker, slots: Slots, queues: Sequence[str], inbox: CancelInbox) -> None:
        self.next_at = 0.0
        self._broker = broker
        self._slots = slots
        self._queues = tuple(queues)
        self._inbox = inbox
        self._ids: dict[tuple[int, int, bytes], bytes] = {}

    def run(self) -> None:
        """Look once at all of them."""
        self.next_at = SYSTEM.monotonic() + LOOK_S
        since = SYSTEM.boottime_ns() - round(LOOK_S * 1e9)
        old: defaultdict[int, list[SlotRow]] = defaultdict(list)
        for number in range(self._slots.children):
            for row in self._slots.rows(number):
                if row.started_ns <= since:
                    old[row.queue].append(row)
        known, self._ids = self._ids, {}
        for index, rows in old.items():
            for at in range(0, len(rows), _SLICE):
                self._look(index, rows[at : at + _SLICE], known)

    def _look(self, index: int, rows: list[SlotRow], known: dict[tuple[int, int, bytes], bytes]) -> None:
        asked = [(row.band, row.entry, known.get((index, row.band, row.entry), b"")) for row in rows]
        for row, (task_id, value) in zip(rows, self._broker.flags(self._queues[index], asked), strict=True):
            self._ids[index, row.band, row.entry] = task_id
            if value.startswith(b"r:") and value.endswith(b"c"):  # the flag is the last of the tail
                _, _, _, _, consumer, seq, _ = value.split(b":", 6)
                self._inbox.put(CancelNote(consumer.decode(), int(seq)))
