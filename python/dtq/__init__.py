"""dtq: a distributed task queue on Redis Streams.

    import dtq

    app = dtq.App()                       # DTQ_REDIS_URL, or a private store in your data directory

    @app.task(max_attempts=3, timeout=60)
    def resize(path: str, width: int = 800) -> str:
        ...
        return path

    handle = resize.enqueue(path="cat.png")            # in a web process: a few hundred microseconds
    await resize.aenqueue(path="cat.png", width=200)   # the same in asyncio
    resize.options(delay=60, priority=9).enqueue(path="dog.png")
    resize.enqueue_many({"path": path} for path in paths).run()

    print(handle.result(timeout=30))                   # waits; raises dtq.TaskFailed where the task failed
    for handle in dtq.as_completed(handles):           # 100 000 of them are fine
        ...

Run the worker with `dtq worker my_module:app`. A handler runs at least once; it raises dtq.Retry, dtq.PermanentError
or dtq.Discard to say what should happen next.
"""

from typing import TYPE_CHECKING, Any

from dtq import _core
from dtq._stale import warn_if_stale
from dtq.app import App, Enqueuer, RegisteredTask
from dtq.backoff import Backoff
from dtq.bulk import Accepted, BulkCounts, BulkEnqueue, BulkOutcome, Conflict, Duplicate, Invalid, Refused
from dtq.context import Context
from dtq.errors import (
    AmbiguousTaskId,
    BrokerUnavailable,
    Discard,
    DtqError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    IllegalTransition,
    InvalidHandler,
    InvalidSettings,
    InvalidTask,
    OnceInProgress,
    PayloadTooLarge,
    PermanentError,
    QueueFull,
    ResultNotKept,
    ResultTimeout,
    Retry,
    StoreError,
    TaskCancelled,
    TaskFailed,
    TaskIdConflict,
    TaskNotFound,
    TaskReleased,
    TaskTimeout,
    UniqueConflict,
    UnsupportedServer,
)
from dtq.handles import AsCompleted, Handle, agather, as_completed, gather
from dtq.models import VALID_TRANSITIONS, AttemptRecord, Task, TaskStatus, transition
from dtq.options import EnqueueOptions
from dtq.release import VERSION as __version__
from dtq.settings import Settings
from dtq.side_effects import aonce, once

if TYPE_CHECKING:
    from dtq.dead_letters import DeadLetter, DeadLetterFilter
    from dtq.listing import TaskPage
    from dtq.queues import Queue, Requeued
    from dtq.watching import Events
    from dtq.workers import Worker

_FOR_OPERATORS = {
    "DeadLetter": "dtq.dead_letters",
    "DeadLetterFilter": "dtq.dead_letters",
    "Events": "dtq.watching",
    "Queue": "dtq.queues",
    "Requeued": "dtq.queues",
    "TaskPage": "dtq.listing",
    "Worker": "dtq.workers",
}


def __getattr__(name: str) -> Any:
    """What only operators need is imported at its first use: a web process that enqueues does not pay for it."""
    if name not in _FOR_OPERATORS:
        raise AttributeError(f"module 'dtq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FOR_OPERATORS[name]), name)


__all__ = [
    "VALID_TRANSITIONS",
    "Accepted",
    "AmbiguousTaskId",
    "App",
    "AsCompleted",
    "AttemptRecord",
    "Backoff",
    "BrokerUnavailable",
    "BulkCounts",
    "BulkEnqueue",
    "BulkOutcome",
    "Conflict",
    "Context",
    "DeadLetter",
    "DeadLetterFilter",
    "Discard",
    "DtqError",
    "Duplicate",
    "EnqueueOptions",
    "Enqueuer",
    "Events",
    "Handle",
    "IdempotencyInProgress",
    "IdempotencyKeyReused",
    "IllegalTransition",
    "Invalid",
    "InvalidHandler",
    "InvalidSettings",
    "InvalidTask",
    "OnceInProgress",
    "PayloadTooLarge",
    "PermanentError",
    "Queue",
    "QueueFull",
    "Refused",
    "RegisteredTask",
    "Requeued",
    "ResultNotKept",
    "ResultTimeout",
    "Retry",
    "Settings",
    "StoreError",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskIdConflict",
    "TaskNotFound",
    "TaskPage",
    "TaskReleased",
    "TaskStatus",
    "TaskTimeout",
    "UniqueConflict",
    "UnsupportedServer",
    "Worker",
    "__version__",
    "agather",
    "aonce",
    "as_completed",
    "gather",
    "once",
    "transition",
]

warn_if_stale(_core.__file__, _core.SOURCE_FINGERPRINT, _core.DEBUG_BUILD)
