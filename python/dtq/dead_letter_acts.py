"""Acts on one dead letter: find it, queue its task again, discard it; each announced in the audit stream."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dtq import _core
from dtq.announcing import PAGE, REFUSALS
from dtq.dead_letters import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterPage,
    is_entry,
    read_dead_letter,
    requeue_parts,
)
from dtq.errors import (
    IdempotencyKeyReused,
    IllegalTransition,
    InvalidTask,
    QueueFull,
    TaskNotFound,
    UniqueConflict,
    from_core,
)
from dtq.models import Task, TaskStatus, read_task
from dtq.source import Source

if TYPE_CHECKING:
    from dtq.broker import Broker

EVERY = DeadLetterFilter()
LOOKS = 2000
"""Most dead letters that one page looks at."""


class DeadLetterActs:
    """What can be done to the dead letters of a queue, one by one.

    actor: who acts, for the audit stream; this process's user and host unless given. request_id: what ties the acts to
    a request; a random one for each unless given.
    """

    def __init__(self, source: Source, queue: str, actor: str | None = None, request_id: str | None = None) -> None:
        self.queue = queue
        self.source = source
        self._actor = actor
        self._request_id = request_id

    @property
    def broker(self) -> Broker:
        """The verbs on the server."""
        return self.source.broker

    # --- finding -------------------------------------------------------------------------------------------------

    def walk(
        self, which: DeadLetterFilter = EVERY, *, before: str | None = None, oldest_first: bool = False
    ) -> Generator[DeadLetter]:
        """The dead letters that `which` accepts, newest first, read page by page; see Queue.dead_letters."""
        now_ms, behind = self.source.clock.now_ms(), before
        newest = self.broker.dead_letter_page(self.queue, 1) if oldest_first else []
        while page := self.broker.dead_letter_page(self.queue, PAGE, behind, oldest_first=oldest_first):
            for entry, task_id, raw in page:
                letter = read_dead_letter(self.queue, entry, task_id, raw)
                if which.accepts(letter, now_ms):
                    yield letter
                if newest and entry == newest[0][0]:
                    return
            behind = page[-1][0]

    def page(self, which: DeadLetterFilter, limit: int, cursor: str | None) -> DeadLetterPage:
        """One page; see Queue.dead_letter_page."""
        now_ms, found, last = self.source.clock.now_ms(), list[DeadLetter](), cursor
        for looks, letter in enumerate(self.walk(before=cursor)):
            if len(found) == limit or looks == LOOKS:
                return DeadLetterPage(tuple(found), last)
            if which.accepts(letter, now_ms):
                found.append(letter)
            last = letter.entry
        return DeadLetterPage(tuple(found))

    def find(self, name: str) -> DeadLetter:
        """A dead letter by the id of its task, or by its entry; see Queue.dead_letter."""
        if is_entry(name) and (found := self.broker.dead_letter(self.queue, name)) is not None:
            return read_dead_letter(self.queue, *found)
        task = self._task(name)
        if task is None:
            # Its record may be gone while its dead letter still stands.
            for letter in self.walk():
                if letter.task_id == name:
                    return letter
            raise TaskNotFound(f"task_id: {name!r} is not known in queue {self.queue!r}; check id and queue")
        if task.status is not TaskStatus.DEAD_LETTERED:
            raise _not_dead(name, task.status)
        found = self.broker.dead_letter(self.queue, task.dead_letter_id) if task.dead_letter_id else None
        if found is None:
            why = "was discarded" if task.dead_letter_id is None else "is no longer in the stream, which is bounded"
            raise IllegalTransition(f"task_id: the dead letter of {name!r} {why}; enqueue the task anew", terminal=True)
        return read_dead_letter(self.queue, *found)

    def _task(self, task_id: str) -> Task | None:
        snapshot = self.broker.inspect(self.queue, [task_id])[0]
        if snapshot is None:
            return None
        try:
            return read_task(
                self.queue,
                task_id,
                live=snapshot.live,
                envelope=snapshot.envelope,
                record=snapshot.record,
                due_ms=snapshot.due_ms,
            )
        except _core.CoreError as error:
            raise from_core(error) from None

    # --- acting --------------------------------------------------------------------------------------------------

    def requeue(self, name: str, payload: dict[str, Any] | None = None, deadline: datetime | None = None) -> DeadLetter:
        """Queues a dead letter's task again; see Queue.requeue. Gives the letter that stood for it."""
        letter = self.find(name)
        parts = self.parts(letter, payload, deadline)
        with self._announced("requeue", letter, edited=payload is not None):
            self.send(letter, *parts)
        return letter

    def discard(self, name: str) -> DeadLetter:
        """Takes a dead letter off the stream; see Queue.discard."""
        letter = self.find(name)
        with self._announced("discard", letter):
            self.take_off(letter)
        return letter

    def parts(
        self, letter: DeadLetter, payload: dict[str, Any] | None, deadline: datetime | None
    ) -> tuple[bytes, bytes]:
        """What is sent for a requeue. Raises InvalidTask, PayloadTooLarge."""
        if letter.task is None:
            raise InvalidTask("dead letter", f"{letter.entry} holds no task that could be queued again; discard it")
        return requeue_parts(letter.raw, self.source.settings.max_payload_bytes, payload, deadline)

    def rehearse(self, letter: DeadLetter, deadline: datetime | None) -> None:
        """What can be known without writing; whether a deadline has passed is told by this host's clock."""
        self.parts(letter, None, deadline)
        last = deadline or (letter.task.deadline if letter.task is not None else None)
        if last is not None and last.timestamp() * 1000 <= self.source.clock.now_ms():
            raise _too_late(letter)

    def take_off(self, letter: DeadLetter) -> None:
        """Discards it, unannounced. Raises TaskNotFound."""
        if not self.broker.discard(self.queue, [(letter.entry, letter.task_id.encode())]):
            raise _gone(letter)

    def send(self, letter: DeadLetter, envelope: bytes, place: bytes) -> None:
        """Queues its task again, unannounced. Raises what Queue.requeue does."""
        verdict, detail = self.broker.requeue(self.queue, letter.entry, letter.task_id, envelope, place)
        if verdict == "requeued":
            return
        if verdict in ("live", "ended"):
            raise _not_dead(letter.task_id, TaskStatus.from_code(int(detail)))
        if verdict == "deadline":
            raise _too_late(letter)
        if verdict == "full":
            raise QueueFull(
                f"queue: {self.queue!r} holds its limit of {self.source.settings.max_queue_depth} tasks "
                f"(DTQ_MAX_QUEUE_DEPTH); task {letter.task_id} stays among the dead letters, try again"
            )
        if verdict == "unique":
            raise UniqueConflict(f"unique: task {detail} of queue {self.queue!r} holds the lock; wait for it", detail)
        if verdict == "key":
            raise IdempotencyKeyReused(
                f"idempotency_key: task {detail} of queue {self.queue!r} has the key of {letter.task_id} by now"
            )
        raise _gone(letter)

    # --- audit ---------------------------------------------------------------------------------------------------

    def audit(
        self, action: str, task_id: str = "", facts: Mapping[str, Any] | None = None, request_id: str | None = None
    ) -> None:
        """Writes one act in the name of the actor."""
        self.broker.audit(
            action, self.queue, task_id, facts, actor=self._actor, request_id=request_id or self._request_id
        )

    def new_request_id(self) -> str:
        """That of this request, or a random one: entries that belong together share it."""
        return self._request_id or os.urandom(8).hex()

    @contextmanager
    def announced(self, action: str, task_id: str, **facts: object) -> Generator[None]:
        """One act: its audit entry is written first, and a second one where it was refused."""
        request_id = self.new_request_id()
        self.audit(action, task_id, facts, request_id)
        try:
            yield
        except REFUSALS as error:
            self.audit(action, task_id, {**facts, "refused": type(error).__name__}, request_id)
            raise

    def _announced(self, action: str, letter: DeadLetter, **facts: object) -> Any:
        return self.announced(action, letter.task_id, entry=letter.entry, **facts)


def _not_dead(task_id: str, status: TaskStatus) -> IllegalTransition:
    return IllegalTransition(
        f"status: task {task_id} is {status}; only a dead letter can be queued again or discarded",
        terminal=status.terminal,
    )


def _gone(letter: DeadLetter) -> TaskNotFound:
    return TaskNotFound(f"dead letter: {letter.entry} does not stand any more; it was queued again, or discarded")


def _too_late(letter: DeadLetter) -> InvalidTask:
    return InvalidTask("deadline", f"that of task {letter.task_id} has passed; give a new one")
