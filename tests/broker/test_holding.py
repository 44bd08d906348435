"""What consumers hold, and workers as they tell of themselves: read with care, bounded."""

from __future__ import annotations

from typing import Any

import pytest

import dtq
from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, enqueue


def facts(*children: Child, **more: Any) -> dict[str, Any]:
    """What a worker with these children tells of itself."""
    return {
        "host": "host",
        "pid": 7,
        "app": "shop:app",
        "children": len(children),
        "queues": [QUEUE],
        "started_ms": 1_700_000_000_000,
        "version": "1",
        "python": "3",
        "processes": [(number, 100 + number, child.consumer, 5_000_000) for number, child in enumerate(children)],
        "restarts": [(1_700_000_000_500, "signal SIGKILL", 0)],
        "draining": False,
        **more,
    }


def test_what_each_consumer_runs_and_no_more(broker: Broker) -> None:
    """Running claims of its own: not what it only read, what others hold, or what waits; at most so many of each."""
    enqueue(broker, 4)
    enqueue(broker, 2, band=9, task_type="mail")
    first, second = Child(broker), Child(broker)
    mine, others = first.claim(3), second.claim(2)
    read = second.read()
    assert len(read) == 1
    held = broker.holding(QUEUE, [first.consumer, "nobody.0.1", second.consumer], 10)
    assert {(item.consumer, item.task_id) for item in held} == {
        *((first.consumer, claim.id) for claim in mine),
        *((second.consumer, claim.id) for claim in others),
    }
    assert sorted(item.task_type for item in held) == ["mail", "mail", "noop", "noop", "noop"]
    assert len(broker.holding(QUEUE, [first.consumer], 2)) == 2
    assert broker.holding(QUEUE, [], 2) == []
    for child, claims in ((first, mine), (second, others)):
        for claim in claims:
            child.end(claim)
        child.turn(0, recover=True)


def test_workers_with_children_and_what_they_run(broker: Broker, app: dtq.App) -> None:
    """Each task with its attempt and since when; the leader; restarts with their cause."""
    enqueue(broker, 2)
    child, idle = Child(broker), Child(broker)
    (claim,) = child.claim()
    broker.renew("host-00000001", facts(child, idle))
    broker.renew("older-00000001", {"host": "older", "pid": 8, "children": 2, "queues": [QUEUE]})
    broker.lead("host-00000001", 5000)
    worker, older = app.workers()
    assert (worker.id, worker.host, worker.pid, worker.leader, worker.draining) == (
        "host-00000001",
        "host",
        7,
        True,
        False,
    )
    assert [(made.number, made.pid, made.private_bytes) for made in worker.children] == [
        (0, 100, 5_000_000),
        (1, 101, 5_000_000),
    ]
    ((task,), nothing) = [made.tasks for made in worker.children]
    assert (task.task_id, task.queue, task.task_type, task.attempt) == (claim.id, QUEUE, "noop", 1)
    assert task.since.timestamp() * 1000 == claim.started_ms
    assert nothing == ()
    assert [(restart.cause, restart.number) for restart in worker.restarts] == [("signal SIGKILL", 0)]
    assert 0 < worker.lease_seconds <= 1
    assert (older.children, older.restarts, older.leader) == ((), (), False)  # a version that tells less
    shown = worker.as_dict()
    assert shown["children"][0]["tasks"][0]["task_id"] == claim.id
    assert shown["started_at"] == "2023-11-14T22:13:20.000+00:00"
    broker.declare_dead("nobody")
    assert [worker.id for worker in app.workers()] == ["host-00000001", "older-00000001"]
    child.settle(claim)


def test_a_damaged_queue_hides_no_worker(broker: Broker, app: dtq.App) -> None:
    """What runs in it is not known; the workers are."""
    broker.prepare_queue("damaged")
    enqueue(broker, queue="damaged")
    broker.command("SET", broker.keys.meta("damaged"), "nonsense")
    broker.renew("host-00000001", facts(Child(broker), queues=["damaged"]))
    (worker,) = app.workers()
    assert [child.tasks for child in worker.children] == [()]


@pytest.mark.parametrize(
    "odd",
    [
        {"processes": "many"},
        {"processes": [1, [2], ["a", "b", "c", "d"]]},
        {"restarts": [["then", 5, None]], "queues": None},
        {"queues": [5, "gone"], "started_ms": "long ago", "pid": None, "draining": "yes"},
    ],
)
def test_facts_of_another_version_are_read_as_far_as_they_go(broker: Broker, app: dtq.App, odd: dict[str, Any]) -> None:
    broker.renew("host-00000001", facts(Child(broker), **odd))
    (worker,) = app.workers()
    assert worker.host == "host"
    assert worker.draining is False
    assert worker.as_dict()["id"] == "host-00000001"


@pytest.mark.parametrize("written", ["no JSON", "[1]", "\xff", ""])
def test_a_lease_that_something_else_has_written_hides_no_worker(broker: Broker, app: dtq.App, written: str) -> None:
    broker.renew("host-00000001", facts(Child(broker)))
    broker.renew("other-00000001", {})
    broker.command("SET", broker.keys.worker("other-00000001"), written.encode("latin-1"))
    assert [(worker.id, worker.host) for worker in app.workers()] == [("host-00000001", "host"), ("other-00000001", "")]
