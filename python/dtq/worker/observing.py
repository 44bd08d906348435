"""What a child tells Redis of its attempts' times: gathered in the core, sent once a second at most."""

from __future__ import annotations

import logging

from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import DtqError
from dtq.worker.journal import LOGGER
from dtq.worker.turns import Turns

_PERIOD_S = 1.0
_QUEUES_A_CALL = 64
"""So many queues are told of at once, the others with the next call: an observation takes Redis some 40 us."""


class Observer:
    """Sends what `turns` has gathered. A kill, or a lost connection, takes a second of times at most, no counter."""

    def __init__(self, broker: Broker, turns: Turns, queues: tuple[str, ...]) -> None:
        self._broker = broker
        self._turns = turns
        self._queues = queues
        self._next_at = 0.0
        self._refused = False

    def wait_s(self, longest_s: float) -> float:
        """How long a child may wait before it has to tell something; `longest_s` where there is nothing to tell."""
        if not self._turns.observed:
            return longest_s
        return min(longest_s, max(0.0, self._next_at - SYSTEM.monotonic()))

    def tell(self, *, last: bool = False) -> None:
        """Send what was gathered, if it is time. last: all of it, now.

        Its own failure is no error, times are not worth a task. Raises BrokerUnavailable for a settle under way, whose
        answer is taken first: on the same connection.
        """
        observed = self._turns.observed
        if not observed or (not last and SYSTEM.monotonic() < self._next_at):
            return
        self._next_at = SYSTEM.monotonic() + _PERIOD_S
        while observed:
            indexes = list(observed)[:_QUEUES_A_CALL]
            with self._turns.lock:
                self._turns.finish()
                told = {self._queues[index]: self._turns.outcomes[index].take_timings() for index in indexes}
                for index in indexes:
                    del observed[index]
            try:
                self._broker.observe(told)
            except DtqError as error:
                # The turns say that Redis is away; here it is worth a line only where nothing else would say it.
                LOGGER.log(logging.DEBUG if self._refused else logging.INFO, "timings were not kept: %s", error)
                self._refused = True
                return
            if not last:
                return
