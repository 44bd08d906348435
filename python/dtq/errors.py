"""Every error dtq raises, as one tree under `DtqError`, and the signals that handlers raise or are raised in.

    DtqError
    ├ InvalidTask(field)            422  the task cannot be accepted as it was given
    ├ PayloadTooLarge               413
    ├ QueueFull(retry_after)        429
    ├ TaskIdConflict                409
    ├ UniqueConflict(existing_id)   409
    ├ IdempotencyInProgress(task_id) 409
    ├ IdempotencyKeyReused          409
    ├ AmbiguousTaskId               409
    ├ TaskNotFound                  404
    ├ OnceInProgress                409  a side effect of this key runs, or its run died
    ├ IllegalTransition             409, or 410 when the task has ended
    ├ BrokerUnavailable             503
    │ └ StoreError                       the embedded store cannot start or stay up
    ├ UnsupportedServer             503
    ├ GroupLost                     503  a consumer group vanished; the worker makes it anew
    ├ WorkerDeclaredDead            503  this worker id is dead for good; the worker starts anew
    ├ ResultNotKept                 410
    ├ TaskFailed(error)             200
    ├ ResultTimeout                 202  also a TimeoutError
    ├ InvalidHandler                500  a function cannot be registered as a task
    └ InvalidSettings(problems)     500

`Retry`, `PermanentError` and `Discard` are raised by handlers. `TaskTimeout`, `TaskCancelled` and `TaskReleased` are
raised in them; they derive from BaseException, so that a broad `except Exception` does not swallow them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dtq._core import CoreError


class DtqError(Exception):
    """The base of every error of dtq.

    `code` and `http_status` are for programs that pass it on to others; `reason` is a label to count refused enqueues
    by (None where the error never refuses one).
    """

    code: str = "DTQ_ERROR"
    http_status: int = 500
    reason: ClassVar[str | None] = None


class InvalidTask(DtqError):
    """The task cannot be accepted: `field` is the path of the offender, such as `payload.items[3].price`."""

    code = "INVALID_TASK"
    http_status = 422
    reason = "invalid"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class PayloadTooLarge(DtqError):
    """The payload (or metadata) is larger than its limit."""

    code = "PAYLOAD_TOO_LARGE"
    http_status = 413
    reason = "payload"


class QueueFull(DtqError):
    """The queue holds as many tasks as its limit allows; try again after `retry_after` seconds."""

    code = "QUEUE_FULL"
    http_status = 429
    reason = "full"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class TaskIdConflict(DtqError):
    """A task with the given `task_id` exists already in this queue."""

    code = "TASK_ID_CONFLICT"
    http_status = 409
    reason = "conflict"


class UniqueConflict(DtqError):
    """The same unique task has not ended yet: its id is `existing_id`."""

    code = "UNIQUE_CONFLICT"
    http_status = 409
    reason = "unique"

    def __init__(self, message: str, existing_id: str) -> None:
        super().__init__(message, existing_id)
        self.existing_id = existing_id

    def __str__(self) -> str:
        return str(self.args[0])


class IdempotencyInProgress(DtqError):
    """The first task of this idempotency key has not ended yet: its id is `task_id`."""

    code = "IDEMPOTENCY_IN_PROGRESS"
    http_status = 409
    reason = "idempotency"

    def __init__(self, message: str, task_id: str) -> None:
        super().__init__(message, task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return str(self.args[0])


class IdempotencyKeyReused(DtqError):
    """The idempotency key belongs to a task of another type or payload."""

    code = "IDEMPOTENCY_KEY_REUSED"
    http_status = 409
    reason = "idempotency"


class AmbiguousTaskId(DtqError):
    """More than one queue holds a task of this id; say which queue is meant."""

    code = "AMBIGUOUS_ID"
    http_status = 409


class TaskNotFound(DtqError):
    """No task of this id is known: it never existed, or its record is gone."""

    code = "TASK_NOT_FOUND"
    http_status = 404


class OnceInProgress(DtqError):
    """The side effect of this key of `dtq.once` runs elsewhere, or a run of it died before it could tell the end."""

    code = "ONCE_IN_PROGRESS"
    http_status = 409


class IllegalTransition(DtqError):
    """A status may not follow another one. Says ALREADY_TERMINAL (410) where the task has ended."""

    code = "ILLEGAL_TRANSITION"
    http_status = 409

    def __init__(self, message: str, *, terminal: bool = False) -> None:
        super().__init__(message)
        self.terminal = terminal
        if terminal:
            self.code = "ALREADY_TERMINAL"
            self.http_status = 410


class BrokerUnavailable(DtqError):
    """Redis cannot be reached, or does not answer as it should, within the time given."""

    damaged = False
    """True where Redis works and this very call cannot: a key has been changed by hand to another type or content."""

    code = "REDIS_UNAVAILABLE"
    http_status = 503
    reason = "unavailable"


class StoreError(BrokerUnavailable):
    """The embedded store cannot start, or its directory cannot be used."""


class UnsupportedServer(DtqError):
    """The server is too old, of another kind, or set up in a way that would lose tasks."""

    code = "UNSUPPORTED_SERVER"
    http_status = 503


class GroupLost(DtqError):
    """A consumer group of the queue is gone; the worker creates it anew and goes on."""

    code = "GROUP_LOST"
    http_status = 503


class WorkerDeclaredDead(DtqError):
    """This worker id has been declared dead and never comes back; the worker starts anew under another id."""

    code = "WORKER_DECLARED_DEAD"
    http_status = 503


class ResultNotKept(DtqError):
    """The task is gone and its result was not kept (retention 0)."""

    code = "RESULT_NOT_KEPT"
    http_status = 410


class TaskFailed(DtqError):
    """The task ended without a result.

    `error` is its last error message, `error_class` the class of it, `status` how it ended (`failed`,
    `dead_lettered`, `cancelled` or `expired`), `traceback` the kept part of the traceback.
    """

    code = "TASK_FAILED"
    http_status = 200

    def __init__(
        self,
        error: str,
        *,
        task_id: str = "",
        status: str = "failed",
        error_class: str | None = None,
        cause: str | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.task_id = task_id
        self.status = status
        self.error_class = error_class
        self.cause = cause
        self.traceback = traceback


class ResultTimeout(DtqError, TimeoutError):
    """The task had not ended when the waiting time was over."""

    code = "RESULT_TIMEOUT"
    http_status = 202


class InvalidHandler(DtqError):
    """A function cannot be registered as a task; the message says what to change."""

    code = "INVALID_HANDLER"


class InvalidSettings(DtqError):
    """One or more settings are wrong; `problems` has one line for each of them."""

    code = "INVALID_SETTINGS"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "; ".join(self.problems)


def _is_waiting_time(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < float("inf")


class Retry(Exception):
    """Raised by a handler: run this task again.

    after: seconds until then, at most ten years; None takes the task's own backoff. counts: False does not charge the
    attempt.
    """

    def __init__(
        self, after: float | None = None, counts: bool = True, reason: str = "the handler asked for a retry"
    ) -> None:
        if after is not None and not _is_waiting_time(after):
            raise ValueError(f"after: {after!r} is no waiting time; give seconds of 0 or more")
        super().__init__(reason)
        self.reason = reason
        self.after = after
        self.counts = counts


class PermanentError(Exception):
    """Raised by a handler: this task can never succeed; do not try it again."""


class Discard(Exception):
    """Raised by a handler: end this task as `cancelled`, without a dead letter. `reason` is kept in its record."""

    def __init__(self, reason: str = "discarded by the handler") -> None:
        super().__init__(reason)
        self.reason = reason


class TaskTimeout(BaseException):
    """Raised in a handler whose time limit has passed."""


class TaskCancelled(BaseException):
    """Raised in a handler whose task has been cancelled."""

    by_worker: bool = False
    """Set where the worker raises it; one that a handler raises by itself is a failure like others."""


class TaskReleased(BaseException):
    """Raised in a handler whose worker shuts down: the task runs again elsewhere, without a charge."""


def from_core(error: CoreError) -> InvalidTask | PayloadTooLarge:
    """The public error for one that the Rust core raised."""
    message = str(error)
    if error.kind == "too_large":
        return PayloadTooLarge(message)
    return InvalidTask(error.field, message.removeprefix(f"{error.field}: "))
