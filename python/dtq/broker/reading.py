"""Which queues there are."""

from __future__ import annotations

from dtq.broker.counting import Counting


class Reading(Counting):
    """Verbs that only look."""

    def queues(self) -> list[str]:
        """Names of the known queues, sorted."""
        return sorted(name.decode() for name in self.command("SMEMBERS", self.keys.queues()))
