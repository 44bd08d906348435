"""Cheap looks at many queues at once: which hold tasks, which have work for a claim, which bands they use.

Plain commands, one a queue or one for many, sent together: no script touches the keys of two queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dtq._core import pack_command
from dtq.broker.calls import Calls
from dtq.keys import BANDS, GROUP, HOME_BAND

LOOKS_A_CALL = 500
"""So many queues are looked at in one round trip: a server serves others in between."""


class Look(NamedTuple):
    """What one queue is like.

    ready: whether a claim may find something: a task that waits, or one that comes back. A read that was not adopted
    yet, or a paused type, makes it true in vain. bands: those in use, and the home band; the highest first.
    """

    ready: bool
    bands: tuple[int, ...]


ANYTHING = Look(ready=True, bands=tuple(reversed(BANDS)))
"""What is said of a queue whose keys were damaged: the turn, or the read, finds out and sets it aside."""


class Looking(Calls):
    """Verbs over many queues; all of them only look, but for register()."""

    def occupied(self, queues: Sequence[str]) -> list[str]:
        """Which of these queues hold queued or running tasks, in their order. One small command where none does."""
        return self._standing(queues, [self.keys.live(queue) for queue in queues])

    def scheduled(self, queues: Sequence[str]) -> list[str]:
        """Which of these queues have tasks that wait for their time, in their order."""
        return self._standing(queues, [self.keys.schedule(queue) for queue in queues])

    def _standing(self, queues: Sequence[str], keys: list[str]) -> list[str]:
        if not queues:
            return []
        count = int(self.command("EXISTS", *keys))
        if count in (0, len(keys)):
            return list(queues) if count else []
        replies = self._replies([["EXISTS", key] for key in keys])
        return [queue for queue, reply in zip(queues, replies, strict=True) if reply != 0]

    def look(self, queues: Sequence[str]) -> list[Look]:
        """Look at each of these queues."""
        commands: list[list[bytes | str | int]] = []
        for queue in queues:
            commands.append(["HLEN", self.keys.live(queue)])
            commands.append(["HMGET", self.keys.meta(queue), "running", "shelf", "bands"])
        replies = self._replies(commands)
        return [_look(live, facts) for live, facts in zip(replies[::2], replies[1::2], strict=True)]

    def register(self, queues: Sequence[str], consumer: str) -> list[tuple[int, ...]]:
        """Make a consumer known to queues whose streams it will wait on; answers the bands to read of each.

        The first use of a band rings one bell for each consumer that is known (parts/entries.lua).
        """
        commands: list[list[bytes | str | int]] = []
        for queue in queues:
            commands.append(["XGROUP", "CREATECONSUMER", self.keys.stream(queue, 0), GROUP, consumer])
            commands.append(["HGET", self.keys.meta(queue), "bands"])
        return [bands_of(bands) for bands in self._replies(commands)[1::2]]

    def _replies(self, commands: list[list[bytes | str | int]]) -> list[Any]:
        replies: list[Any] = []
        for at in range(0, len(commands), 2 * LOOKS_A_CALL):
            part = commands[at : at + 2 * LOOKS_A_CALL]
            replies += self.transport.call_many(b"".join(map(pack_command, part)), len(part))
        return replies


def bands_of(bands: Any) -> tuple[int, ...]:
    """The bands that a reader waits on by what the meta hash says: those in use, and home; the highest first."""
    if isinstance(bands, Exception) or not (bands or b"0").isdigit():
        return ANYTHING.bands
    used = {int(digit) for digit in (bands or b"").decode()}
    return tuple(sorted(used | {HOME_BAND}, reverse=True))


def _look(live: Any, facts: Any) -> Look:
    if isinstance(live, Exception) or isinstance(facts, Exception):
        return ANYTHING
    running, shelf, bands = facts
    try:
        idle = live <= int(running or 0)
    except ValueError:
        return ANYTHING
    return Look(ready=bool(shelf) or not idle, bands=bands_of(bands))
