"""The verbs of operators: run now, delete, dead letters, pause and resume, purge (spec §7).

Their callers write the audit entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dtq.broker.auditing import Auditing
from dtq.keys import BANDS

SLICE = 500
"""Most tasks that one call of a purge looks at: the others wait for a few ms at most."""
SLICE_BYTES = 1024 * 1024
MOST_BELLS = 64
"""Most bells that one resumption rings; children that it does not wake look within two seconds."""


class Operating(Auditing):
    """Verbs that change what becomes of tasks."""

    # --- one task

    def run_now(self, queue: str, task_id: str) -> tuple[str, str]:
        """Make a pending or retrying task due now.

        Returns:
            `queued`, `expired` (it was too late for it: `ttl` or `deadline`), `live`, `ended`, `damaged` or `unknown`,
            with the cause or a status code.
        """
        verdict, _, detail = self.run("run_now", queue, task_id).decode().partition(" ")
        return verdict, detail

    def delete(self, queue: str, task_id: str) -> tuple[str, str]:
        """Delete the record, the dead letter and the mention of an ended task.

        Returns:
            `deleted`, `live` with a status code, or `unknown`.
        """
        verdict, _, detail = self.run("delete", queue, task_id).decode().partition(" ")
        return verdict, detail

    # --- dead letters

    def dead_letter_count(self, queue: str) -> int:
        """How many dead letters stand."""
        return int(self.command("XLEN", self.keys.dead_letters(queue)))

    def dead_letter_page(
        self, queue: str, count: int, behind: str | None = None, *, oldest_first: bool = False
    ) -> list[tuple[str, bytes, bytes]]:
        """Dead letters in their order: (entry, id, record) each; an id of b'' goes with bytes that were no task.

        Args:
            queue: its name.
            count: most of them.
            behind: an entry to go on behind; from the newest (or the oldest) on unless given.
            oldest_first: the other way round.
        """
        key, start = self.keys.dead_letters(queue), f"({behind}" if behind else ("-" if oldest_first else "+")
        verb, end = ("XRANGE", "+") if oldest_first else ("XREVRANGE", "-")
        found = self.command(verb, key, start, end, "COUNT", count)
        return [(entry.decode(), fields[0], fields[1]) for entry, fields in found]

    def dead_letter(self, queue: str, entry: str) -> tuple[str, bytes, bytes] | None:
        """One dead letter by its entry, as in dead_letter_page; None where it does not stand (any more)."""
        found = self.command("XRANGE", self.keys.dead_letters(queue), entry, entry)
        return (found[0][0].decode(), found[0][1][0], found[0][1][1]) if found else None

    def requeue(self, queue: str, entry: str, task_id: str, envelope: bytes, place: bytes) -> tuple[str, str]:
        """Queue the task of one dead letter again.

        Args:
            queue: its name.
            entry: the dead letter's entry: another one of this task is not meant.
            task_id: its task.
            envelope: encoded anew; its band must be that of `place`.
            place: as in an enqueue chunk: band digit, then options.

        Returns:
            `requeued`, `live`, `ended`, `gone`, `deadline`, `unique`, `key` or `full`, with a status code or an id.
        """
        answer = self.run("requeue", queue, entry, task_id, envelope, place, self.settings.max_queue_depth)
        verdict, _, detail = answer.decode().partition(" ")
        return verdict, detail

    def discard(self, queue: str, letters: Sequence[tuple[str, bytes]]) -> int:
        """Take dead letters, (entry, id) each, off their stream; answers how many stood. At most SLICE in one call."""
        words = [word for letter in letters for word in letter]
        return int(self.run("discard", queue, *words)) if words else 0

    def purge_dead_letters(self, queue: str) -> Iterator[int]:
        """Discard all dead letters that stand now, a slice at each step; gives how many each step took."""
        newest = self.dead_letter_page(queue, 1)
        if not newest:
            return
        last = newest[0][0]
        while True:
            found = self.command("XRANGE", self.keys.dead_letters(queue), "-", last, "COUNT", SLICE // 5)
            if not found:
                return
            yield self.discard(queue, [(entry.decode(), fields[0]) for entry, fields in found])

    # --- pause and resume

    def pause(self, queue: str, task_type: str = "") -> bool:
        """Pause a queue, or one task type of it; False where it was already."""
        return bool(self.run("pause", queue, task_type))

    def resume(self, queue: str, task_type: str = "") -> bool:
        """Resume a queue, or one task type of it; False where it was not paused."""
        resumed = bool(self.run("resume", queue, task_type, MOST_BELLS))
        if task_type:
            self.unpark(queue)
        return resumed

    def unpark(self, queue: str) -> None:
        """Bring back what resumed types had parked. The leader calls it too: a resumption may have been cut short."""
        step = self.run("unpark", queue, "", 0, "-", SLICE)
        while step:
            walk, band, after = step
            step = self.run("unpark", queue, walk, band, after, SLICE)

    # --- purge

    def purge(self, queue: str) -> Iterator[int]:
        """End all waiting tasks as cancelled without a record, a slice at each step; gives how many each step took.

        It takes what stands in schedule and streams when it begins; running tasks stay. Between two steps the queue is
        consistent, so it may be left at any time, and called again.
        """
        behind, due, latest, through = "", 0, 0, 0
        while not through:
            purged, behind, due, latest, through = self.run(
                "purge_schedule", queue, behind, due, latest, SLICE, SLICE_BYTES
            )
            yield int(purged)
        ends = {band: self._last_entry(queue, band) for band in BANDS}
        for band, last in ends.items():
            after = "-" if last else ""
            while after:
                purged, found = self.run("purge", queue, band, after, last, SLICE, SLICE_BYTES)
                after = found.decode()
                yield int(purged)

    def _last_entry(self, queue: str, band: int) -> str:
        """The newest entry of a band's stream, '' where it has none."""
        found = self.command("XREVRANGE", self.keys.stream(queue, band), "+", "-", "COUNT", 1)
        return found[0][0].decode() if found else ""
