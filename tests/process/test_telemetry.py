"""Spans of a real worker: its children are forked, and export what they hold when they leave."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

from tests.process.harness import Stage

APP = "tests.process.telemetry_app:app"


def test_children_record_one_trace_and_export_it(open_stage: Callable[..., Stage]) -> None:
    """A handler's own enqueue belongs to the trace; each attempt of a retried task is a span of its own."""
    stage = open_stage(otel=True)
    path = stage.directory / "spans"
    stage.environment["SPANS"] = str(path)
    worker = stage.worker(app=APP, children=2)
    handles = [stage.app.enqueue("relay", {"name": "x"}), stage.app.enqueue("stumble")]
    handles.append(stage.app.enqueue("trip", max_attempts=1))
    for handle in handles:
        stage.ended(handle)
    stage.wait_until(stage.empty, 10, "the relayed task has ended, too")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    spans: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    named = {(span["name"], span["attributes"].get("dtq.attempt", 0)): span for span in spans}
    assert set(named) == {
        ("process relay", 1), ("enqueue echo", 0), ("process echo", 1),
        ("process stumble", 1), ("process stumble", 2), ("process trip", 1),
    }  # fmt: skip
    relay, sent, echo = (named[key] for key in (("process relay", 1), ("enqueue echo", 0), ("process echo", 1)))
    assert (sent["parent_id"], echo["parent_id"]) == (relay["context"]["span_id"], sent["context"]["span_id"])
    assert [link["context"]["span_id"] for link in echo["links"]] == [sent["context"]["span_id"]]
    assert [named["process stumble", attempt]["status"]["status_code"] for attempt in (1, 2)] == ["ERROR", "UNSET"]
    assert named["process trip", 1]["attributes"]["error.type"] == "ValueError"
    assert "SECRET" not in path.read_text()
    assert "1 thread(s) that children will not have" in worker.log  # the SDK starts its own anew in each child
