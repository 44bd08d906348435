"""Metrics by HTTP."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.api.server import ApiServer


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
