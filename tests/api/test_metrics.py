"""Metrics by HTTP."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.api.server import ApiServer
from tests.conftest import WaitUntil


def test_the_text_is_what_prometheus_reads(server: ApiServer) -> None:
    server.accepted()
    answer = server.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert [(sample.labels["queue"], sample.value) for sample in families["dtq_queue_depth"].samples] == [
        ("default", 1)
    ]
    assert families["dtq_tasks_submitted"].samples[0].value == 1


def test_what_is_refused_before_redis_is_counted(server: ApiServer, wait_until: WaitUntil) -> None:
    rejections = server.api.state.served.rejections
    wait_until(lambda: rejections._flushing is None and not rejections._counts, 10, "those of other tests are counted")
    server.app.broker.command("FLUSHALL")
    server.accepted()
    server.submit(priority=99)
    server.submit(payload={"x": "y" * 300_000})
    body = b'no json\n{"task_type":"noop","queue":"nobody knows"}\n{"task_type":"noop"}\n'
    server.client.post("/api/v1/tasks/batch", content=body, headers={"Content-Type": "application/x-ndjson"})

    def counted() -> dict[str, float]:
        families = text_string_to_metric_families(server.client.get("/metrics").text)
        (family,) = [family for family in families if family.name == "dtq_ingest_rejected"]
        return {sample.labels["reason"]: sample.value for sample in family.samples if sample.value}

    wait_until(lambda: counted() == {"invalid": 3, "payload": 1}, 10, "all refusals are counted")
