"""Events: one message a script call, and only while somebody listens."""

from __future__ import annotations

from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, enqueue


def test_events_tell_a_tasks_life_while_somebody_listens(broker: Broker) -> None:
    """Queued, started, retry scheduled, retried, succeeded; then silence once the listener is gone (spec §9)."""
    subscription = broker.subscribe()
    subscription.get(1.0)
    enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0])
    broker.listen(QUEUE, 30.0)
    (task,) = enqueue(broker)
    (claim,) = child.claim()
    child.settle(claim, "R")
    while not broker.promote(QUEUE)[0]:
        pass
    (claim,) = child.claim()
    child.settle(claim)
    events: list[dict[str, object]] = []
    while not events or events[-1]["type"] != "TASK_SUCCEEDED":
        got = subscription.get(5.0)
        assert got, f"no more events after {events}"
        events += got
    assert {event["task_id"] for event in events} == {task}
    assert [(event["type"], event["attempt"]) for event in events] == [
        ("TASK_QUEUED", 1),
        ("TASK_STARTED", 1),
        ("TASK_RETRY_SCHEDULED", 1),
        ("TASK_RETRIED", 2),
        ("TASK_STARTED", 2),
        ("TASK_SUCCEEDED", 2),
    ]
    assert {event["task_type"] for event in events} == {"noop"}
    broker.command("HSET", broker.keys.meta(QUEUE), "listeners", 1)  # its time is over
    enqueue(broker)
    child.settle(child.claim()[0])
    assert subscription.get(0.05) == []
    subscription.close()
