"""The JSON of one task, read without changing anything in it, to a plan and a payload: what a Python producer makes."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import orjson

from dtq.api.strict_route import what_is_meant
from dtq.app import App
from dtq.errors import InvalidTask
from dtq.options import EnqueueOptions
from dtq.plan import Plan
from dtq.raw_json import read_json

OPTIONS = {
    "queue": "queue",
    "priority": "priority",
    "delay_seconds": "delay",
    "run_at": "run_at",
    "ttl_seconds": "ttl",
    "timeout_seconds": "timeout",
    "deadline": "deadline",
    "max_attempts": "max_attempts",
    "retention_seconds": "retention",
    "task_id": "task_id",
    "headers": "headers",
    "metadata": "metadata",
    "batch_id": "batch_id",
    "unique": "unique",
    "unique_ttl_seconds": "unique_ttl",
    "conflict": "conflict",
    "idempotency_key": "idempotency_key",
    "idempotency_ttl_seconds": "idempotency_ttl",
}
"""Fields of a body, and the options of an enqueue that they are."""
_FIELDS = {option: name for name, option in OPTIONS.items()} | {"task type": "task_type"}
_KEPT = frozenset({"task_type", "queue", "priority", "timeout_seconds", "max_attempts", "retention_seconds", "unique",
                   "delay_seconds", "ttl_seconds", "conflict"})  # fmt: skip
"""Options that many tasks share: their plan is made once."""
_MOST_PLANS = 1000


class Submissions:
    """Reads tasks for one app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._plans: dict[bytes, Plan] = {}

    def read(self, body: bytes, idempotency_key: str | None = None) -> tuple[Plan, object]:
        """The plan and the payload of a body; idempotency_key: wins over the body's.

        Raises InvalidTask, naming the field as the body does.
        """
        try:
            fields = read_json(body, "body")
        except InvalidTask as error:
            raise InvalidTask(error.field.removeprefix("body."), error.problem) from None
        if type(fields) is not dict:
            raise InvalidTask("body", "a JSON object is needed, with task_type and payload")
        task = cast(dict[str, Any], fields)
        payload = task.pop("payload", None)
        if idempotency_key is not None:
            task["idempotency_key"] = idempotency_key
        return self._plan(task), {} if payload is None else payload

    def _plan(self, task: dict[str, Any]) -> Plan:
        if not task.keys() <= _KEPT:
            return self._make_plan(task)
        try:
            key = orjson.dumps(task)
        except orjson.JSONEncodeError:  # nested deeper than it writes: nothing that an option may be
            return self._make_plan(task)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make_plan(task)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _make_plan(self, task: dict[str, Any]) -> Plan:
        task_type = task.pop("task_type", None)
        if task_type is None:
            raise InvalidTask("task_type", "it is missing; give the name under which the handler is registered")
        options: dict[str, Any] = {}
        for name, value in task.items():
            option = OPTIONS.get(name)
            if option is None:
                meant = what_is_meant(name, ("task_type", "payload", *OPTIONS))
                raise InvalidTask(name[:100], f"there is no such field; {meant}")
            convert = _CONVERSIONS.get(name)
            options[option] = value if convert is None or value is None else convert(name, value)
        try:
            return self._app.plan(task_type, cast(EnqueueOptions, options))
        except InvalidTask as error:
            raise in_terms_of_the_body(error) from None


def in_terms_of_the_body(error: InvalidTask) -> InvalidTask:
    """The same error, its field named as bodies name it."""
    head, dot, path = error.field.partition(".")
    return InvalidTask(_FIELDS.get(head, head) + dot + path, error.problem)


def moment(field: str, value: object) -> datetime:
    """A time from ISO 8601 text with an offset. Raises InvalidTask."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if found.utcoffset() is not None:
                return found
    raise InvalidTask(field, "it is no time; write ISO 8601 with an offset, such as 2030-12-31T23:59:00+00:00")


def _retention(field: str, value: object) -> object:
    return math.inf if value == "forever" else value


_CONVERSIONS: dict[str, Callable[[str, object], object]] = {
    "run_at": moment,
    "deadline": moment,
    "retention_seconds": _retention,
}
