"""Spans of producers and of attempts, read from the SDK's in-memory exporter."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import dtq
from dtq._core import Claim
from dtq.models import Outcome
from dtq.registry import Registry
from dtq.worker.traced import TracedExecutor, executor_of
from tests.broker.driver import Child
from tests.servers import PrivateServer

_EXPORTER = InMemorySpanExporter()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What was recorded since the test began. A process has one provider, for good."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
        trace.set_tracer_provider(provider)
    _EXPORTER.clear()
    yield _EXPORTER
    _EXPORTER.clear()


@pytest.fixture
def app(clean_server: PrivateServer) -> Iterator[dtq.App]:
    """Records spans; with a sync and an async task."""
    with dtq.App(clean_server.url, otel=True) as app:

        @app.task(name="plain")
        def plain(context: dtq.Context, way: str = "") -> str | None:
            if way == "raise":
                raise ValueError("SECRET-1234")
            if way == "discard":
                raise dtq.Discard("as asked")
            if way == "time":
                raise dtq.TaskTimeout("over")
            return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

        @app.task(name="coroutine")
        async def coroutine(way: str = "") -> str:
            if way == "raise":
                raise ValueError("SECRET-1234")
            if way == "discard":
                raise dtq.Discard("as asked")
            return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

        yield app


def claims(app: dtq.App, count: int = 1) -> list[Claim]:
    return Child(app.broker, queue="default").claim(count)


def execute(app: dtq.App, claim: Claim) -> Any:
    """Run a claim as a child does."""
    executor = executor_of(app.registry, app.settings, "host-1")
    assert isinstance(executor, TracedExecutor)
    route = executor.routes[claim.task_type]
    if not route.is_async:
        return executor.run(claim, route, "default")
    call = executor.prepare(claim, route, "default", lambda: False)
    assert not isinstance(call, Outcome)
    return asyncio.run(_awaited(call))


async def _awaited(call: Any) -> Any:
    try:
        return await call()
    except (ValueError, dtq.Discard) as error:
        return error


def one(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = (span for span in spans.get_finished_spans() if span.name == name)
    return found


@pytest.mark.parametrize("task_type", ["plain", "coroutine"])
def test_an_attempt_is_linked_with_its_enqueue(app: dtq.App, spans: InMemorySpanExporter, task_type: str) -> None:
    """One trace: the caller's span, the enqueue's, the attempt's, and what the handler does."""
    with trace.get_tracer("test").start_as_current_span("request"):
        handle = app.enqueue(task_type, {})
    (claim,) = claims(app)
    result = execute(app, claim)
    request, sent, ran = (one(spans, name) for name in ("request", f"enqueue {task_type}", f"process {task_type}"))
    assert (sent.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent.span_id == request.context.span_id
    assert ran.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in ran.links] == [sent.context.span_id]
    assert ran.context.trace_id == sent.context.trace_id == request.context.trace_id
    assert result == trace.format_trace_id(request.context.trace_id), "the handler runs within the span"
    for span in (sent, ran):
        assert span.attributes["messaging.system"] == "dtq"
        assert span.attributes["messaging.destination.name"] == "default"
        assert span.attributes["messaging.message.id"] == handle.id
        assert span.attributes["dtq.task_type"] == task_type
        assert span.status.status_code is StatusCode.UNSET
    assert (ran.attributes["dtq.attempt"], ran.attributes["dtq.worker_id"]) == (1, "host-1")
    assert not trace.get_current_span().get_span_context().is_valid, "nothing of it stays"


def test_every_way_to_enqueue_carries_the_context(app: dtq.App, spans: InMemorySpanExporter) -> None:
    """With options, with an id of one's own, from asyncio, in bulk: one span for all of a bulk."""

    async def from_asyncio() -> None:
        await asyncio.gather(*(app.aenqueue("plain", {}) for _ in range(3)))

    app.enqueue("plain", {}, task_id="mine", metadata={"a": 1}, headers={"tenant": "t"})
    app.enqueue("plain", {}, unique=True, idempotency_key="k")
    asyncio.run(from_asyncio())
    assert app.enqueue_many("plain", [{"way": str(number)} for number in range(200)]).run().accepted == 200
    sent = [span for span in spans.get_finished_spans() if span.kind is SpanKind.PRODUCER]
    assert len(sent) == 1 + 1 + 3 + 1
    parents = {span.context.span_id for span in sent}
    found = claims(app, 300)
    assert len(found) == 205
    for claim in found:
        execute(app, claim)
    ran = [span for span in spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    assert {span.parent.span_id for span in ran} == parents
    assert app.handle("mine").task().headers["tenant"] == "t"


def test_headers_of_the_user_stay(app: dtq.App, spans: InMemorySpanExporter) -> None:
    """A context that somebody hands on by hand is the one that counts."""
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    app.enqueue("plain", {}, headers={"traceparent": traceparent, "tenant": "t"})
    (claim,) = claims(app)
    assert execute(app, claim) == "a" * 32
    assert one(spans, "process plain").parent.span_id == int("b" * 16, 16)


@pytest.mark.parametrize(
    "headers", [{}, {"traceparent": "nonsense"}, {"traceparent": "00-0-0-00"}, {"traceparent": ""}]
)
def test_a_task_without_a_context_begins_a_trace(
    app: dtq.App, spans: InMemorySpanExporter, clean_server: PrivateServer, headers: dict[str, str]
) -> None:
    """Its producer records nothing, or somebody has sent nonsense."""
    with dtq.App(clean_server.url) as other:
        other.enqueue("plain", {}, headers=headers)
    (claim,) = claims(app)
    execute(app, claim)
    ran = one(spans, "process plain")
    assert (ran.parent, len(ran.links)) == (None, 0)


@pytest.mark.parametrize(
    ("task_type", "way", "error"),
    [("plain", "raise", "ValueError"), ("plain", "discard", None), ("plain", "time", "dtq.TaskTimeout"),
     ("coroutine", "raise", "ValueError"), ("coroutine", "discard", None)],
)  # fmt: skip
def test_a_failure_is_told_by_its_class(
    app: dtq.App, spans: InMemorySpanExporter, task_type: str, way: str, error: str | None
) -> None:
    """Not by its text, which may hold anything."""
    app.enqueue(task_type, {"way": way})
    (claim,) = claims(app)
    execute(app, claim)
    ran = one(spans, f"process {task_type}")
    assert (ran.status.status_code is StatusCode.ERROR) == (error is not None)
    assert str(ran.attributes.get("error.type")).endswith(str(error).rpartition(".")[2])
    assert "SECRET" not in ran.to_json()


def test_what_does_not_fit_a_handler_makes_no_span_of_it(app: dtq.App, spans: InMemorySpanExporter) -> None:
    """Nothing is called in the loop."""
    app.enqueue("coroutine", {"wrong": 1})
    (claim,) = claims(app)
    executor = executor_of(app.registry, app.settings, "host-1")
    refused = executor.prepare(claim, executor.routes["coroutine"], "default", lambda: False)
    assert isinstance(refused, Outcome)
    assert [span.name for span in spans.get_finished_spans()] == ["enqueue coroutine"]


def test_a_refused_enqueue_is_a_failed_span(app: dtq.App, spans: InMemorySpanExporter) -> None:
    app.enqueue("plain", {}, task_id="mine")
    with pytest.raises(dtq.TaskIdConflict):
        app.enqueue("plain", {}, task_id="mine")

    async def refused() -> None:
        with pytest.raises(dtq.TaskIdConflict):
            await app.aenqueue("plain", {}, task_id="mine")
        with pytest.raises(dtq.InvalidTask):
            await app.aenqueue("plain", {"way": float("nan")})

    asyncio.run(refused())
    kinds = [str(span.attributes.get("error.type")).rpartition(".")[2] for span in spans.get_finished_spans()]
    assert sorted(kinds) == ["InvalidTask", "None", "TaskIdConflict", "TaskIdConflict"]


def test_a_bulk_that_is_given_up_ends_its_span(app: dtq.App, spans: InMemorySpanExporter) -> None:
    bulk = app.enqueue_many("plain", ({"way": str(number)} for number in range(1000)))
    assert next(bulk).ok
    del bulk
    gc.collect()  # the generator and what made it hold each other
    assert one(spans, "enqueue plain").status.status_code is StatusCode.UNSET


def test_switched_off_nothing_is_imported_or_recorded(clean_server: PrivateServer, spans: InMemorySpanExporter) -> None:
    """Also where opentelemetry is installed and set up."""
    with dtq.App(clean_server.url) as app:
        app.enqueue("plain", {})
        (claim,) = claims(app)
        assert claim.extras == b""
        assert type(executor_of(Registry(), app.settings, "w")).__name__ == "Executor"
    assert spans.get_finished_spans() == ()
    # Before the first connection: redis-py imports opentelemetry by itself where it is installed.
    program = (
        "import sys, dtq, dtq.worker.child, dtq.worker.nursery\n"
        "app = dtq.App()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'dtq.telemetry.'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_without_the_library_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import dtq\n"
        "try: dtq.App(otel=True)\n"
        "except dtq.InvalidSettings as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'otel (DTQ_OTEL): opentelemetry is not installed; pip install "dtq[otel]", or switch it off' in run.stdout
