"""A dead letter as an operator sees it, filters over many of them, and what a requeue sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dtq import _core
from dtq.errors import InvalidTask, from_core
from dtq.models import Task, decode_json, from_ms, read_task
from dtq.options import DAY_MS, check_deadline, check_key
from dtq.plan import fingerprint_of, lock_of

_ENTRY = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One entry of a queue's dead-letter stream.

    entry: its id there. task: what died, with its payload, error and history; None for bytes that were no task
    (something else wrote them into the queue, or they are damaged), which stand in `raw`. died_at: by the server's
    clock.
    """

    entry: str
    queue: str
    task_id: str
    died_at: datetime
    task: Task | None
    raw: bytes = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; bytes that were no task are cut after 1 000."""
        return {
            "entry": self.entry,
            "queue": self.queue,
            "task_id": self.task_id,
            "died_at": self.died_at.isoformat(timespec="milliseconds"),
            "task": None if self.task is None else self.task.as_dict(),
            "raw": None if self.task is not None else self.raw[:1000].decode("latin-1"),
        }


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, newest first. cursor: for the next page; None at the end."""

    letters: tuple[DeadLetter, ...]
    cursor: str | None = None


def read_dead_letter(queue: str, entry: str, task_id: bytes, raw: bytes) -> DeadLetter:
    """The dead letter that these parts of its entry stand for."""
    name = task_id.decode("utf-8", "replace")
    task: Task | None = None
    if task_id:
        try:
            task = read_task(queue, name, live=None, envelope=None, record=raw, due_ms=None)
        except (_core.CoreError, ValueError):
            task = None  # damaged: shown as it is
    died_at = from_ms(int(entry.split("-")[0])) or datetime.min
    return DeadLetter(entry, queue, name, died_at, task, raw)


def is_entry(text: str) -> bool:
    """Whether a text may be the id of a dead-letter entry, such as 1700000000000-0."""
    numbers = [int(part) for part in text.split("-")] if _ENTRY.fullmatch(text) else []
    return any(numbers) and all(number < 2**64 for number in numbers)  # no entry is 0-0


def check_entry(field: str, text: str) -> str:
    """The id of an entry, of a dead letter or an audited act, to go on behind. Raises InvalidTask, naming the field."""
    if not is_entry(text):
        raise InvalidTask(field, "it was not given by a listing; begin without one")
    return text


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are meant; what is not given does not count.

    task_type, error_class: equal. older_than_s, newer_than_s: seconds since the death. where: payload paths and the
    values that must stand there, such as {"order.items[0].id": 7}.
    """

    task_type: str | None = None
    error_class: str | None = None
    older_than_s: float | None = None
    newer_than_s: float | None = None
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for path in self.where:
            _steps(path)

    def accepts(self, letter: DeadLetter, now_ms: int) -> bool:
        """Whether this dead letter is meant; bytes that were no task are meant only where nothing else is asked."""
        age_s = (now_ms - int(letter.entry.split("-")[0])) / 1000
        if self.older_than_s is not None and age_s < self.older_than_s:
            return False
        if self.newer_than_s is not None and age_s > self.newer_than_s:
            return False
        task = letter.task
        if task is None:
            return self.task_type is None and self.error_class is None and not self.where
        if self.task_type is not None and task.task_type != self.task_type:
            return False
        if self.error_class is not None and task.error_class != self.error_class:
            return False
        return all(_equal(_at(task.payload, path), value) for path, value in self.where.items())


def read_condition(text: str) -> tuple[str, Any]:
    """Path and value of `order.id=7`: the value is JSON, or a bare word. Raises InvalidTask."""
    path, equals, value = text.partition("=")
    if not equals:
        raise InvalidTask("where", f"{text!r} has no value; write it like order.id=7")
    try:
        return path, decode_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return path, value


_STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,9})\]")
_MISSING = object()


def _steps(path: str) -> list[str | int]:
    """`a.b[2]` as its steps. Raises InvalidTask for what is no path."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        if path[at] == "." and steps:
            at += 1
        found = _STEP.match(path, at)
        if found is None:
            break
        steps.append(int(found[2]) if found[2] is not None else found[1])
        at = found.end()
    if not steps or at != len(path):
        raise InvalidTask("where", f"{path!r} is no path into a payload; write it like order.items[0].id")
    return steps


def _at(value: Any, path: str) -> Any:
    """What stands at a path, or _MISSING."""
    for step in _steps(path):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value


def _equal(found: Any, wanted: Any) -> bool:
    """Equality of JSON: true is not 1."""
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def requeue_parts(
    raw: bytes, max_payload_bytes: int, payload: dict[str, Any] | None, deadline: datetime | None
) -> tuple[bytes, bytes]:
    """Envelope and place with which the task of a dead letter's record is queued again.

    raw: the record. payload: another one instead of its own. deadline: a new one. The metadata gain
    `previous_attempts`: how many this task has had before, over all its lives.
    Raises InvalidTask (also where the record cannot be read), PayloadTooLarge.
    """
    try:
        record = _core.parse_record(raw)
        envelope = _core.parse_envelope(record.envelope)
    except _core.CoreError as error:
        raise InvalidTask("dead letter", f"it cannot be queued again, its task is lost or damaged: {error}") from None
    extras: dict[str, Any] = decode_json(envelope.extras) if envelope.extras else {}
    metadata: dict[str, Any] = extras.get("metadata") or {}
    before = metadata.get("previous_attempts", 0)
    spent = record.attempt + (before if isinstance(before, int) and not isinstance(before, bool) else 0)
    extras["metadata"] = {**metadata, "previous_attempts": spent}
    if deadline is not None:
        extras["deadline_ms"] = check_deadline(deadline)
    head = _core.EnvelopeHead(
        envelope.task_type,
        envelope.band,
        envelope.max_attempts,
        envelope.timeout_ms,
        envelope.retention_ms,
        envelope.dead_letter,
        _core.encode_json(extras, "metadata"),
    )
    try:
        encoded = head.encode_raw(envelope.payload) if payload is None else head.encode(payload, max_payload_bytes)
        return encoded, _place(envelope, extras, payload, max_payload_bytes)
    except _core.CoreError as error:
        raise from_core(error) from None


def _place(
    envelope: _core.Envelope, extras: Mapping[str, Any], payload: dict[str, Any] | None, max_payload_bytes: int
) -> bytes:
    place = b"%d" % envelope.band
    if "ttl_ms" in extras:
        place += b"t%d;" % extras["ttl_ms"]
    if "deadline_ms" in extras:
        place += b"d%d;" % extras["deadline_ms"]
    unique, key = extras.get("unique", False), extras.get("idempotency_key")
    if unique or key:
        first = decode_json(envelope.payload)
        limit = max(max_payload_bytes, len(envelope.payload))
        if unique:
            work = fingerprint_of(envelope.task_type, first if payload is None else payload, limit)
            lock = lock_of(unique if unique is True else check_key(unique, "unique"), work)
            place += b"u%s,%d;" % (lock, extras.get("unique_ms", DAY_MS))
        if key:
            work = fingerprint_of(envelope.task_type, first, limit)
            quoted = check_key(key, "idempotency_key").encode()
            place += b"i%s,%s,%d;" % (quoted, work, extras.get("idempotency_ms", DAY_MS))
    if "batch_id" in extras:
        place += b"b%s;" % extras["batch_id"].encode()
    return place
