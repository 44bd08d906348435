"""Bulk enqueue: any iterable, sent in chunks while it is iterated, one outcome per item in order, memory flat."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dtq import _core
from dtq.client import CHUNK_BYTES, CHUNK_TASKS, Client
from dtq.clock import Clock
from dtq.errors import DtqError, InvalidTask, from_core
from dtq.handles import Handle
from dtq.plan import Plan

if TYPE_CHECKING:
    from dtq.broker import Answer
    from dtq.telemetry import Telemetry

FIRST_CHUNK_TASKS = 64
"""Small, because the size of the items is not known yet."""
AHEAD_ITEMS = 50
AHEAD_S = 0.002
"""While the server works on a chunk, items of the next are read for so long at most: one, two, four, and soon so many
between two looks at the clock, for outcomes do not wait for a slow iterable longer than for about as much again."""


class BulkOutcome:
    """What became of one item. index: its place in the iterable, from 0. ok: a task with `id` answers for it."""

    __slots__ = ("index",)
    ok = False

    def __init__(self, index: int) -> None:
        self.index = index


class _WithTask(BulkOutcome):
    """An item that a task answers for."""

    __slots__ = ("_source", "id")
    ok = True

    def __init__(self, index: int, task_id: str, source: BulkEnqueue) -> None:
        self.index = index
        self.id = task_id
        self._source = source

    def __repr__(self) -> str:
        return f"{type(self).__name__}(index={self.index}, id={self.id!r})"

    @property
    def handle(self) -> Handle[Any]:
        """The handle of that task."""
        return self._source.handle(self.id, duplicate=isinstance(self, Duplicate))


class Accepted(_WithTask):
    """The item is a task now."""

    __slots__ = ()


class Duplicate(_WithTask):
    """An earlier task, `id`, answers for the item: same idempotency key, or unique with "return_existing"."""

    __slots__ = ()


class _WithError(BulkOutcome):
    """An item that is no task; `error` says why."""

    __slots__ = ("error",)

    def __init__(self, index: int, error: DtqError) -> None:
        self.index = index
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self).__name__}(index={self.index}, error={self.error!r})"


class Conflict(_WithError):
    """Another task holds the id, the unique lock or the idempotency key."""

    __slots__ = ()


class Invalid(_WithError):
    """The item cannot be a task; `error` names the field."""

    __slots__ = ()


class Refused(_WithError):
    """The queue is full."""

    __slots__ = ()


@dataclass(slots=True)
class BulkCounts:
    """How many items ended how; `first_error` is the first error among them."""

    accepted: int = 0
    duplicate: int = 0
    conflict: int = 0
    invalid: int = 0
    refused: int = 0
    first_error: DtqError | None = None

    @property
    def total(self) -> int:
        """All items."""
        return self.accepted + self.duplicate + self.conflict + self.invalid + self.refused


Encoded = tuple[_core.Chunk, dict[int, DtqError]]
"""A chunk of the good items of a block, and the errors of the bad ones by their place in it."""


class _Source:
    """The items of a bulk enqueue, and what ended them before their time."""

    def __init__(self, items: Iterator[object], clock: Clock) -> None:
        self.failure: Exception | None = None
        self._items = items
        self._clock = clock
        self._ended = False

    def fill(self, block: list[object], size: int, seconds: float | None = None) -> bool:
        """Adds items until there are `size`, or, between some and some, `seconds` have passed; False for the latter."""
        until = None if seconds is None else self._clock.monotonic() + seconds
        most = size if until is None else 1
        while len(block) < size and not self._ended:
            if until is not None and self._clock.monotonic() >= until:
                return False
            before, wanted = len(block), min(most, size - len(block))
            most = max(most, min(2 * most, AHEAD_ITEMS))
            try:
                block.extend(islice(self._items, wanted))
            except Exception as error:
                self.failure = error
            self._ended = self.failure is not None or len(block) - before < wanted
        return True


class _Block:
    """The items of one chunk; read and encoded while the server works on the chunk before, if they come quickly."""

    def __init__(self, source: _Source, encode: Callable[[list[Any]], Encoded], size: int) -> None:
        self.size = size
        self._source = source
        self._encode = encode
        self._items: list[object] = []
        self._encoded: Encoded | None = None
        self._failure: Exception | None = None

    def read_ahead(self) -> None:
        """As much as a short time allows; never raises."""
        try:
            if self._source.fill(self._items, self.size, AHEAD_S):
                self._encoded = self._encode(self._items)
        except Exception as error:
            self._failure = error

    def read(self) -> list[object]:
        """All its items."""
        self._source.fill(self._items, self.size)
        return self._items

    def encoded(self) -> Encoded:
        """The items as a chunk; raises what encoding them has raised."""
        if self._failure is not None:
            raise self._failure
        return self._encode(self._items) if self._encoded is None else self._encoded


class BulkEnqueue(Iterator[BulkOutcome]):
    """Sends while it is iterated; `run()` iterates to the end and counts.

    required: the keys of a payload that surely fits; of any other, `problem` says in one line why it does not (None:
    it does). Iteration raises BrokerUnavailable when a chunk could not be sent before the enqueue deadline: the items
    whose outcome was given stand, those of that chunk may or may not.
    """

    def __init__(
        self,
        client: Client,
        plan: Plan,
        payloads: Iterable[object],
        required: frozenset[str] | None = None,
        problem: Callable[[Any], str | None] | None = None,
    ) -> None:
        if plan.task_id is not None:
            raise InvalidTask("task_id", "one id cannot name many tasks; leave it out, or enqueue them one by one")
        self._client = client
        self._plan = plan
        self._required = required
        self._problem = problem
        self._size = FIRST_CHUNK_TASKS
        self._payloads = payloads
        self._begun: tuple[Iterator[list[BulkOutcome]], Iterator[BulkOutcome]] | None = None

    def __iter__(self) -> Iterator[BulkOutcome]:
        return self._begin()[1]  # a loop over it costs no Python call per item

    def __next__(self) -> BulkOutcome:
        return next(self._begin()[1])

    def _begin(self) -> tuple[Iterator[list[BulkOutcome]], Iterator[BulkOutcome]]:
        """The outcomes by chunk and one by one; a generator made earlier would keep this object alive."""
        if self._begun is None:
            chunks = self._run(iter(self._payloads))
            if self._client.telemetry is not None:
                chunks = self._traced(self._client.telemetry, chunks)
            self._begun = chunks, chain.from_iterable(chunks)
        return self._begun

    def __del__(self) -> None:
        if getattr(self, "_begun", self) is None:
            warnings.warn(
                "enqueue_many(...) was never iterated, so nothing was enqueued; iterate it or call .run()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def run(self) -> BulkCounts:
        """Enqueues everything that is left and counts the outcomes."""
        counts = BulkCounts()
        for outcomes in self._begin()[0]:
            for kind in (Accepted, Duplicate, Conflict, Invalid, Refused):
                name = kind.__name__.lower()
                setattr(counts, name, getattr(counts, name) + [type(outcome) for outcome in outcomes].count(kind))
            if counts.first_error is None:
                errors = (outcome.error for outcome in outcomes if isinstance(outcome, _WithError))
                counts.first_error = next(errors, None)
        return counts

    def handle(self, task_id: str, duplicate: bool) -> Handle[Any]:
        """The handle of one of its tasks."""
        retention_ms = None if duplicate else self._plan.retention_ms
        return Handle(self._client, task_id, self._plan.queue, retention_ms, duplicate)

    def _run(self, payloads: Iterator[object]) -> Iterator[list[BulkOutcome]]:
        source = _Source(payloads, self._client.clock)
        start, block = 0, _Block(source, self._encode, self._size)
        while items := block.read():
            following = _Block(source, self._encode, 0)
            yield from self._send(start, items, block.encoded(), following)
            start += len(items)
            block = following
        if source.failure is not None:
            raise source.failure  # what the iterable gave before it failed is enqueued

    def _traced(self, telemetry: Telemetry, chunks: Iterator[list[BulkOutcome]]) -> Iterator[list[BulkOutcome]]:
        """The same within one span for all, that ends with the last chunk, or where the iteration is given up."""
        self._plan, span = telemetry.sending(self._plan)
        error: BaseException | None = None
        try:
            yield from chunks
        except BaseException as raised:
            error = None if isinstance(raised, GeneratorExit) else raised
            raise
        finally:
            telemetry.sent(span, error=error)

    def _send(
        self, start: int, items: list[object], encoded: Encoded, following: _Block | None = None
    ) -> Iterator[list[BulkOutcome]]:
        """One block as one chunk, or as two halves where it turns out too large; the one after it is made meanwhile."""
        chunk, refused = encoded
        average = max(1, chunk.byte_size // max(1, len(chunk)))
        self._size = min(CHUNK_TASKS, 2 * len(items) + FIRST_CHUNK_TASKS, max(1, CHUNK_BYTES * 9 // 10 // average))
        if following is not None:
            following.size = self._size
        if chunk.byte_size > CHUNK_BYTES and len(chunk) > 1:
            half = len(items) // 2
            for at, part in ((0, items[:half]), (half, items[half:])):
                yield from self._send(start + at, part, self._encode(part))
            return
        ids = chunk.ids
        ahead = following.read_ahead if following is not None else None
        answers = self._client.send(self._plan.queue, chunk, ahead) if ids else ()
        if not refused and [answer.code for answer in answers].count("a") == len(ids):
            yield [Accepted(index, task_id, self) for index, task_id in enumerate(ids, start)]
            return
        sent = zip(ids, answers, strict=True)
        yield [
            Invalid(start + place, error)
            if (error := refused.get(place)) is not None
            else self._outcome(start + place, *next(sent))
            for place in range(len(items))
        ]

    def _outcome(self, index: int, task_id: str, answer: Answer) -> BulkOutcome:
        """What the server's answer means for one item."""
        if answer.code == "a":
            return Accepted(index, task_id, self)
        existing = self._client.existing(self._plan, answer)
        if existing is not None:
            return Duplicate(index, existing, self)
        kind = Refused if answer.code in "fp" else Conflict
        return kind(index, self._client.refusal(self._plan, task_id, answer))

    def _encode(self, block: list[Any]) -> Encoded:
        """A chunk of the good items, and the errors of the bad ones by their place in the block."""
        plan, chunk = self._plan, _core.Chunk()
        refused = self._misfits(block)
        places = [place for place in range(len(block)) if place not in refused] if refused else range(len(block))
        good = [block[place] for place in places] if refused else block
        now_ms = self._client.clock.now_ms()
        ids = _core.new_ids(now_ms, os.urandom(10 * len(good)), len(good))
        if plan.plain:
            for place, core_error in chunk.extend(ids, plan.head, good, plan.max_payload_bytes, plan.place):
                refused[places[place]] = from_core(core_error)
            return chunk, refused
        for place, task_id, payload in zip(places, ids, good, strict=True):
            try:
                self._client.add(chunk, plan, payload, now_ms, task_id)
            except DtqError as error:
                refused[place] = error
        return chunk, refused

    def _misfits(self, block: list[Any]) -> dict[int, DtqError]:
        """The items that do not fit the signature; what is no dict at all, the core refuses."""
        required, problem = self._required, self._problem
        if problem is None:
            return {}
        suspects = [
            place for place, payload in enumerate(block) if isinstance(payload, dict) and payload.keys() != required
        ]  # fmt: skip
        found = ((place, problem(block[place])) for place in suspects)
        return {place: InvalidTask(*text.split(": ", 1)) for place, text in found if text is not None}
