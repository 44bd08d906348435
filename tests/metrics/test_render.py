"""The text that Prometheus reads: every name, the truth, and nothing that data could break."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import dtq
from dtq.broker import Broker
from dtq.metrics import HISTOGRAMS, MOST_PAIRS, QUEUE_METRICS, exposition, render
from dtq.worker.exporter import Exporter
from tests.broker.driver import QUEUE, Child, enqueue, state
from tests.conftest import WaitUntil
from tests.metrics.cells import cell
from tests.servers import PrivateServer

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(broker: Broker) -> Scrape:
    """Samples by name and labels, as Prometheus' own parser reads them."""
    return parsed(exposition(broker))


def parsed(text: bytes) -> Scrape:
    found: Scrape = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def value(found: Scrape, name: str, **labels: str) -> float:
    return found[name, frozenset({"queue": QUEUE, **labels}.items())]


NAMES = set(
    """
dtq_tasks_submitted_total dtq_tasks_started_total dtq_tasks_succeeded_total dtq_tasks_failed_total
dtq_tasks_retried_total dtq_tasks_dead_lettered_total dtq_tasks_completed_total dtq_task_attempts_total
dtq_ingest_rejected_total dtq_queue_depth dtq_queue_pending dtq_retry_scheduled dtq_dlq_depth dtq_workers_active
dtq_worker_inflight dtq_queue_oldest_age_seconds dtq_task_wait_seconds_bucket dtq_task_execution_seconds_bucket
dtq_task_duration_seconds_bucket
""".split()  # noqa: SIM905
)


def test_every_name_is_there_with_a_first_task(broker: Broker) -> None:
    broker.observe({QUEUE: cell()})
    assert {name for name, _ in scrape(broker)} >= NAMES


def test_gauges_are_what_stands(broker: Broker) -> None:
    """Queued is not the length of a stream: what runs stands there as well."""
    child = Child(broker)
    before = time.time()
    dead, retrying, runs, *_ = enqueue(broker, 5)
    enqueue(broker, 1, place="w60000;")
    claims = {claim.id: claim for claim in child.claim(3)}
    child.settle(claims[dead], "D")
    child.settle(claims[retrying], "R", delay_ms=60_000)
    broker.renew("host-1", {"host": "a"})
    broker.pause(QUEUE, "")
    found = scrape(broker)
    assert value(found, "dtq_queue_depth") == 2
    assert value(found, "dtq_queue_pending") == 1
    assert value(found, "dtq_retry_scheduled") == 1
    assert value(found, "dtq_dlq_depth") == 1
    assert value(found, "dtq_worker_inflight") == 1
    assert value(found, "dtq_queue_paused") == 1
    assert found["dtq_workers_active", frozenset()] == 1
    assert 0 <= value(found, "dtq_queue_oldest_age_seconds") <= time.time() - before
    assert state(broker, runs) == "3"


def test_counters_are_those_of_the_scripts(broker: Broker) -> None:
    child = Child(broker)
    enqueue(broker, 4)
    for claim, letter in zip(child.claim(4), "SRDC", strict=True):
        child.settle(claim, letter, delay_ms=60_000)
    found = scrape(broker)
    for name, count in {
        "submitted": 4,
        "started": 4,
        "succeeded": 1,
        "failed": 0,
        "retried": 1,
        "dead_lettered": 1,
    }.items():
        assert value(found, f"dtq_tasks_{name}_total") == count, name
    for status, count in {"succeeded": 1, "failed": 0, "dead_lettered": 1, "cancelled": 1, "expired": 0}.items():
        assert value(found, "dtq_tasks_completed_total", status=status) == count, status
    attempts = {"succeeded": 1, "retried": 1, "failed": 0, "dead_lettered": 1, "cancelled": 1, "released": 0, "lost": 0}
    for result, count in attempts.items():
        assert value(found, "dtq_task_attempts_total", result=result) == count, result


def test_histograms_add_up(broker: Broker) -> None:
    """Buckets are cumulative, the last one is the count."""
    broker.observe({QUEUE: [*cell(took_ms=0.5), *cell("mail", took_ms=2)]})
    broker.observe({QUEUE: cell(took_ms=300)})
    found = scrape(broker)
    labels = {"task_type": "noop"}
    name = "dtq_task_execution_seconds"
    told = {
        float(dict(labels)["le"]): count
        for (metric, labels), count in found.items()
        if metric == f"{name}_bucket" and dict(labels)["task_type"] == "noop"
    }
    assert [told[bound] for bound in (0.001, 0.25, 0.5, 3600, float("inf"))] == [1, 1, 2, 2, 2]
    assert list(told.values()) == sorted(told.values())
    assert value(found, f"{name}_count", **labels) == 2
    assert value(found, f"{name}_sum", **labels) == pytest.approx(0.3005)
    assert value(found, "dtq_task_outcomes_total", task_type="mail", result="succeeded") == 1


HOSTILE = ['a"b', "a\\b", "a\nb", 'x",queue="other"} 1\n#', "<script>", "\u202e", "\x00", "é" * 100, "{", ""]


def test_hostile_names_stay_in_their_label(broker: Broker) -> None:
    """They cannot come through the interface; here they were written by hand."""
    (noop,) = cell()
    for name in HOSTILE:
        broker.command("HSET", broker.keys.timings(QUEUE), name.encode(), noop[1])
    broker.command("HSET", broker.keys.timings(QUEUE), b"\xff\xfe", noop[1])
    found = scrape(broker)
    named = {dict(labels).get("task_type") for name, labels in found if name == "dtq_task_wait_seconds_count"}
    assert named == {*HOSTILE, "\ufffd\ufffd"}
    assert {dict(labels).get("queue") for _, labels in found} == {QUEUE, None}


def test_no_id_and_no_payload_is_a_label(broker: Broker) -> None:
    child = Child(broker)
    ids = enqueue(broker, 3)
    broker.renew("host-secret", {"host": "secret-host"})
    for claim in child.claim(3):
        child.settle(claim)
    text = exposition(broker).decode()
    assert not [task_id for task_id in [*ids, child.consumer, child.worker, "secret"] if task_id in text]


def test_a_task_is_the_oldest_also_where_the_group_is_lost(broker: Broker, wait_until: WaitUntil) -> None:
    """Nobody has read anything then."""
    enqueue(broker, 1)
    broker.command("XGROUP", "DESTROY", broker.keys.stream(QUEUE, 5), "workers")
    wait_until(lambda: value(scrape(broker), "dtq_queue_oldest_age_seconds") > 0, 5, "it grows older")
    broker.prepare_queue(QUEUE)


def test_a_damaged_queue_does_not_hide_the_others(broker: Broker) -> None:
    enqueue(broker, 2)
    broker.command("SADD", broker.keys.queues(), "broken", "torn")
    broker.command("SET", broker.keys.live("broken"), "x")
    broker.command("SET", broker.keys.timings("torn"), "x")
    found = scrape(broker)
    assert value(found, "dtq_queue_depth") == 2
    assert value(found, "dtq_queue_depth", queue="torn") == 0
    assert ("dtq_queue_depth", frozenset({("queue", "broken")})) not in found
    broker.command("DEL", broker.keys.live("broken"), broker.keys.timings("torn"))


def test_a_scrape_of_a_thousand_queues_is_bounded(broker: Broker) -> None:
    """In time, in commands (no scan, none for each task), and in series: timings by queue alone beyond 2 000 pairs."""
    queues = [f"q{number:03}" for number in range(1000)]
    broker.command("SADD", broker.keys.queues(), *queues)
    told = [*cell("a"), *cell("b"), *cell("c")]
    for at in range(0, 1000, 50):
        broker.observe(dict.fromkeys(queues[at : at + 50], told))
    enqueue(broker, 500)
    client = broker.transport.client()
    client.config_resetstat()
    started = time.process_time()
    text = exposition(broker)
    took = time.process_time() - started
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in client.info("commandstats").items()}
    client.close()
    assert took < 5, f"{took:.2f} s"
    assert sum(calls.values()) < 10 * 1000
    assert not {"keys", "scan", "hscan", "xrange"} & {name for name, count in calls.items() if count > 20}
    found = parsed(text)
    pairs = [labels for name, labels in found if name == "dtq_task_wait_seconds_count"]
    assert len(pairs) == 1000 < MOST_PAIRS
    assert value(found, "dtq_task_wait_seconds_count", queue="q007", task_type="") == 3


def test_queues_beyond_the_bound_are_told_of_as_one(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names come from whoever submits."""
    monkeypatch.setattr("dtq.metrics.MOST_QUEUES", 2)
    for queue, count in (("few", 1), ("many", 3), ("more", 2), ("none", 0), ("some", 1)):
        broker.prepare_queue(queue)
        broker.command("SADD", broker.keys.queues(), queue)
        for _ in range(count):
            enqueue(broker, 1, queue=queue)
    broker.observe({"many": cell("a"), "few": cell("b"), "some": cell("c")})
    found = scrape(broker)
    assert {dict(labels)["queue"] for _, labels in found if "queue" in dict(labels)} == {"many", "more", "(other)"}
    assert value(found, "dtq_tasks_submitted_total", queue="many") == 3
    assert value(found, "dtq_tasks_submitted_total", queue="(other)") == 2
    assert value(found, "dtq_queue_depth", queue="(other)") == 2
    assert value(found, "dtq_queue_oldest_age_seconds", queue="(other)") >= 0
    assert value(found, "dtq_queue_paused", queue="(other)") == 0
    one = value(found, "dtq_task_wait_seconds_count", queue="many", task_type="a")
    assert value(found, "dtq_task_wait_seconds_count", queue="(other)", task_type="") == 2 * one > 0


def test_the_app_renders_the_same(clean_server: PrivateServer) -> None:
    with dtq.App(clean_server.url) as app:
        app.enqueue("noop")
        found = parsed(render(app))
    assert found["dtq_tasks_submitted_total", frozenset({("queue", "default")})] == 1


def test_without_the_library_it_says_what_to_install() -> None:
    """And everything else works: the import is made here only."""
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import dtq, dtq.metrics\n"
        "try: dtq.metrics.exposition(None)\n"
        "except dtq.DtqError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == 'metrics need prometheus-client; pip install "dtq[metrics]"\n'


def test_a_worker_without_the_library_refuses_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start, and not at the first scrape."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        dtq.InvalidSettings, match=r'metrics_port: it needs prometheus-client; pip install "dtq\[metrics\]"'
    ):
        Exporter("127.0.0.1", 0, lambda: b"")


def test_a_failure_of_the_rendering_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise RuntimeError("SECRET")

    exporter = Exporter("127.0.0.1", 0, fail)
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(exporter.url, timeout=10)  # noqa: S310
        said = refused.value.read()
    finally:
        exporter.close()
    assert refused.value.code == 500
    assert b"SECRET" not in said
    (failed,) = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert failed.getMessage() == "rendering metrics failed; this is a bug in dtq"


def test_every_metric_says_what_it_means(broker: Broker) -> None:
    text = exposition(broker).decode()
    for metric in QUEUE_METRICS:
        assert metric.meaning.endswith(".")
        assert f"# TYPE {metric.name} {metric.kind}" in text
    for name in HISTOGRAMS:
        assert f"# TYPE {name} histogram" in text
