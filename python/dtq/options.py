"""The options a task may be registered or enqueued with, and the check of each: one line that names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, cast

from dtq import _core
from dtq.backoff import LONGEST_DELAY_S, Backoff, constant
from dtq.errors import InvalidTask, from_core
from dtq.settings import QUEUE_NAME, Settings

DEFAULT_PRIORITY = 5
METADATA_BYTES = 4096
"""Largest `metadata`, and largest `headers`, as compact JSON."""
DAY_MS = 86_400_000

_TASK_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_BATCH_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TASK_TYPE = re.compile(r"[\w.<>:-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT = f"{LONGEST_DELAY_S:.0f} s (10 years)"

Seconds = float | timedelta
"""A duration: a number of seconds (fractions allowed) or a timedelta."""


class EnqueueOptions(TypedDict, total=False):
    """What one enqueue may say beside the payload. Durations are seconds (fractions allowed) or timedeltas.

    queue: its name (1-64 of A-Za-z0-9._-). priority: band 0 (lowest) to 9 (5). delay: run no earlier than so long
    from now, at most 10 years; 0 or less is now. run_at: the same as an aware datetime. ttl: must start within so
    long; 0 or less is no limit. timeout: of one attempt. deadline: aware datetime after which no attempt starts.
    max_attempts: at least 1. retention: how long the finished record is kept; 0 deletes it at success, `math.inf` keeps
    it for ever. task_id: 1-128 of A-Za-z0-9._:- (else made by dtq). headers: texts for tracing. metadata: JSON object,
    both at most 4 KiB. batch_id: 1-128 of A-Za-z0-9._-. unique: True (same type and payload) or a key of your own:
    refused, or with conflict="return_existing" answered with the first task, while that one has not ended, at
    most `unique_ttl` (1 day). idempotency_key: answers with the first task for `idempotency_ttl` (1 day).
    """

    queue: str
    priority: int
    delay: Seconds
    run_at: datetime
    ttl: Seconds | None
    timeout: Seconds
    deadline: datetime
    max_attempts: int
    retention: Seconds
    task_id: str
    headers: Mapping[str, str]
    metadata: Mapping[str, Any]
    batch_id: str
    unique: bool | str
    unique_ttl: Seconds
    conflict: Literal["reject", "return_existing"]
    idempotency_key: str
    idempotency_ttl: Seconds


OPTION_NAMES = frozenset(EnqueueOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a task was registered with; None: the settings decide. Everything here has been checked."""

    queue: str | None = None
    priority: int = DEFAULT_PRIORITY
    max_attempts: int | None = None
    timeout_ms: int | None = None
    retention_ms: int | None = None
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    fatal: tuple[type[BaseException], ...] = ()

    @classmethod
    def checked(
        cls,
        settings: Settings,
        *,
        queue: str | None,
        priority: int | None,
        max_attempts: int | None,
        timeout: Seconds | None,
        retention: Seconds | None,
        backoff: Backoff | Seconds | None,
        retry_on: object,
        fatal: object,
    ) -> TaskOptions:
        """The options of a registration; InvalidTask names the first that is wrong."""
        return cls(
            queue=None if queue is None else check_queue(queue),
            priority=DEFAULT_PRIORITY if priority is None else check_priority(priority),
            max_attempts=None if max_attempts is None else check_max_attempts(max_attempts, settings),
            timeout_ms=None if timeout is None else check_timeout(timeout, settings),
            retention_ms=None if retention is None else check_retention(retention),
            backoff=_check_backoff(backoff),
            retry_on=None if retry_on is None else _check_classes(retry_on, "retry_on"),
            fatal=() if fatal is None else _check_classes(fatal, "fatal"),
        )


def check_task_type(value: object) -> str:
    """A task type: 1-255 bytes of letters, digits and `_ . - : < >`."""
    if isinstance(value, str) and _TASK_TYPE.fullmatch(value) and value.strip(".") and len(value.encode()) <= 255:
        return value
    if not isinstance(value, str):
        way_out = "give the name under which the handler is registered, or call enqueue() of the task itself"
        raise InvalidTask("task type", f"{_shown(value)} is no name; {way_out}")
    raise InvalidTask("task type", f"{_shown(value)} is not allowed; use 1 to 255 letters, digits and _ . - : < >")


def check_queue(value: object) -> str:
    """A queue name: 1-64 of A-Za-z0-9._-, not only dots."""
    if isinstance(value, str) and QUEUE_NAME.fullmatch(value) and value.strip("."):
        return value
    raise InvalidTask("queue", f"{_shown(value)} is not allowed; use 1 to 64 of A-Z a-z 0-9 . _ -")


def check_task_id(value: object) -> str:
    """A task id: 1-128 of A-Za-z0-9._:-, not only dots."""
    if isinstance(value, str) and _TASK_ID.fullmatch(value) and value.strip("."):
        return value
    raise InvalidTask("task_id", f"{_shown(value)} is not allowed; use 1 to 128 of A-Z a-z 0-9 . _ : -")


def check_batch_id(value: object) -> str:
    """A batch id: 1-128 of A-Za-z0-9._-."""
    if isinstance(value, str) and _BATCH_ID.fullmatch(value) and value.strip("."):
        return value
    raise InvalidTask("batch_id", f"{_shown(value)} is not allowed; use 1 to 128 of A-Z a-z 0-9 . _ -")


def check_key(value: object, field: str) -> str:
    """An idempotency or unique key: 1-255 characters, percent-encoded so that Redis sees plain letters."""
    from urllib.parse import quote

    if isinstance(value, str) and 1 <= len(value) <= 255:
        try:
            return quote(value, safe="")
        except UnicodeEncodeError:
            pass
    raise InvalidTask(field, f"{_shown(value)} is not allowed; use a text of 1 to 255 characters")


def check_priority(value: object) -> int:
    """A priority band, 0 to 9."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 9:
        return int(value)
    raise InvalidTask("priority", f"{_shown(value)} is out of bounds; use a whole number from 0 (lowest) to 9")


def check_max_attempts(value: object, settings: Settings) -> int:
    """A number of attempts, 1 to the cap."""
    cap = settings.max_attempts_cap
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= cap:
        return int(value)
    raise InvalidTask(
        "max_attempts", f"{_shown(value)} is out of bounds; use a whole number from 1 to {cap} (DTQ_MAX_ATTEMPTS)"
    )


def check_timeout(value: object, settings: Settings) -> int:
    """A time limit in ms, above 0 and up to the cap."""
    seconds = _seconds(value, "timeout")
    cap = settings.timeout_cap_s
    if not 0 < seconds <= cap:
        raise InvalidTask(
            "timeout",
            f"{seconds:.15g} s is out of bounds; use more than 0 and at most {cap:.15g} s (DTQ_TIMEOUT_CAP_S)",
        )
    return max(1, round(seconds * 1000))


def check_retention(value: object) -> int:
    """A retention in ms: 0 deletes at success, infinity keeps for ever."""
    if value == math.inf:
        return _core.FOREVER_MS
    seconds = _seconds(value, "retention")
    if not 0 <= seconds <= LONGEST_DELAY_S:
        raise InvalidTask(
            "retention", f"{seconds:.15g} s is out of bounds; use 0 (delete at success) to {_LIMIT}, or math.inf"
        )
    return max(1, round(seconds * 1000)) if seconds else 0


def check_delay(value: object) -> int:
    """A delay in ms; 0 for "now"."""
    return _wait_ms(value, "delay")


def check_ttl(value: object) -> int:
    """A ttl in ms; 0 for "no limit"."""
    return 0 if value is None else _wait_ms(value, "ttl")


def check_hold(value: object, field: str) -> int:
    """How long a key or lock is held, in ms; more than 0."""
    milliseconds = _wait_ms(value, field)
    if milliseconds <= 0:
        raise InvalidTask(field, f"{_shown(value)} is out of bounds; use more than 0 s")
    return milliseconds


def check_run_at(value: object, now_ms: int) -> int:
    """When to run, in ms since 1970; at most 10 years ahead."""
    moment = _moment_ms(value, "run_at")
    if moment > now_ms + LONGEST_DELAY_S * 1000:
        raise InvalidTask("run_at", f"{value} is too far ahead; use a time within {_LIMIT} from now")
    return moment


def check_deadline(value: object) -> int:
    """A deadline in ms since 1970."""
    return _moment_ms(value, "deadline")


def check_headers(value: object) -> dict[str, str]:
    """Headers: texts by name, at most 4 KiB."""
    return _check_object(value, "headers", texts=True)


def check_metadata(value: object) -> dict[str, Any]:
    """Metadata: a JSON object, at most 4 KiB."""
    return _check_object(value, "metadata")


def _check_object(value: object, field: str, texts: bool = False) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTask(field, f"{type(value).__name__} is not allowed; use a dict")
    items: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    if texts:
        for name, text in items.items():
            if not isinstance(text, str):
                raise InvalidTask(f"{field}.{name}", f"{type(text).__name__} is not allowed; use a text")
    try:
        _core.encode_json(items, field, METADATA_BYTES)
    except _core.CoreError as error:
        raise from_core(error) from None
    return items


def _seconds(value: object, field: str) -> float:
    """A duration as seconds; InvalidTask where it is none or not finite."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds):
            return seconds
        raise InvalidTask(field, f"{_shown(value)} is not finite; use seconds, at most {_LIMIT}")
    raise InvalidTask(field, f"{type(value).__name__} is not a duration; use seconds or a timedelta")


def _wait_ms(value: object, field: str) -> int:
    """A duration in ms, never more than ten years; 0 for none. A part of a millisecond counts as one."""
    seconds = _seconds(value, field)
    if seconds > LONGEST_DELAY_S:
        raise InvalidTask(field, f"{seconds:.15g} s is above the limit of {_LIMIT}; are these milliseconds?")
    return max(1, round(seconds * 1000)) if seconds > 0 else 0


def _moment_ms(value: object, field: str) -> int:
    """An aware datetime in ms since 1970, at least 1."""
    if not isinstance(value, datetime):
        raise InvalidTask(field, f"{type(value).__name__} is not a time; use an aware datetime")
    if value.utcoffset() is None:
        raise InvalidTask(field, f"{value} has no time zone; use an aware datetime, such as datetime.now(timezone.utc)")
    return max(1, (value - _EPOCH) // timedelta(milliseconds=1))


def _check_backoff(value: object) -> Backoff | None:
    if value is None or isinstance(value, Backoff):
        return value
    seconds = _seconds(value, "backoff")
    try:
        return constant(seconds)
    except ValueError:
        raise InvalidTask("backoff", f"{seconds:.15g} s is out of bounds; use 0 to {_LIMIT}, or dtq.Backoff") from None


def _check_classes(value: object, field: str) -> tuple[type[BaseException], ...]:
    """Exception classes, as one class or several."""
    classes: tuple[object, ...] = (value,)
    if isinstance(value, Iterable) and not isinstance(value, type):
        classes = tuple(cast(Iterable[object], value))
    checked = tuple(item for item in classes if isinstance(item, type) and issubclass(item, BaseException))
    if len(checked) != len(classes):
        raise InvalidTask(field, f"{_shown(classes)} holds something else than exception classes; list classes only")
    return checked


def _shown(value: object) -> str:
    """A value in a message: one line, never long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
