"""One queue as those who run it handle it: pause, resume, purge, and what becomes of its dead letters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dtq.announcing import REFUSALS, AnnouncedPages
from dtq.client import Client
from dtq.dead_letter_acts import EVERY, DeadLetterActs
from dtq.dead_letters import DeadLetter, DeadLetterFilter, DeadLetterPage, check_entry
from dtq.errors import DtqError, InvalidTask, QueueFull, TaskNotFound
from dtq.handles import Handle
from dtq.history import MINUTES, Minute, TypeTimings
from dtq.off_loop import in_thread, steps
from dtq.options import check_task_type

if TYPE_CHECKING:
    from dtq.broker import Broker, QueueCounts


@dataclass(frozen=True, slots=True)
class Requeued:
    """What became of one dead letter of a bulk requeue. error: why it was refused; it stands as it was, then."""

    letter: DeadLetter
    error: DtqError | None = None


class Queue:
    """Made by `App.queue`. Every act that cannot be undone is written to the audit stream, in the name of `actor`.

    request_id: what ties these acts to a request, in the audit stream; a random one for each unless given.
    Each method has an async twin whose name begins with `a`: the same work in a thread, which never blocks the loop.
    """

    def __init__(self, client: Client, name: str, actor: str | None = None, request_id: str | None = None) -> None:
        self.name = name
        self._client = client
        self._acts = DeadLetterActs(client, name, actor, request_id)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def _broker(self) -> Broker:
        return self._client.broker

    def counts(self) -> QueueCounts:
        """The queue in figures; `paused` and `paused_types` too. Raises BrokerUnavailable, as all that follow."""
        return self._broker.queue_counts(self.name)

    def task_types(self) -> list[str]:
        """The task types seen in this queue, sorted; those that are paused too."""
        return self._broker.task_types(self.name)

    def history(self, minutes: int = MINUTES) -> list[Minute]:
        """What happened in each of the last `minutes` (1 to 60), the oldest first; the last one still goes on.

        Children tell once a second what has ended, and with it the growth of the counters is put down; so what happens
        while nothing ends in the queue stands in the minute in which something does, or in the current one.
        """
        if not 1 <= minutes <= MINUTES:
            raise InvalidTask("minutes", f"{minutes!r} is out of bounds; use 1 to {MINUTES}")
        return self._broker.minutes(self.name, minutes)

    def timings(self) -> dict[str, TypeTimings]:
        """How long attempts waited and ran, and how they ended, by task type, since the queue exists.

        The first 200 types of a queue have their own, the others are summed as `(other)`; `(unknown)` stands for tasks
        that no handler could run. A killed child takes what it has not told yet with it: a second of its work.
        """
        return self._broker.timings([self.name])[0]

    # --- pause, resume, purge ------------------------------------------------------------------------------------

    def pause(self, task_type: str | None = None) -> bool:
        """Stops new starts in this queue, or of one task type in it, in all workers; what runs goes on.

        Tasks may still be enqueued, and fall due. False where it was paused already.
        """
        return self._switch("pause", task_type)

    def resume(self, task_type: str | None = None) -> bool:
        """Undoes `pause`; False where it was not paused. A paused queue and its paused types are resumed apart."""
        return self._switch("resume", task_type)

    def _switch(self, action: str, task_type: str | None) -> bool:
        named = "" if task_type is None else check_task_type(task_type)
        self._broker.prepare_queue(self.name)  # so that it is listed as paused before its first task
        changed = self._broker.pause(self.name, named) if action == "pause" else self._broker.resume(self.name, named)
        if changed:
            facts = {"task_type": named} if named else {}
            self._acts.audit(action, "", facts)
            self._broker.announce(
                "CONFIGURATION_CHANGED", queue=self.name, facts={"paused": action == "pause", **facts}
            )
        return changed

    def purge(self) -> int:
        """Ends all waiting tasks as cancelled, without records; what runs goes on. Answers how many they were."""
        return sum(self.purge_steps())

    def purge_steps(self) -> Generator[int]:
        """`purge` in short steps, each giving how many tasks it took; the queue is consistent between any two."""
        counts = self.counts()
        self._acts.audit("purge", "", {"waiting": counts.waiting, "scheduled": counts.scheduled})
        yield from self._broker.purge(self.name)

    # --- dead letters --------------------------------------------------------------------------------------------

    def dead_letter_count(self) -> int:
        """How many dead letters stand. The oldest are trimmed above DTQ_DEAD_LETTER_MAX, and counted in `counts()`."""
        return self._broker.dead_letter_count(self.name)

    def dead_letters(
        self, which: DeadLetterFilter = EVERY, *, before: str | None = None, oldest_first: bool = False
    ) -> Generator[DeadLetter]:
        """The dead letters that `which` accepts, newest first, read page by page.

        before: the `entry` of a dead letter to go on behind. What dies meanwhile is not among them. Raises InvalidTask
        for what is no entry.
        """
        behind = None if before is None else check_entry("before", before)
        return self._acts.walk(which, before=behind, oldest_first=oldest_first)

    def dead_letter_page(
        self, which: DeadLetterFilter = EVERY, *, limit: int = 100, cursor: str | None = None
    ) -> DeadLetterPage:
        """Some of the dead letters that `which` accepts, newest first, at a bounded cost.

        limit: most of a page. cursor: that of the page before. A page may come back short, or empty, with a cursor: it
        looks at 2000 at most. Raises InvalidTask for what is no cursor.
        """
        return self._acts.page(which, limit, None if cursor is None else check_entry("cursor", cursor))

    def dead_letter(self, name: str) -> DeadLetter:
        """A dead letter by the id of its task, or by its entry.

        Raises IllegalTransition where the task stands otherwise or was discarded, TaskNotFound.
        """
        return self._acts.find(name)

    def requeue(
        self, name: str, *, payload: dict[str, Any] | None = None, deadline: datetime | None = None
    ) -> Handle[Any]:
        """Queues a dead letter's task again, under its id, with all its attempts; its history stays.

        Its ttl counts from now, its key and unique lock are taken again, its metadata gain `previous_attempts`.
        name: its task's id, or its entry. payload: another one instead of its own. deadline: a new one; needed where
        the old one has passed.
        Raises TaskNotFound, IllegalTransition (with the status it has), InvalidTask, UniqueConflict,
        IdempotencyKeyReused, QueueFull (DTQ_MAX_QUEUE_DEPTH). Of many calls at once one succeeds.
        """
        return Handle(self._client, self._acts.requeue(name, payload, deadline).task_id, self.name)

    def requeue_all(
        self,
        which: DeadLetterFilter = EVERY,
        *,
        rate: float | None = None,
        deadline: datetime | None = None,
        dry_run: bool = False,
    ) -> Generator[Requeued]:
        """Queues the tasks of all dead letters that `which` accepts again, oldest first; iterate to do it.

        It ends with the first one for which the queue has no room; the error of that one is QueueFull.
        rate: most tasks a second. dry_run: change nothing; what could be sent is told, not whether a lock is held or
        there is room.
        """
        if rate is not None and not 0 < rate < float("inf"):
            raise InvalidTask("rate", f"{rate!r} is no rate; use tasks a second, more than 0")
        return self._requeue_all(which, rate, deadline, dry_run)

    def _requeue_all(
        self, which: DeadLetterFilter, rate: float | None, deadline: datetime | None, dry_run: bool
    ) -> Generator[Requeued]:
        clock, pages = self._client.clock, AnnouncedPages(self._audit_bulk("requeue", which))
        letters, next_at = self.dead_letters(which, oldest_first=True), clock.monotonic()
        try:
            for letter in letters if dry_run else pages.over(letters):
                try:
                    if dry_run:
                        self._acts.rehearse(letter, deadline)
                    else:
                        with pages.act(letter):
                            self._acts.send(letter, *self._acts.parts(letter, None, deadline))
                except REFUSALS as error:
                    yield Requeued(letter, error)
                    if isinstance(error, QueueFull):  # so would be all that follow, or they would take
                        return  # what producers wait for
                    continue
                yield Requeued(letter)
                if rate is not None and not dry_run:
                    next_at = max(next_at, clock.monotonic() - 1.0) + 1 / rate
                    clock.sleep(max(0.0, next_at - clock.monotonic()))
        finally:
            pages.close()

    def discard(self, name: str) -> DeadLetter:
        """Takes a dead letter off the stream; its task stays dead_lettered, and its metadata say `discarded`.

        name: its task's id, or its entry. Raises TaskNotFound, IllegalTransition.
        """
        return self._acts.discard(name)

    def discard_all(self, which: DeadLetterFilter = EVERY, *, dry_run: bool = False) -> Generator[DeadLetter]:
        """Discards all dead letters that `which` accepts, oldest first; iterate to do it."""
        letters = self.dead_letters(which, oldest_first=True)
        if dry_run:
            yield from letters
            return
        pages = AnnouncedPages(self._audit_bulk("discard", which))
        try:
            for letter in pages.over(letters):
                try:
                    with pages.act(letter):
                        self._acts.take_off(letter)
                except TaskNotFound:
                    continue  # somebody else was first
                yield letter
        finally:
            pages.close()

    def purge_dead_letters(self) -> int:
        """Discards all dead letters that stand now, in slices; answers how many they were."""
        return sum(self.purge_dead_letters_steps())

    def purge_dead_letters_steps(self) -> Generator[int]:
        """`purge_dead_letters` in short steps, each giving how many it took."""
        self._acts.audit("purge_dead_letters", "", {"dead": self.dead_letter_count()})
        yield from self._broker.purge_dead_letters(self.name)

    # --- the same without blocking the loop ----------------------------------------------------------------------

    async def acounts(self) -> QueueCounts:
        """`counts` without blocking the loop."""
        return await in_thread(self.counts)

    async def atask_types(self) -> list[str]:
        """`task_types` without blocking the loop."""
        return await in_thread(self.task_types)

    async def ahistory(self, minutes: int = MINUTES) -> list[Minute]:
        """`history` without blocking the loop."""
        return await in_thread(self.history, minutes)

    async def atimings(self) -> dict[str, TypeTimings]:
        """`timings` without blocking the loop."""
        return await in_thread(self.timings)

    async def apause(self, task_type: str | None = None) -> bool:
        """`pause` without blocking the loop."""
        return await in_thread(self.pause, task_type)

    async def aresume(self, task_type: str | None = None) -> bool:
        """`resume` without blocking the loop."""
        return await in_thread(self.resume, task_type)

    async def apurge(self) -> int:
        """`purge` without blocking the loop; a cancelled one ends after the slice under way."""
        return sum([taken async for taken in self.apurge_steps()])

    def apurge_steps(self) -> AsyncGenerator[int]:
        """`purge_steps`, for `async for`."""
        return steps(self.purge_steps())

    async def adead_letter_count(self) -> int:
        """`dead_letter_count` without blocking the loop."""
        return await in_thread(self.dead_letter_count)

    def adead_letters(
        self, which: DeadLetterFilter = EVERY, *, before: str | None = None, oldest_first: bool = False
    ) -> AsyncGenerator[DeadLetter]:
        """`dead_letters`, for `async for`."""
        return steps(self.dead_letters(which, before=before, oldest_first=oldest_first))

    async def adead_letter_page(
        self, which: DeadLetterFilter = EVERY, *, limit: int = 100, cursor: str | None = None
    ) -> DeadLetterPage:
        """`dead_letter_page` without blocking the loop."""
        return await in_thread(self.dead_letter_page, which, limit=limit, cursor=cursor)

    async def adead_letter(self, name: str) -> DeadLetter:
        """`dead_letter` without blocking the loop."""
        return await in_thread(self.dead_letter, name)

    async def arequeue(
        self, name: str, *, payload: dict[str, Any] | None = None, deadline: datetime | None = None
    ) -> Handle[Any]:
        """`requeue` without blocking the loop."""
        return await in_thread(self.requeue, name, payload=payload, deadline=deadline)

    def arequeue_all(
        self,
        which: DeadLetterFilter = EVERY,
        *,
        rate: float | None = None,
        deadline: datetime | None = None,
        dry_run: bool = False,
    ) -> AsyncGenerator[Requeued]:
        """`requeue_all`, for `async for`."""
        return steps(self.requeue_all(which, rate=rate, deadline=deadline, dry_run=dry_run))

    async def adiscard(self, name: str) -> DeadLetter:
        """`discard` without blocking the loop."""
        return await in_thread(self.discard, name)

    def adiscard_all(self, which: DeadLetterFilter = EVERY, *, dry_run: bool = False) -> AsyncGenerator[DeadLetter]:
        """`discard_all`, for `async for`."""
        return steps(self.discard_all(which, dry_run=dry_run))

    async def apurge_dead_letters(self) -> int:
        """`purge_dead_letters` without blocking the loop."""
        return await in_thread(self.purge_dead_letters)

    def apurge_dead_letters_steps(self) -> AsyncGenerator[int]:
        """`purge_dead_letters_steps`, for `async for`."""
        return steps(self.purge_dead_letters_steps())

    # --- how -----------------------------------------------------------------------------------------------------

    def _audit_bulk(self, action: str, which: DeadLetterFilter) -> Callable[[str, list[str]], None]:
        """What writes one entry of a bulk act; all have one request id."""
        chosen = {name: value for name, value in asdict(which).items() if value not in (None, {})}
        request_id = self._acts.new_request_id()
        return lambda fact, ids: self._acts.audit(action, "", {"filter": chosen, fact: ids}, request_id)
