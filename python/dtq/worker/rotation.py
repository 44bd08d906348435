"""Upkeep over many queues: those that hold tasks are looked at each time, one of the others in turn."""

from __future__ import annotations

from collections.abc import Sequence

from dtq.broker import Broker


class Rotation:
    """Chooses which queues get a look. What is to be found in a queue without tasks can wait for its turn."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0

    def choose(self, queues: Sequence[str]) -> list[str]:
        """The queues of this time, in their order. Raises BrokerUnavailable."""
        if len(queues) <= 1:
            return list(queues)
        other = queues[self._next % len(queues)]
        self._next = (self._next + 1) % len(queues)
        chosen = {*self._broker.occupied(queues), other}
        return [queue for queue in queues if queue in chosen]
