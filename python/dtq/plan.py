"""What one kind of enqueue needs, worked out once: queue, envelope head, place, and what is made anew per task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtq import _core
from dtq.errors import InvalidTask, from_core
from dtq.models import decode_json
from dtq.options import (
    DAY_MS,
    DEFAULT_PRIORITY,
    OPTION_NAMES,
    EnqueueOptions,
    TaskOptions,
    check_batch_id,
    check_deadline,
    check_delay,
    check_headers,
    check_hold,
    check_key,
    check_max_attempts,
    check_metadata,
    check_priority,
    check_queue,
    check_retention,
    check_run_at,
    check_task_id,
    check_task_type,
    check_timeout,
    check_ttl,
)
from dtq.settings import Settings

_NO_OPTIONS = TaskOptions()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about an enqueue but its payload, checked and encoded.

    `plain` plans put the same `head` and `place` on every task. Others add to each task what depends on its payload
    (fingerprints) or must differ (the nonce that tells a repeat from a conflict where the user gave the id).
    """

    task_type: str
    queue: str
    head: _core.EnvelopeHead
    place: bytes
    retention_ms: int
    max_payload_bytes: int
    plain: bool
    extras: Mapping[str, Any]
    head_fields: tuple[int, int, int, bool]  # band, max_attempts, timeout_ms, dead_letter
    task_id: str | None = None
    unique: bool | str = False
    unique_ms: int = DAY_MS
    return_existing: bool = False
    idempotency_key: str | None = None
    idempotency_ms: int = DAY_MS

    def encode(self, payload: object, now_ms: int) -> tuple[str | None, bytes, bytes]:
        """One task of a plan that is not plain: its given id (or None), envelope and place. Raises CoreError."""
        head, place = self.head, self.place
        if self.task_id is not None:
            head = headed(self, {**self.extras, "nonce": os.urandom(8).hex(), "created_ms": now_ms})
            place += b"g;"
        envelope = head.encode(payload, self.max_payload_bytes)
        if self.unique is not False or self.idempotency_key is not None:
            work = fingerprint_of(self.task_type, payload, self.max_payload_bytes)
            if self.unique is not False:
                place += b"u%s,%d;" % (lock_of(self.unique, work), self.unique_ms)
                if self.return_existing:
                    place += b"k;"
            if self.idempotency_key is not None:
                place += b"i%s,%s,%d;" % (self.idempotency_key.encode(), work, self.idempotency_ms)
        return self.task_id, envelope, place


def headed(plan: Plan, extras: Mapping[str, Any]) -> _core.EnvelopeHead:
    """The envelope head of a plan's tasks with other extras."""
    band, max_attempts, timeout_ms, dead_letter = plan.head_fields
    encoded = _core.encode_json(dict(extras), "extras")
    return _core.EnvelopeHead(plan.task_type, band, max_attempts, timeout_ms, plan.retention_ms, dead_letter, encoded)


def fingerprint_of(task_type: str, payload: object, max_bytes: int) -> bytes:
    """Of type and payload, whatever the order of keys and whatever type wrote them (a tuple equals its list)."""
    import orjson

    plain = decode_json(_core.encode_json(payload, "payload", max_bytes))
    return _digest(task_type.encode(), orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))


def lock_of(unique: bool | str, work: bytes) -> bytes:
    """The fingerprint of a unique lock: True stands for that of type and payload, a text is a percent-encoded key."""
    return work if unique is True else _digest(b"key", str(unique).encode())


def _digest(*parts: bytes) -> bytes:
    import hashlib  # 3 ms that only fingerprints pay for

    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return digest[:32].encode()


def make_plan(
    task_type: str, registered: TaskOptions | None, options: EnqueueOptions, settings: Settings, now_ms: int
) -> Plan:
    """Checks every option before anything is written; InvalidTask names the first field that is wrong."""
    for name in options:
        if name not in OPTION_NAMES:
            raise InvalidTask(name, f"there is no such option; known are {', '.join(sorted(OPTION_NAMES))}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    defaults = registered or _NO_OPTIONS
    priority = (
        check_priority(given["priority"])
        if "priority" in given
        else (DEFAULT_PRIORITY if registered is None else registered.priority)
    )
    if "max_attempts" in given:
        max_attempts = check_max_attempts(given["max_attempts"], settings)
    else:
        max_attempts = defaults.max_attempts or min(settings.max_attempts, settings.max_attempts_cap)
    if "timeout" in given:
        timeout_ms = check_timeout(given["timeout"], settings)
    else:
        timeout_ms = defaults.timeout_ms or round(min(settings.timeout_s, settings.timeout_cap_s) * 1000)
    retention_ms = _retention_ms(given, defaults, settings)
    place, extras = _place_and_extras(given, priority, now_ms)
    unique, idempotency_key = _unique(given), given.get("idempotency_key")
    unique_ms, idempotency_ms = _hold_ms(given, "unique_ttl"), _hold_ms(given, "idempotency_ttl")
    if unique is not False and unique_ms != DAY_MS:
        extras["unique_ms"] = unique_ms  # for a requeue, which takes the lock anew
    if idempotency_key is not None:
        quoted = check_key(idempotency_key, "idempotency_key")
        extras["idempotency_key"] = idempotency_key
        if idempotency_ms != DAY_MS:
            extras["idempotency_ms"] = idempotency_ms
    else:
        quoted = None
    task_id = check_task_id(given["task_id"]) if "task_id" in given else None
    try:
        head = _core.EnvelopeHead(
            check_task_type(task_type),
            priority,
            max_attempts,
            timeout_ms,
            retention_ms,
            settings.dead_letter,
            _core.encode_json(extras, "extras") if extras else b"",
        )
    except _core.CoreError as error:
        raise from_core(error) from None
    return Plan(
        task_type=task_type,
        queue=check_queue(given["queue"]) if "queue" in given else (defaults.queue or settings.queue),
        head=head,
        place=place,
        retention_ms=retention_ms,
        max_payload_bytes=settings.max_payload_bytes,
        plain=task_id is None and unique is False and quoted is None,
        extras=extras,
        head_fields=(priority, max_attempts, timeout_ms, settings.dead_letter),
        task_id=task_id,
        unique=unique,
        unique_ms=unique_ms,
        return_existing=_return_existing(given),
        idempotency_key=quoted,
        idempotency_ms=idempotency_ms,
    )


def _place_and_extras(given: Mapping[str, Any], priority: int, now_ms: int) -> tuple[bytes, dict[str, Any]]:
    """What the script must know of a task, and what its envelope carries for readers."""
    place, extras = b"%d" % priority, dict[str, Any]()
    if "delay" in given and "run_at" in given:
        raise InvalidTask("run_at", "it cannot be given together with delay; give one of them")
    if delay_ms := check_delay(given["delay"]) if "delay" in given else 0:
        place += b"w%d;" % delay_ms
    if "run_at" in given:
        place += b"a%d;" % check_run_at(given["run_at"], now_ms)
    if ttl_ms := check_ttl(given.get("ttl")):
        place += b"t%d;" % ttl_ms
        extras["ttl_ms"] = ttl_ms
    if "deadline" in given:
        extras["deadline_ms"] = check_deadline(given["deadline"])
        place += b"d%d;" % extras["deadline_ms"]
    if "batch_id" in given:
        extras["batch_id"] = check_batch_id(given["batch_id"])
        place += b"b%s;" % extras["batch_id"].encode()
    if headers := check_headers(given["headers"]) if "headers" in given else {}:
        extras["headers"] = headers
    if metadata := check_metadata(given["metadata"]) if "metadata" in given else {}:
        extras["metadata"] = metadata
    if given.get("unique"):
        extras["unique"] = given["unique"]
    return place, extras


def _retention_ms(given: Mapping[str, Any], defaults: TaskOptions, settings: Settings) -> int:
    if "retention" in given:
        return check_retention(given["retention"])
    return round(settings.task_retention_s * 1000) if defaults.retention_ms is None else defaults.retention_ms


def _unique(given: Mapping[str, Any]) -> bool | str:
    """False, True (type and payload) or the user's own key, percent-encoded."""
    unique = given.get("unique", False)
    if isinstance(unique, bool):
        return unique
    return check_key(unique, "unique")


def _hold_ms(given: Mapping[str, Any], field: str) -> int:
    return check_hold(given[field], field) if field in given else DAY_MS


def _return_existing(given: Mapping[str, Any]) -> bool:
    conflict: object = given.get("conflict", "reject")
    if conflict not in ("reject", "return_existing"):
        raise InvalidTask("conflict", f'{conflict!r} is not known; use "reject" or "return_existing"')
    return conflict == "return_existing"
