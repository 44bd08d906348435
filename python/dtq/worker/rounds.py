"""A child's rounds over its queues: which get a turn, in which order, and on which streams it waits.

One queue gets a turn each time. With several, empty turns would cost more than the work (20 us of Redis and a round
trip each): the child looks first, at many queues at once, and gives a turn to those where it may bring something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.worker.turns import Adopted
from dtq.worker.waiter import BLOCK_MS, PAUSED_MS

_SLICE = 64
"""Most queues that are looked at before a turn is given to the first of them that is ready."""
_FEW = 4
"""So few are looked at one by one; of more it is asked first, in one command, whether any holds a task."""
_QUIET_S = 0.005
"""So long more important queues that held nothing are not looked at again before a turn that is due anyway: a round
trip before each turn of quick tasks made ten queues a quarter slower than one. What comes there waits for the claim
that is being worked off, 20 ms of it, in any case."""
_STRAYS_S = BLOCK_MS / 2000
"""An idle child looks for strays this often at most: about once for each blocking read."""
_STRAY_TURNS = 16
"""In so many of the queues that hold tasks, and in one of all; the next ones follow the next time."""
MOST_STREAMS = 1024
"""So many streams one read waits on, each more costs Redis 1.4 us; beyond that, shorter reads go round over them."""
SHORTEST_MS = 500
"""No read is shorter than this for it."""

Stream = tuple[str, int]


class Rounds:
    """Rounds of one consumer. Bands in use only ever grow; what is known of them here may lag behind (protocol 21)."""

    def __init__(self, broker: Broker, consumer: str, queues: Sequence[str]) -> None:
        self._broker = broker
        self._consumer = consumer
        self._queues = tuple(queues)
        self._index = {queue: index for index, queue in enumerate(self._queues)}
        self._bands: list[tuple[int, ...]] = [()] * len(self._queues)
        self._unknown = set(range(len(self._queues)))
        self._quiet_below = 0
        self._quiet_until = 0.0
        self._asked_at = 0.0
        self._strays_at = 0.0
        self._next_stray = 0
        self._next_other = 0
        self._open: tuple[bool, ...] | None = None
        self._streams: tuple[Stream, ...] = ()
        self._from = 0

    nothing: tuple[Stream, ...] = ()
    """What a read that stands already is asked for."""

    # --- turns -------------------------------------------------------------------------------------------------------

    def turns(self, needed: Iterable[int]) -> Iterator[int]:
        """Which queues get a turn, the most important first; the caller stops when it has enough.

        needed: those that get one without a look. Raises BrokerUnavailable.
        """
        if len(self._queues) == 1:
            yield 0
            return
        given: set[int] = set()
        behind = 0
        for index in (*sorted(needed), len(self._queues)):
            if behind or not self._quiet(index):
                for found in self._ready(range(behind, index)):
                    given.add(found)
                    yield found
                if not (behind or given):
                    self._quiet_below, self._quiet_until = index, SYSTEM.monotonic() + _QUIET_S
            if index < len(self._queues):
                given.add(index)
                yield index
            behind = index + 1
        if SYSTEM.monotonic() >= self._strays_at:
            self._strays_at = SYSTEM.monotonic() + _STRAYS_S
            yield from self._strays(given)

    def _quiet(self, index: int) -> bool:
        """Whether a queue comes next that is due, and nothing was found a moment ago in those that come before it."""
        return index < len(self._queues) and index <= self._quiet_below and SYSTEM.monotonic() < self._quiet_until

    def _ready(self, indexes: Sequence[int]) -> Iterator[int]:
        """Those of these queues where a claim may find something, in their order."""
        if len(indexes) > _FEW:
            indexes = self._occupied(indexes)
        for at in range(0, len(indexes), _SLICE):
            part = indexes[at : at + _SLICE]
            looks = self._broker.look([self._queues[index] for index in part])
            for index, look in zip(part, looks, strict=True):
                self._learn(index, look.bands)
            yield from (index for index, look in zip(part, looks, strict=True) if look.ready)

    def _occupied(self, indexes: Sequence[int]) -> list[int]:
        return [self._index[queue] for queue in self._broker.occupied([self._queues[index] for index in indexes])]

    def _strays(self, given: set[int]) -> Iterator[int]:
        """Turns of an idle child find what is in its pending lists and unknown to it (protocol 2)."""
        held = [index for index in self._occupied(range(len(self._queues))) if index not in given]
        place = sum(index < self._next_stray for index in held)
        chosen = (held[place:] + held[:place])[:_STRAY_TURNS]
        if chosen:
            self._next_stray = chosen[-1] + 1
        other = self._next_other
        self._next_other = (other + 1) % len(self._queues)
        yield from sorted({*chosen, other} - given)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def streams(self, paused: Sequence[bool]) -> tuple[tuple[Stream, ...], int]:
        """What the next read waits on, and for how many ms: the bands in use of the queues that are not paused."""
        if len(self._queues) == 1 and SYSTEM.monotonic() >= self._asked_at + _STRAYS_S:
            self._unknown.add(0)  # no look ever tells of the bands of a single queue
        if self._unknown:
            self._ask()
        if (state := tuple(paused)) != self._open:
            self._open, self._from = state, 0
            self._streams = tuple(
                (queue, band)
                for queue, bands, closed in zip(self._queues, self._bands, paused, strict=True)
                if not closed
                for band in bands
            )
        block_ms = PAUSED_MS if any(paused) else BLOCK_MS
        if len(self._streams) <= MOST_STREAMS:
            return self._streams, block_ms
        part = self._streams[self._from : self._from + MOST_STREAMS]
        self._from += MOST_STREAMS
        if self._from >= len(self._streams):
            self._from = 0
        reads = -(-len(self._streams) // MOST_STREAMS)
        return part, min(block_ms, max(SHORTEST_MS, BLOCK_MS // reads))

    def hear(self, entries: Iterable[tuple[str, int, bytes, bytes]]) -> dict[int, list[Adopted]]:
        """What a read got, (queue, band, entry, id) each, by queue; a bell may mean that another band is in use now."""
        adopts: dict[int, list[Adopted]] = {}
        for queue, band, entry, task_id in entries:
            index = self._index[queue]
            adopts.setdefault(index, []).append((band, entry, task_id))
            if not task_id:
                self._unknown.add(index)
        return adopts

    def forget(self) -> None:
        """The consumer groups were lost: this consumer makes itself known anew."""
        self._unknown.update(range(len(self._queues)))

    def _ask(self) -> None:
        """Learn the bands in use, and be known to whoever uses one for the first time."""
        asked = sorted(self._unknown)
        for index, bands in zip(
            asked, self._broker.register([self._queues[index] for index in asked], self._consumer), strict=True
        ):
            self._learn(index, bands)
        self._unknown.clear()
        self._asked_at = SYSTEM.monotonic()

    def _learn(self, index: int, bands: tuple[int, ...]) -> None:
        if self._bands[index] != bands:
            self._bands[index] = bands
            self._open = None
