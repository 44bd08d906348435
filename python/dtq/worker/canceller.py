"""How a worker learns that a task it executes has been cancelled: it is told by pub/sub (listener.py), and it looks.

Both ways end in the inbox; what follows from it is done by the supervisor's main thread (limits.py).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from dtq._core import SlotRow, Slots
from dtq.broker import Broker, CancelNote
from dtq.clock import SYSTEM
from dtq.worker.pool import ChildProcess

LOOK_S = 1.0
"""How often, and for attempts that run longer than this, a worker looks for the flag by itself."""
_KEEP_S = 5.0
"""So long a note is kept whose claim is not executing: its handler may be about to begin."""
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
