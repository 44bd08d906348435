"""OpenTelemetry spans: one for each enqueue, whose context travels in the task's headers, one for each attempt.

Only where the setting `otel` is on; `opentelemetry` is imported by the constructor, and by nothing else in dtq. Spans
go to the provider that the application has set up.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from dtq._core import Claim
from dtq.errors import Discard, InvalidSettings
from dtq.failure import class_name
from dtq.models import Outcome
from dtq.plan import Plan, headed

if TYPE_CHECKING:
    from opentelemetry.trace import Span

FLUSH_MS = 2000
"""How long a child that leaves waits for its spans to be exported."""


class Telemetry:
    """dtq's tracer.

    Raises:
        InvalidSettings: opentelemetry is not installed.
    """

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            raise InvalidSettings(
                ['otel (DTQ_OTEL): opentelemetry is not installed; pip install "dtq[otel]", or switch it off']
            ) from None
        self._trace = trace
        self._propagate = propagate
        self._tracer = trace.get_tracer("dtq")

    # --- producers

    def sending(self, plan: Plan) -> tuple[Plan, Span]:
        """Begin the span of an enqueue; the plan whose tasks carry its context. The caller ends it with `sent`.

        Headers that the user has given under the same names stay.
        """
        span = self._tracer.start_span(
            f"enqueue {plan.task_type}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "dtq",
                "messaging.operation.name": "enqueue",
                "messaging.operation.type": "send",
                "messaging.destination.name": plan.queue,
                "dtq.task_type": plan.task_type,
            },
        )
        headers: dict[str, str] = {}
        self._propagate.inject(headers, self._trace.set_span_in_context(span))
        if not headers:
            return plan, span
        return carrying(plan, headers), span

    def sent(self, span: Span, task_id: str | None = None, error: BaseException | None = None) -> None:
        """End the span of an enqueue."""
        if task_id is not None:
            span.set_attribute("messaging.message.id", task_id)
        if error is not None:
            self._failed(span, class_name(error))
        span.end()

    # --- workers

    @contextmanager
    def attempt(self, claim: Claim, queue: str, worker_id: str) -> Generator[Span]:
        """The span of an attempt, current while its handler runs: a child of its enqueue's, and linked with it."""
        context = self._propagate.extract(_headers(claim))
        producer = self._trace.get_current_span(context).get_span_context()
        span = self._tracer.start_span(
            f"process {claim.task_type}",
            context,
            kind=self._trace.SpanKind.CONSUMER,
            links=[self._trace.Link(producer)] if producer.is_valid else [],
            attributes={
                "messaging.system": "dtq",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": queue,
                "messaging.message.id": claim.id,
                "dtq.task_type": claim.task_type,
                "dtq.attempt": claim.attempt,
                "dtq.worker_id": worker_id,
            },
        )
        try:
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except Discard:
            raise  # what the handler has asked for is no failure
        except BaseException as error:
            self._failed(span, class_name(error))
            raise
        finally:
            span.end()

    def ended(self, span: Span, result: object) -> None:
        """Tell the span of an attempt what its handler came to."""
        if isinstance(result, Outcome):
            span.set_attribute("dtq.cause", result.cause)
            if result.letter in "RFD":
                self._failed(span, result.error_class or result.cause)

    def flush(self) -> None:
        """Have the application's provider export what it holds."""
        flush = getattr(self._trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(FLUSH_MS)

    def _failed(self, span: Span, kind: str) -> None:
        """The class of an error, not its text: that may be anything."""
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.StatusCode.ERROR, kind)


def carrying(plan: Plan, headers: Mapping[str, str]) -> Plan:
    """The plan with further headers; those it has stay."""
    extras = {**plan.extras, "headers": {**headers, **plan.extras.get("headers", {})}}
    return replace(plan, extras=extras, head=headed(plan, extras))


def _headers(claim: Claim) -> dict[str, str]:
    extras: dict[str, Any] = orjson.loads(claim.extras) if claim.extras else {}
    headers: dict[str, object] = extras.get("headers") or {}
    return {name: value for name, value in headers.items() if isinstance(value, str)}
