"""Many queues and many bands on one worker: what is read, in which order, and what an idle worker costs."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dtq.keys import BANDS, HOME_BAND
from tests.process.harness import Stage

MANY = 1000


def names(count: int) -> list[str]:
    return [f"q{number:04}" for number in range(count)]


def commands(stage: Stage) -> int:
    """Redis commands so far, those inside scripts included."""
    return sum(facts["calls"] for facts in stage.app.broker.transport.client().info("commandstats").values())


@pytest.mark.parametrize("queues", [["default"], ["other", "default", "third"]])
def test_an_idle_worker_starts_a_task_of_a_new_band_at_once(stage: Stage, queues: list[str]) -> None:
    """Readers wait on bands in use only; the first use of another one wakes them (protocol 21)."""
    stage.worker(queues=queues)
    for band in BANDS:
        stage.wait_until_waiting(2)
        sent = time.monotonic()
        task = stage.app.enqueue("mark", {"name": f"b{band}"}, priority=band)
        stage.ended(task, 10)
        assert time.monotonic() - sent < 1.0, band


def test_every_waiting_child_learns_of_a_new_band(stage: Stage) -> None:
    """Not only the one that a bell would wake first: the others start the next tasks of this band at once."""
    stage.worker(children=4, queues=["first", "default"])
    stage.wait_until_waiting(4)
    sent = time.monotonic()
    for number in range(4):
        stage.app.enqueue("sleep", {"name": f"s{number}", "seconds": 1.0}, priority=9)
        stage.wait_until(lambda number=number: len(stage.effects("start")) > number, 5, "started")
    assert time.monotonic() - sent < 1.0
    assert len({effect.pid for effect in stage.effects("start")}) == 4


def test_a_waiting_child_reads_bands_in_use_only(stage: Stage) -> None:
    """One stream a queue where nothing but the default priority was ever used."""
    stage.worker(children=1, queues=names(3))
    stage.wait_until_waiting(1)
    client = stage.app.broker.transport.client()

    def reads() -> int:
        return sum(int(each.get("argv-mem", 0)) for each in client.client_list() if each["cmd"] == "xreadgroup")

    before = reads()
    stage.ended(stage.app.enqueue("mark", {"name": "t"}, queue="q0001", priority=HOME_BAND), 5)
    stage.wait_until_waiting(1)
    assert reads() == before
    stage.ended(stage.app.enqueue("mark", {"name": "u"}, queue="q0001", priority=1), 5)
    stage.wait_until_waiting(1)
    stage.wait_until(lambda: reads() > before, 5, "the new band is read")
    client.close()


def test_the_most_important_queue_goes_first(stage: Stage) -> None:
    """Strictly in the order of --queues, whatever else waits (spec §4), with ten queues as with two."""
    order = names(10)
    for queue in reversed(order):
        for number in range(20):
            stage.app.enqueue("mark", {"name": f"{queue}-{number}"}, queue=queue)
    worker = stage.worker(children=1, queues=order, burst=True, ready=False)
    assert worker.wait(30) == 0
    ran = [effect.name.split("-")[0] for effect in stage.effects()]
    assert ran == sorted(ran)
    assert len(ran) == 200


def test_an_important_task_comes_between(stage: Stage) -> None:
    """While a less important queue is worked off, what comes into a more important one is claimed next."""
    order = names(10)
    for number in range(6):
        stage.app.enqueue("sleep", {"name": f"low-{number}", "seconds": 0.3}, queue=order[9])
    stage.worker(children=1, queues=order, ready=False)
    stage.wait_until(lambda: stage.effects("start"), 20, "the first runs")
    high = stage.app.enqueue("sleep", {"name": "high", "seconds": 0.0}, queue=order[2])
    stage.ended(high, 10)
    # the second may have been claimed before the first was known to be slow
    assert [effect.name for effect in stage.effects("start")].index("high") <= 2


@pytest.mark.timeout(120)
def test_a_thousand_queues_on_one_worker(stage: Stage) -> None:
    """Any of them is served at once, whatever its place and band; idle, the worker leaves Redis alone."""
    order = names(MANY)
    stage.worker(queues=order)
    stage.wait_until_waiting(2)
    for number in (0, 1, 499, 998, 999):
        for band in (HOME_BAND, number % 5):
            sent = time.monotonic()
            task = stage.app.enqueue("mark", {"name": f"{number}-{band}"}, queue=order[number], priority=band)
            stage.ended(task, 10)
            assert time.monotonic() - sent < 1.0, (number, band)
    stage.wait_until_waiting(2)
    time.sleep(5)  # a first sweep of everything
    before, began = commands(stage), time.monotonic()
    time.sleep(5)
    assert (commands(stage) - before) / (time.monotonic() - began) < 20


@pytest.mark.timeout(120)
def test_more_streams_than_one_read_waits_on(stage: Stage) -> None:
    """Reads go round over them: each task starts within seconds, and none of them is forgotten."""
    order = names(300)
    for queue in order:
        for band in (0, 3, 7, 9):
            stage.app.enqueue("mark", {"name": f"{queue}-{band}"}, queue=queue, priority=band)
    stage.worker(queues=order)
    stage.wait_until(lambda: len(stage.effects()) >= 1200, 60, "the backlog is worked off")
    stage.wait_until_waiting(2)
    for number in (0, 150, 299):
        sent = time.monotonic()
        stage.ended(stage.app.enqueue("mark", {"name": f"late-{number}"}, queue=order[number], priority=0), 20)
        assert time.monotonic() - sent < 10, number


def test_a_paused_queue_among_many_is_resumed(stage: Stage) -> None:
    """It is left out of reads while it is paused, whether or not it holds tasks, and served again afterwards."""
    order = names(20)
    stage.worker(queues=order)
    stage.wait_until_waiting(2)
    assert stage.app.broker.pause(order[7])
    waiting = stage.app.enqueue("mark", {"name": "waits"}, queue=order[7])
    stage.ended(stage.app.enqueue("mark", {"name": "runs"}, queue=order[8]), 5)
    assert waiting.task().status == "queued"
    assert stage.app.broker.resume(order[7])
    stage.ended(waiting, 5)
    stage.ended(stage.app.enqueue("mark", {"name": "again"}, queue=order[7]), 5)


def test_what_a_dead_child_held_in_one_of_many_queues_comes_back(stage: Stage) -> None:
    """The hand-over looks into all of them."""
    order = names(50)
    stage.worker(queues=order)
    task = stage.app.enqueue("sleep", {"name": "t", "seconds": 3.0}, queue=order[40], max_attempts=3)
    stage.wait_until(lambda: stage.effects("start"), 10, "it runs")
    os.kill(stage.effects("start")[0].pid, signal.SIGKILL)
    stage.wait_until(lambda: len(stage.effects("start")) == 2, 10, "it runs again")
    assert stage.ended(task, 15).attempt == 2


def test_scheduled_tasks_of_one_of_many_queues_fall_due(stage: Stage) -> None:
    """Empty schedules are looked at together; one that holds something is not missed."""
    order = names(200)
    stage.worker(queues=order)
    tasks = [
        stage.app.enqueue("mark", {"name": f"d{number}"}, queue=order[number], delay=0.5 + number / 400)
        for number in (3, 60, 199)
    ]
    for task in tasks:
        stage.ended(task, 6)


def test_a_child_that_has_claimed_looks_at_no_further_queue(stage: Stage) -> None:
    """One round trip a task, whatever stands behind its queue: what a look found there would not be claimed."""
    client = stage.app.broker.transport.client()

    def looks() -> int:
        calls: int = client.info("commandstats")["cmdstat_hlen"]["calls"]
        return calls

    stage.worker(children=1, queues=["first", "default"])
    tasks = [stage.app.enqueue("sleep", {"name": f"t{i}", "seconds": 0.06}, queue="first") for i in range(34)]
    stage.ended(tasks[3])  # the child knows by now how long they take
    before = looks()
    stage.wait_until(lambda: len(stage.effects("end")) >= 34, 10, "all have run")
    assert looks() - before < 15
    client.close()
