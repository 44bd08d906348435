"""One attempt of a task as named steps: resolve, decode, fit, call, classify. Knows no Redis.

A success is the handler's own return value; everything else is an `Outcome`, which no handler can return. The core's
SyncLoop takes the same steps where nothing goes wrong (rust/python/sync_loop.rs), and comes here for the rest.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import orjson

from dtq._core import Claim, CoreError
from dtq.backoff import LONGEST_DELAY_S, Backoff
from dtq.context import Context
from dtq.errors import Discard, PermanentError, Retry, TaskCancelled, TaskReleased, TaskTimeout
from dtq.failure import class_name, message_of, traceback_of
from dtq.models import Outcome, OutcomeLetter
from dtq.registry import Handler, Registry
from dtq.settings import Settings

INTERRUPTION_KINDS: dict[str, type[BaseException]] = {
    "timeout": TaskTimeout,
    "cancelled": TaskCancelled,
    "released": TaskReleased,
}
"""What the worker raises in a handler, by the word of the supervisor; a handler that catches it ends as it pleases."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_CANCELLED: Callable[[], bool] = lambda: False  # noqa: E731

# Types of result that are surely no forgotten generator or coroutine.
_PLAIN = frozenset({type(None), dict, list, str, int, float, bool, tuple})


class Route:
    """What one task type needs for each of its attempts, worked out once."""

    __slots__ = (
        "backoff",
        "fatal",
        "function",
        "handler",
        "is_async",
        "names",
        "recent_ns",
        "retry_on",
        "wants_context",
    )

    def __init__(self, handler: Handler, backoff: Backoff) -> None:
        self.handler = handler
        self.function: Callable[..., Any] = handler.function
        self.names = handler.required
        self.is_async = handler.kind == "async"
        self.wants_context = handler.wants_context
        self.backoff = handler.options.backoff or backoff
        self.retry_on = handler.options.retry_on
        self.fatal: tuple[type[BaseException], ...] = (PermanentError, *handler.options.fatal)
        self.recent_ns = -1
        """How long its handler took of late; -1: never seen."""


class Executor:
    """Runs attempts. One for each child."""

    def __init__(
        self, registry: Registry, settings: Settings, worker_id: str, *, draw: Callable[[], float] = random.random
    ) -> None:
        self._settings = settings
        self._worker_id = worker_id
        self._draw = draw
        self._backoff = Backoff(settings.backoff_base_s, settings.backoff_max_s, settings.backoff_jitter)
        self._process = os.getpid()
        self.inlines = type(self).run is Executor.run
        """Whether the core may call handlers itself: where `run` does nothing beside it."""
        self.releasing = False
        """Set when the worker interrupts handlers to stop; before that a `TaskReleased` is the handler's own doing."""
        self.routes = {handler.name: Route(handler, self._backoff) for handler in registry}

    def refuse(self, claim: Claim) -> Outcome:
        """The end of a task that cannot be run here: its envelope is damaged, or nobody handles its type."""
        if claim.error is not None:
            return Outcome("D", cause="damaged envelope", error_class="DamagedEnvelope", error=claim.error)
        known = ", ".join(sorted(self.routes)[:20]) or "none"
        return self._final(
            claim,
            "unknown task",
            "UnknownTask",
            f"no handler is registered for task type {claim.task_type!r}; this worker knows: {known}",
        )

    def run(self, claim: Claim, route: Route, queue: str) -> object:
        """Execute a plain handler; its result, or an Outcome where the attempt did not succeed."""
        try:
            arguments = orjson.loads(claim.payload)
            if arguments.keys() != route.names and (problem := route.handler.problem(arguments)) is not None:
                return self._final(claim, "invalid payload", "InvalidPayload", problem)
        except (ValueError, AttributeError, TypeError) as error:
            return self._undecodable(claim, error)
        try:
            if route.wants_context:
                result = route.function(self.context(claim, queue), **arguments)
            else:
                result = route.function(**arguments)
        except BaseException as error:
            return self.raised(claim, route, error)
        self.end_if_forked(None)
        return self.checked(claim, result)

    def raised(self, claim: Claim, route: Route, error: BaseException) -> Outcome:
        """The outcome of a call that has raised."""
        self.end_if_forked(error)
        return self.classify(claim, route, error)

    def checked(self, claim: Claim, result: object) -> object:
        """The result; an Outcome where the handler returned something by mistake."""
        if type(result) not in _PLAIN and (mistake := check_result(result)) is not None:
            return self.mistaken_result(claim, mistake)
        return result

    def end_if_forked(self, error: BaseException | None) -> None:
        """End this process if a handler has forked it: it must not go on as the child, whose connections it shares."""
        if os.getpid() != self._process:
            end_forked(error)

    def prepare(
        self, claim: Claim, route: Route, queue: str, cancelled: Callable[[], bool]
    ) -> Callable[[], Any] | Outcome:
        """The call of an async handler, to be made in its loop; an Outcome where it may not be made."""
        try:
            arguments = orjson.loads(claim.payload)
            if arguments.keys() != route.names and (problem := route.handler.problem(arguments)) is not None:
                return self._final(claim, "invalid payload", "InvalidPayload", problem)
        except (ValueError, AttributeError, TypeError) as error:
            return self._undecodable(claim, error)
        function = route.function
        if route.wants_context:
            context = self.context(claim, queue, cancelled)
            return lambda: function(context, **arguments)
        return lambda: function(**arguments)

    def context(self, claim: Claim, queue: str, cancelled: Callable[[], bool] = _NEVER_CANCELLED) -> Context:
        """What a handler may know of its own attempt."""
        extras: dict[str, Any] = orjson.loads(claim.extras) if claim.extras else {}
        deadline = _EPOCH + timedelta(milliseconds=claim.deadline_ms) if claim.deadline_ms else None
        return Context(
            task_id=claim.id,
            task_type=claim.task_type,
            attempt=claim.attempt,
            queue=queue,
            worker_id=self._worker_id,
            deadline=deadline,
            headers=extras.get("headers") or {},
            metadata=extras.get("metadata") or {},
            is_cancelled=cancelled,
        )

    def close(self) -> None:
        """Called once, when nothing more is run."""

    # --- what an exception means ---------------------------------------------------------------------------------

    def classify(self, claim: Claim, route: Route, error: BaseException) -> Outcome:
        """The outcome that an exception from a handler stands for."""
        if isinstance(error, TaskReleased) and self.releasing:
            return Outcome(
                "L",
                charged=False,
                cause="released",
                error_class="TaskReleased",
                error="the worker shut down; the task runs again elsewhere",
            )
        if isinstance(error, TaskCancelled) and error.by_worker:
            return Outcome("C", cause="cancel requested", error_class="TaskCancelled", error="the task was cancelled")
        if isinstance(error, Discard):
            return Outcome("C", cause="discarded", error_class="Discard", error=message_of(error))
        if isinstance(error, TaskTimeout):
            return self._retry(claim, route, error, "timeout", message_of(error) or "the time limit has passed")
        if isinstance(error, Retry):
            return self._asked_retry(claim, route, error)
        trace = traceback_of(error, self._settings.traceback_bytes)
        permanent = isinstance(error, route.fatal) or (
            route.retry_on is not None and isinstance(error, Exception) and not isinstance(error, route.retry_on)
        )
        if permanent:
            return self._final(claim, "permanent error", class_name(error), message_of(error), trace)
        return self._retry(claim, route, error, "error", message_of(error), trace)

    def result_refused(self, claim: Claim, error: CoreError) -> Outcome:
        """The end of an attempt whose result cannot be kept: no retry would change it."""
        name = "ResultTooLarge" if error.kind == "too_large" else "InvalidResult"
        return self._final(claim, "invalid result", name, str(error))

    def mistaken_result(self, claim: Claim, mistake: str) -> Outcome:
        """The end of an attempt whose handler returned something by mistake; `check_result` says what."""
        return self._final(claim, "invalid result", "InvalidResult", mistake)

    def _asked_retry(self, claim: Claim, route: Route, error: Retry) -> Outcome:
        delay_ms = None if error.after is None else max(1, round(min(error.after, LONGEST_DELAY_S) * 1000))
        if error.counts:
            return self._retry(claim, route, error, "retry", message_of(error), delay_ms=delay_ms)
        return Outcome(
            "R",
            delay_ms=self._delay(claim, route, delay_ms),
            charged=False,
            cause="retry",
            error_class="Retry",
            error=message_of(error),
        )

    def _retry(
        self,
        claim: Claim,
        route: Route,
        error: BaseException,
        cause: str,
        message: str,
        trace: str = "",
        delay_ms: int | None = None,
    ) -> Outcome:
        if claim.attempt - claim.released >= claim.max_attempts:
            return self._final(claim, cause, class_name(error), message, trace)
        return Outcome(
            "R",
            delay_ms=self._delay(claim, route, delay_ms),
            cause=cause,
            error_class=class_name(error),
            error=message,
            traceback=trace,
        )

    def _delay(self, claim: Claim, route: Route, delay_ms: int | None) -> int:
        if delay_ms is not None:
            return delay_ms
        return route.backoff.delay_ms(max(1, claim.attempt - claim.released), self._draw())

    def _final(self, claim: Claim, cause: str, name: str, message: str, trace: str = "") -> Outcome:
        letter: OutcomeLetter = "D" if claim.dead_letter else "F"
        return Outcome(letter, cause=cause, error_class=name, error=message, traceback=trace)

    def _undecodable(self, claim: Claim, error: Exception) -> Outcome:
        problem = str(error) if isinstance(error, ValueError) else "it is no JSON object"
        return self._final(claim, "invalid payload", "InvalidPayload", f"payload: cannot be decoded: {problem}")

    # --- what is written of it -----------------------------------------------------------------------------------

    def detail(self, outcome: Outcome) -> bytes:
        """The detail part of the task's record."""
        return orjson.dumps(
            {
                "worker_id": self._worker_id,
                "cause": outcome.cause,
                "error_class": outcome.error_class,
                "error": outcome.error,
                "traceback": outcome.traceback,
            }
        )

    def history_line(self, claim: Claim, outcome: Outcome, ended_ms: int) -> bytes:
        """This attempt's line in the history that the record keeps."""
        return (
            orjson.dumps(
                {
                    "attempt": claim.attempt,
                    "cause": outcome.cause,
                    "started_ms": claim.started_ms,
                    "ended_ms": ended_ms,
                    "worker_id": self._worker_id,
                    "error_class": outcome.error_class,
                    "error": outcome.error,
                }
            )
            + b"\n"
        )


def check_result(result: object) -> str | None:
    """What is wrong with a result that is a generator or a coroutine."""
    if isinstance(result, types.CoroutineType):
        result.close()
        return "the handler returned a coroutine; declare it `async def`, or await the call inside it"
    if isinstance(result, (types.GeneratorType, types.AsyncGeneratorType)):
        return "the handler returned a generator; return a list, or enqueue one task for each item"
    return None


def end_forked(error: BaseException | None) -> NoReturn:
    """End a process as Python would end it at the end of its main program: `error` is what left the handler."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        code = 1
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)
