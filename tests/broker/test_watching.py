"""Watching events: what happens in queues, as long as somebody watches."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import dtq
from dtq.broker import Broker
from dtq.watching import EVENT_TYPES
from tests.broker.driver import QUEUE, Child, enqueue
from tests.servers import PrivateServer
from tests.troubles import confined


def run(broker: Broker, queue: str = QUEUE) -> str:
    """A task that is enqueued and succeeds."""
    child = Child(broker, queue=queue)
    (task,) = enqueue(broker, queue=queue)
    child.settle(child.claim()[0])
    return task


def test_events_of_all_queues_come_as_they_happen(broker: Broker, app: dtq.App) -> None:
    """A queue that did not exist before is heard too, once it is looked up."""
    broker.prepare_queue("other")
    with app.events() as events:
        assert events.get(0) == []
        tasks = {run(broker), run(broker, "other")}
        seen: list[dict[str, Any]] = []
        for event in events:
            seen.append(event)
            if len(seen) == 6:
                break
    assert {event["task_id"] for event in seen} == tasks
    assert [event["type"] for event in seen[:3]] == ["TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED"]
    assert {event["type"] for event in seen} <= set(EVENT_TYPES)


def test_queues_and_types_are_chosen(broker: Broker, app: dtq.App) -> None:
    """What is not meant is left out, and nobody asks other queues to publish."""
    broker.prepare_queue("other")
    with app.events([QUEUE], ["TASK_SUCCEEDED"]) as events:
        events.get(0)
        run(broker, "other")
        task = run(broker)
        (event,) = events.get(5)
    assert (event["type"], event["task_id"]) == ("TASK_SUCCEEDED", task)
    assert broker.command("HGET", broker.keys.meta("other"), "listeners") is None
    with pytest.raises(dtq.InvalidTask, match="'TASK_LOST' is no event"):
        app.events(types=["TASK_LOST"])
    with pytest.raises(dtq.InvalidTask):
        app.events(["no queue"])


def test_what_is_no_tasks_event(broker: Broker, app: dtq.App) -> None:
    """A pause and a resumption are told, of a queue and of a type; a watcher of other queues does not hear of it."""
    with app.events() as events, app.events(["other"]) as elsewhere:
        assert events.get(0) == elsewhere.get(0) == []
        app.queue(QUEUE).pause()
        app.queue(QUEUE).resume()
        app.queue(QUEUE).resume()  # changes nothing
        app.queue(QUEUE).pause("mail")
        seen: list[dict[str, Any]] = []
        while len(seen) < 3:
            seen += events.get(5)
        assert elsewhere.get(0.05) == []
    assert [(event["type"], event["queue"], event["metadata"]) for event in seen] == [
        ("CONFIGURATION_CHANGED", QUEUE, {"paused": True}),
        ("CONFIGURATION_CHANGED", QUEUE, {"paused": False}),
        ("CONFIGURATION_CHANGED", QUEUE, {"paused": True, "task_type": "mail"}),
    ]


def test_a_damaged_queue_silences_no_other(broker: Broker, app: dtq.App) -> None:
    """Of all queues those are heard whose keys are whole; to name a damaged one is an error."""
    broker.prepare_queue("damaged")
    broker.command("SET", broker.keys.meta("damaged"), "nonsense")
    broker.command("SCRIPT", "FLUSH")
    with app.events() as events, app.events(["damaged"]) as named:
        assert events.get(0) == []
        task = run(broker)
        assert events.get(5)[0]["task_id"] == task
        with pytest.raises(dtq.BrokerUnavailable, match="WRONGTYPE"):
            named.get(0)


def test_a_forbidden_queue_is_told_of(broker: Broker, clean_server: PrivateServer) -> None:
    """Whoever watches all queues and may not ask one of them is told, and does not take silence for calm."""
    broker.prepare_queue("theirs")
    with confined(clean_server, QUEUE) as url, dtq.App(url) as confined_app:
        with confined_app.events() as events, pytest.raises(dtq.BrokerUnavailable, match=r"(?i)no permissions"):
            events.get(0)
        with confined_app.events([QUEUE]) as events:
            assert events.get(0) == []
            task = run(broker)
            assert events.get(5)[0]["task_id"] == task


def test_many_queues_are_asked_for_events_in_few_round_trips(broker: Broker) -> None:
    names = [f"q{number}" for number in range(250)]
    broker.listen_many(names, 15.0)
    listening = [broker.command("HGET", broker.keys.meta(name), "listeners") for name in names]
    assert all(listening)


def test_an_announcement_needs_no_server() -> None:
    """Events are for watching: nothing is raised where nobody can hear."""
    with dtq.App("redis://127.0.0.1:1/0", enqueue_deadline_s=0.2) as nowhere:
        nowhere.broker.announce("WORKER_STALE", worker_id="host-1")


def test_a_closed_watcher_ends_its_loops(broker: Broker, app: dtq.App) -> None:
    """Also from another thread; and the loop's own close."""
    events = app.events()
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(events))
    thread.start()
    events._closed = True
    thread.join(10)
    assert not thread.is_alive()
    events.close()
    assert seen == []
    assert list(events) == []


def test_asyncio_hears_them_and_may_be_cancelled(broker: Broker, app: dtq.App) -> None:
    """The loop is never blocked; a cancel waits for the step under way, and the watcher can be closed."""

    async def main() -> list[str]:
        events, types = app.events(), []
        await events.aget(0)
        task = asyncio.create_task(asyncio.to_thread(run, broker))
        async for event in events:
            types.append(event["type"])
            if event["type"] == "TASK_SUCCEEDED":
                break
        await task
        waiting = asyncio.create_task(anext(aiter(events)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await events.aclose()
        return types

    assert asyncio.run(main()) == ["TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED"]


def test_a_lost_server_is_told_and_found_again() -> None:
    """One error, and the next question connects anew."""
    with PrivateServer() as server, dtq.App(server.url, queue=QUEUE) as app:
        app.broker.prepare_queue(QUEUE)
        with app.events() as events:
            events.get(0)
            server.restart(crash=True)
            with pytest.raises(dtq.BrokerUnavailable):
                events.get(10)
            app.broker.prepare_queue(QUEUE)
            events.get(0)
            task = run(app.broker)
            assert events.get(5)[0]["task_id"] == task
