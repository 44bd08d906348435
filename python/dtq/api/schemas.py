"""What bodies look like, for the OpenAPI description; answers are made elsewhere, and tests hold the two together."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal[
    "pending", "queued", "running", "retrying", "succeeded", "failed", "dead_lettered", "cancelled", "expired"
]
Waits = {"description": "Seconds, fractions allowed; at most ten years."}


class Error(BaseModel):
    """What every refusal says. code: for programs; docs/errors.md lists them. details: `field`, `task_id`, ..."""

    code: str
    message: str
    request_id: str
    details: dict[str, Any]


_MEANINGS = {
    401: "`UNAUTHORIZED`: the key is missing or wrong",
    403: "a page of another site called, or a name of this server that is not its own",
    404: "no such task, queue or dead letter",
    408: "the body did not come in time",
    409: "a conflict with what stands: see `code`",
    410: "it has ended, or its result was not kept",
    413: "`PAYLOAD_TOO_LARGE`",
    415: "the body is of another type than JSON",
    422: "a field, parameter or body is not valid; `details.field` names it",
    429: "`QUEUE_FULL`: try again after the seconds in `Retry-After`",
    503: "Redis does not answer",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, each with the body of all refusals."""
    return {status: {"model": Error, "description": _MEANINGS[status]} for status in statuses}


class TaskSubmission(BaseModel):
    """A task to submit. A field that is null counts as not given."""

    model_config = ConfigDict(extra="forbid")

    task_type: str = Field(min_length=1, max_length=255, description="Name under which the handler is registered.")
    payload: dict[str, Any] | None = Field(None, description="The handler's keyword arguments.")
    queue: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,64}$")
    priority: int | None = Field(None, ge=0, le=9, description="0 lowest to 9; 5 unless given.")
    delay_seconds: float | None = Field(None, le=315_360_000, description="Not before so many seconds from now.")
    run_at: datetime | None = Field(None, description="The same as a time with an offset; not beside delay_seconds.")
    ttl_seconds: float | None = Field(None, le=315_360_000, description="It must start within so many seconds.")
    timeout_seconds: float | None = Field(None, gt=0, description="Of one attempt.")
    deadline: datetime | None = Field(None, description="A time with an offset after which no attempt starts.")
    max_attempts: int | None = Field(None, ge=1)
    retention_seconds: float | Literal["forever"] | None = Field(
        None, description="How long the finished record is kept; 0: deleted at success."
    )
    task_id: str | None = Field(None, pattern=r"^[A-Za-z0-9._:-]{1,128}$", description="An id of your own.")
    headers: dict[str, str] | None = Field(None, description="Texts for tracing, at most 4 KiB.")
    metadata: dict[str, Any] | None = Field(None, description="At most 4 KiB.")
    batch_id: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,128}$")
    unique: bool | str | None = Field(
        None, description="true: one task of this type and payload at a time; a text: one with this key at a time."
    )
    unique_ttl_seconds: float | None = Field(None, gt=0, le=315_360_000)
    conflict: Literal["reject", "return_existing"] | None = Field(None, description="Where the unique lock is held.")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=255, description="Answers with the first task; the header Idempotency-Key wins."
    )
    idempotency_ttl_seconds: float | None = Field(None, gt=0, le=315_360_000)


class Submitted(BaseModel):
    """The task that answers for a submission. duplicate: it is an earlier one; status: how that had ended."""

    task_id: str
    queue: str
    duplicate: bool
    status: Status | None = Field(None, description="Of a duplicate by its idempotency key.")


BATCH_OUTCOME: dict[str, Any] = {
    "type": "object",
    "description": "One line for each task.",
    "required": ["index", "outcome"],
    "properties": {
        "index": {"type": "integer"},
        "outcome": {"enum": ["accepted", "duplicate", "invalid", "conflict", "refused", "unknown", "stopped"]},
        "task_id": {"type": "string"},
        "queue": {"type": "string"},
        "status": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {"type": "object"},
    },
}


class Attempt(BaseModel):
    """One attempt of a task that has failed, died or been released."""

    attempt: int
    cause: str
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    error_class: str | None
    error: str | None


class TaskSummary(BaseModel):
    """A task in a list. Times are ISO 8601 with an offset; null: not known, or not yet."""

    task_id: str
    queue: str
    status: Status
    task_type: str
    attempt: int
    max_attempts: int
    released: int
    priority: int
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None
    deadline: datetime | None
    worker_id: str | None
    cancel_requested: bool
    cause: str | None
    error_class: str | None
    error: str | None
    dead_letter_id: str | None
    batch_id: str | None
    timeout_seconds: float | None
    retention_seconds: float | None = Field(description="null: kept for ever.")
    ttl_seconds: float | None


class TaskDetail(TaskSummary):
    """All that is known of a task."""

    payload: dict[str, Any] | None
    result: Any
    traceback: str | None
    headers: dict[str, Any]
    metadata: dict[str, Any]
    history: list[Attempt]


class TaskError(BaseModel):
    """Why a task ended without a result."""

    code: Literal["TASK_FAILED"]
    message: str
    error_class: str | None
    cause: str | None
    traceback: str | None


class Result(BaseModel):
    """How a task ended: its result, or its error."""

    task_id: str
    queue: str
    status: Status
    result: Any
    error: TaskError | None


class NotEnded(BaseModel):
    """A task that has not ended yet."""

    task_id: str
    queue: str
    status: Status


class Cancelled(BaseModel):
    """A task that will never start."""

    task_id: str
    queue: str
    status: Literal["cancelled"]


class Health(BaseModel):
    """The process lives."""

    status: Literal["ok"]


class Ready(BaseModel):
    """Work can be done. server: name and version; queues: how many are known.

    degraded: how many of them (the first 50 are looked at) have keys that something else has written.
    """

    status: Literal["ok"]
    server: str
    queues: int
    degraded: int
    degraded_queues: list[str] | None = Field(description="Their names; null without the key that reads need.")


class Queued(BaseModel):
    """A task that is due now."""

    task_id: str
    queue: str
    status: Literal["queued"]


class TaskPage(BaseModel):
    """cursor: for the next page, null at the end. partial: older ended tasks are known by their ids only."""

    tasks: list[TaskSummary]
    cursor: str | None
    partial: bool


class QueueFigures(BaseModel):
    """A queue. scheduled counts pending and retrying tasks; totals: tasks that ever ended so, and other counters."""

    queue: str
    waiting: int
    running: int
    scheduled: int
    retrying: int
    dead: int
    oldest_age_seconds: float | None
    next_due_seconds: float | None
    paused: bool
    paused_types: list[str]
    totals: dict[str, int]


class QueuePage(BaseModel):
    """Queues by name."""

    queues: list[QueueFigures]
    cursor: str | None


class Paused(BaseModel):
    """Whether a queue, or a task type in it, is paused now. changed: false where it was so before."""

    queue: str
    task_type: str | None
    paused: bool
    changed: bool


class Purged(BaseModel):
    """How many were taken away."""

    queue: str
    purged: int


class TaskTypes(BaseModel):
    """The task types of a queue; paused: those that are."""

    queue: str
    task_types: list[str]
    paused: list[str]


class DeadLetterSummary(BaseModel):
    """A dead letter in a list; the fields of its task are null where the entry holds none."""

    entry: str
    queue: str
    task_id: str
    died_at: datetime
    task_type: str | None
    attempt: int | None
    cause: str | None
    error_class: str | None
    error: str | None


class DeadLetterPage(BaseModel):
    """count: how many dead letters the queue holds, whatever the filter."""

    dead_letters: list[DeadLetterSummary]
    cursor: str | None
    count: int


class DeadLetterDetail(BaseModel):
    """A dead letter; raw: its bytes, where they are no task."""

    entry: str
    queue: str
    task_id: str
    died_at: datetime
    task: TaskDetail | None
    raw: str | None


Requeued = Queued
BULK_OUTCOME: dict[str, Any] = {
    "type": "object",
    "description": "One line for each dead letter, then one with the sums.",
    "required": ["outcome"],
    "properties": {
        "outcome": {"enum": ["requeued", "discarded", "refused", "finished", "stopped"]},
        "entry": {"type": "string"},
        "task_id": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string"},
        "dry_run": {"type": "boolean"},
        "requeued": {"type": "integer"},
        "discarded": {"type": "integer"},
        "refused": {"type": "integer"},
    },
}


class RunningTaskBody(BaseModel):
    """A task that a child has claimed."""

    task_id: str
    queue: str
    task_type: str
    attempt: int
    since: datetime


class ChildBody(BaseModel):
    """One child of a worker; tasks: at most 25 of each queue."""

    number: int
    pid: int
    consumer: str
    private_bytes: int | None
    tasks: list[RunningTaskBody]


class RestartBody(BaseModel):
    """A child that was replaced."""

    at: datetime
    cause: str
    number: int | None


class WorkerDetail(BaseModel):
    """A worker, as it last told of itself."""

    id: str
    host: str
    pid: int
    started_at: datetime
    version: str
    queues: list[str]
    leader: bool
    children: list[ChildBody]
    restarts: list[RestartBody]
    draining: bool
    app: str
    python: str
    lease_seconds: float


class WorkerList(BaseModel):
    """The workers that are alive."""

    workers: list[WorkerDetail]


class AuditBody(BaseModel):
    """One act; task_id: empty for an act on a whole queue."""

    entry: str
    at: datetime | None
    actor: str
    action: str
    queue: str
    task_id: str
    request_id: str
    facts: dict[str, Any]


class AuditPage(BaseModel):
    """Acts, newest first."""

    entries: list[AuditBody]
    cursor: str | None
