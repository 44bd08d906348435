"""Slices of a queue's tasks in one status, and what consumers hold: for people who look through tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtq.broker.looking import Looking
from dtq.broker.values import Held, Snapshot

SLICE_BYTES = 1024 * 1024
"""A slice ends with the task that goes beyond this."""
CONSUMERS_A_CALL = 100


@dataclass(frozen=True, slots=True)
class Slice:
    """Some tasks of a queue in one status.

    place: where to go on; '' at the end. looked: how many tasks were looked at for it. cut: older ended tasks than
    listed ones are known by id only. found: (id, snapshot) each.
    """

    place: str
    looked: int
    cut: bool
    found: list[tuple[str, Snapshot]]


class Listing(Looking):
    """Verbs that read tasks by their status."""

    def browse(self, queue: str, section: str, most: int, *, task_type: str = "", place: str = "") -> Slice:
        """A slice of the tasks of a queue in one status, each read as it stands.

        Args:
            queue: its name.
            section: `queued` (newest first), `running`, `pending`, `retrying` or `scheduled` (next due first), or the
                status of ended tasks (newest end first).
            most: how many tasks are looked at, 1 or more.
            task_type: only tasks of this type are answered.
            place: as an earlier slice gave it, to go on behind that.
        """
        arguments = (section, most, SLICE_BYTES, task_type, place.encode("latin-1"))
        after, looked, cut, *parts = self.run("browse", queue, *arguments)
        found: list[tuple[str, Snapshot]] = []
        for at in range(0, len(parts), 5):
            task_id, live, envelope, record, due = parts[at : at + 5]
            due_ms = int(float(due)) if due else None
            found.append((task_id.decode(), Snapshot(live or None, envelope or None, record or None, due_ms)))
        return Slice(after.decode("latin-1"), int(looked), bool(cut), found)

    def having(self, queues: Sequence[str], section: str) -> list[str]:
        """Which of these queues may have tasks in a section, in their order: one small command where none has."""
        keys = self.keys
        if section in ("queued", "running"):
            return self.occupied(queues)
        if section in ("pending", "retrying", "scheduled"):
            return self.scheduled(queues)
        return self._standing(queues, [keys.recent(queue, section) for queue in queues])

    def holding(self, queue: str, consumers: Sequence[str], most: int) -> list[Held]:
        """The running tasks that consumers hold in a queue, at most `most` of each, its oldest claims first."""
        out: list[Held] = []
        for at in range(0, len(consumers), CONSUMERS_A_CALL):
            part = consumers[at : at + CONSUMERS_A_CALL]
            reply = self.run("holding", queue, most, *part)
            for k in range(0, len(reply), 4):
                number, task_id, live, task_type = reply[k : k + 4]
                out.append(Held(part[int(number)], queue, task_id.decode(), live, task_type.decode("utf-8", "replace")))
        return out
