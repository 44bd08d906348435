"""The app of the telemetry tests: its spans go, by way of the SDK's batch processor, to the file that SPANS names."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import dtq

app = dtq.App()


class FileExporter(SpanExporter):
    """One line of JSON a span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(json.dumps(json.loads(span.to_json())) + "\n" for span in spans)
        descriptor = os.open(os.environ["SPANS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, lines.encode())
        os.close(descriptor)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
# A delay longer than any test: what comes out does because the child says so when it leaves.
provider.add_span_processor(BatchSpanProcessor(FileExporter(), schedule_delay_millis=600_000))
trace.set_tracer_provider(provider)


@app.task(name="relay")
def relay(name: str) -> None:
    """Enqueue another one, as part of the same trace."""
    echo.enqueue(name=name)


@app.task(name="echo")
async def echo(name: str) -> str:
    """Answer, from the loop."""
    await asyncio.sleep(0)
    return name


@app.task(name="stumble", backoff=0.05)
def stumble(context: dtq.Context) -> None:
    """Fail once."""
    if context.attempt == 1:
        raise ValueError("SECRET-1234")


@app.task(name="trip", max_attempts=1)
async def trip() -> None:
    """Fail for good."""
    raise ValueError("SECRET-1234")
