"""How a child waits: for new tasks, the supervisor's word, ended async handlers, or a moment, whichever is first."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

from dtq.broker import Broker, Delivery, Reader
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable
from dtq.worker.channel import Channel
from dtq.worker.processes import Scheduling

BLOCK_MS = 8000
"""How long one blocking read waits. Between two reads the child takes a turn that looks for strays."""
PAUSED_MS = 500
"""The same while a queue is paused: the turn between two reads sees that it is resumed. Also while a task waits to be
alone: the child may be empty by then."""

_BREAK_S = 0.002
"""Who has waited longer than this has nothing to do; between batches of a drain a wait is shorter."""
_SLACK_S = 5.0
LONGEST_S = BLOCK_MS / 1000 + _SLACK_S
"""Until then a read has its answer, or none will come."""


class Waiter:
    """One poll over the reader's connection, the supervisor's channel and an eventfd that threads and signals ring."""

    def __init__(self, broker: Broker, consumer: str, channel: Channel, scheduling: Scheduling) -> None:
        self._reader: Reader = broker.reader(consumer)
        self._scheduling = scheduling
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pausing = select.poll()
        self._waiting = select.poll()
        for poll in (self._pausing, self._waiting):
            poll.register(self._bell, select.POLLIN)
            poll.register(channel, select.POLLIN)
        self._connected: int | None = None
        self.reading = False
        """Whether a blocking read stands at the server; what it gets is ours."""
        self._reply_due = 0.0

    def ring(self) -> None:
        """End the current wait, or the next one. Safe from any thread and from signal handlers."""
        os.eventfd_write(self._bell, 1)

    def pause(self, seconds: float) -> None:
        """Wait without reading."""
        self._poll_once(self._pausing, seconds)

    def read(
        self,
        streams: Sequence[tuple[str, int]],
        block_ms: int,
        adoption: bytes | None,
        longest_s: float = LONGEST_S,
        *,
        idle: bool = False,
    ) -> Delivery | None:
        """Wait for new tasks, with the read that already stands or a new one; at most a few seconds.

        streams, block_ms: where a new read looks, (queue, band) each, and for how long.
        adoption: a command to send behind a new read; it adopts what the read gets, in the same round trip.
        longest_s: wait no longer than this for it now.
        idle: nothing is under way.
        None: woken by something else, or not yet, the read stands on. Raises BrokerUnavailable or GroupLost, after
        which what it may have got is unknown.
        """
        if not self.reading:
            self._reader.start(streams, block_ms, adoption)
            self._connect(self._reader.fileno())
            self.reading = True
            self._reply_due = SYSTEM.monotonic() + block_ms / 1000 + _SLACK_S
        wait_s = min(longest_s, max(0.0, self._reply_due - SYSTEM.monotonic()))
        ready = self._poll_once(self._waiting, min(wait_s, _BREAK_S) if idle else wait_s)
        if idle and not ready and wait_s > _BREAK_S:
            self._scheduling.idle()
            try:
                ready = self._poll_once(self._waiting, wait_s - _BREAK_S)
            finally:
                self._scheduling.busy()
        if self._connected in ready:
            self.reading = False
            return self._reader.receive()
        if SYSTEM.monotonic() >= self._reply_due:
            self.abandon()
            raise BrokerUnavailable("a blocking read got no answer in time")
        return None

    def abandon(self) -> None:
        """Drop the read that stands; what it may still get is found by a recovering turn or by the hand-over."""
        if self.reading:
            self.reading = False
            self._reader.abandon()

    def _connect(self, descriptor: int) -> None:
        """Watch this connection of the reader's, instead of an earlier one. It stays watched between two reads: to
        register it each time took a tenth of the way from the wake-up to the handler."""
        if descriptor != self._connected:
            if self._connected is not None:
                self._waiting.unregister(self._connected)
            self._waiting.register(descriptor, select.POLLIN)
            self._connected = descriptor

    def _poll_once(self, poll: select.poll, seconds: float) -> set[int]:
        ready = {descriptor for descriptor, _ in poll.poll(max(0, round(seconds * 1000)))}
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return ready
