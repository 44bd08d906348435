"""How attempts end in a real worker: delays, retries, limits, bad results, tasks that nobody can run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import dtq
from tests.process.harness import Stage, alive, now


def test_delays_are_kept(stage: Stage) -> None:
    """A delayed task starts within 100 ms of its time, and not before it."""
    stage.worker()
    due = {}
    for tenths in (2, 5, 9):
        due[f"d{tenths}"] = now() + tenths / 10
        stage.app.enqueue("mark", {"name": f"d{tenths}"}, delay=tenths / 10)
    for name, at in due.items():
        late = stage.started(name).at - at
        assert -0.005 <= late < 0.1, (name, late)


def test_a_retry_comes_after_its_backoff(stage: Stage) -> None:
    """The second attempt starts after the delay (jitter included) and keeps the first one's history."""
    stage.worker()
    handle = stage.app.enqueue("second_time", {"name": "t"})
    first, second = stage.started("t", 1), stage.started("t", 2)
    assert 0.15 <= second.at - first.at < 0.4
    task = stage.ended(handle)
    assert (task.status, task.attempt) == ("succeeded", 2)
    assert [(line.cause, line.error_class, line.error) for line in task.history] == [("error", "ValueError", "not yet")]


def test_the_last_failure_is_a_dead_letter(stage: Stage) -> None:
    """After max_attempts the task is dead-lettered with class, message and traceback."""
    stage.worker()
    task = stage.ended(stage.app.enqueue("fail", {"name": "t"}, max_attempts=2))
    assert (task.status, task.attempt, task.error_class, task.error) == ("dead_lettered", 2, "ValueError", "t fails")
    assert task.traceback is not None
    assert "in fail" in task.traceback
    assert "executor" not in task.traceback


@pytest.mark.parametrize(("kind", "attempts"), [("sleep", 1), ("sleep", 2), ("async_sleep", 1), ("async_sleep", 2)])
def test_a_time_limit_interrupts(stage: Stage, kind: str, attempts: int) -> None:
    """The attempt ends at its limit with cause `timeout`, is retried, and the child goes on working."""
    stage.worker(children=1)
    handle = stage.app.enqueue(kind, {"name": "t", "seconds": 30}, timeout=0.5, max_attempts=attempts)
    begun = stage.started("t").at
    task = stage.ended(handle)
    assert (task.status, task.cause, task.error_class) == ("dead_lettered", "timeout", "TaskTimeout")
    assert len(stage.effects("start", "t")) == attempts
    if attempts == 1:
        assert now() - begun < 1.5
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"})).status == "succeeded"


@pytest.mark.parametrize("how", ["gil", "no gil", "signals blocked"])
def test_a_time_limit_kills_what_does_not_listen(open_stage: Callable[..., Stage], how: str) -> None:
    """The limit holds from outside: after the kill grace the child is killed, the cause is `timeout`."""
    stage = open_stage(kill_grace_s=0.5)
    stage.worker(children=1)
    handle = stage.app.enqueue("deaf", {"name": "t", "how": how}, timeout=0.5, max_attempts=1)
    begun = stage.started("t").at
    task = stage.ended(handle)
    assert (task.status, task.cause) == ("dead_lettered", "timeout")
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"})).status == "succeeded"
    assert now() - begun < 3


def test_a_time_limit_is_a_failure_with_its_own_reason(stage: Stage) -> None:
    """Each attempt that times out counts as one, with cause `timeout`; the task never ends cancelled (S060)."""
    stage.worker(children=1)
    handle = stage.app.enqueue("tidy", {"name": "clean"}, timeout=0.3, max_attempts=1)
    once = stage.app.enqueue("sleep", {"name": "once", "seconds": 10}, timeout=0.3, max_attempts=1)
    thrice = stage.app.enqueue("slow", {"name": "thrice", "seconds": 10}, timeout=0.3, max_attempts=3)
    assert (
        stage.ended(handle).status == "succeeded"
    )  # it caught the time-out, cleaned up, and returned within the grace
    for task, attempts in ((stage.ended(once), 1), (stage.ended(thrice), 3)):
        assert (task.status, task.cause, task.attempt) == ("dead_lettered", "timeout", attempts)
        assert [line.cause for line in task.history] == ["timeout"] * attempts
    assert len(stage.effects("start", "once")) == 1
    assert len(stage.effects("start", "thrice")) == 3
    totals = stage.app.broker.queue_counts("default").totals
    assert (totals["dead_lettered"], totals["retried"]) == (2, 2)
    assert "cancelled" not in totals


def test_a_limit_of_its_own_beats_the_default(open_stage: Callable[..., Stage]) -> None:
    """Both ways: longer and shorter than `timeout_s` (S061)."""
    stage = open_stage(timeout_s=0.8)
    stage.worker(children=3)
    longer = stage.app.enqueue("sleep", {"name": "longer", "seconds": 1.6}, timeout=6)
    shorter = stage.app.enqueue("sleep", {"name": "shorter", "seconds": 10}, timeout=0.3, max_attempts=1)
    none = stage.app.enqueue("sleep", {"name": "none", "seconds": 10}, max_attempts=1)
    for handle, limit in ((shorter, 0.3), (none, 0.8)):
        task = stage.ended(handle)
        assert (task.status, task.cause, task.error) == (
            "dead_lettered",
            "timeout",
            f"the time limit of {limit} s has passed",
        )
        assert task.started_at is not None
        assert task.ended_at is not None
        assert limit - 0.05 < (task.ended_at - task.started_at).total_seconds() < limit + 0.5
    assert stage.ended(longer).status == "succeeded"


@pytest.mark.parametrize("kind", ["sleep", "async_sleep"])
def test_a_deadline_bounds_the_time_limit(stage: Stage, kind: str) -> None:
    """A running attempt is interrupted at the deadline, and no other one starts after it."""
    stage.worker(children=1)
    deadline = datetime.now(UTC) + timedelta(seconds=1)
    handle = stage.app.enqueue(kind, {"name": "t", "seconds": 30}, timeout=20, deadline=deadline, max_attempts=3)
    task = stage.ended(handle)
    assert (task.status, task.cause) == ("expired", "deadline")
    assert [line.cause for line in task.history] == ["timeout"]
    assert task.history[0].ended_at is not None
    assert abs((task.history[0].ended_at - deadline).total_seconds()) < 0.5
    assert len(stage.effects("start", "t")) == 1


def test_a_hard_kill_at_the_limit_spares_siblings(open_stage: Callable[..., Stage]) -> None:
    """The child that does not listen is replaced at once; a sibling in another child notices nothing (S058)."""
    stage = open_stage(kill_grace_s=0.3)
    worker = stage.worker(children=2)
    sibling = stage.app.enqueue("sleep", {"name": "sibling", "seconds": 2})
    stage.started("sibling")
    handle = stage.app.enqueue("stubborn", {"name": "t"}, timeout=0.4, max_attempts=1)
    pid = stage.started("t").pid
    stage.wait_until(lambda: not alive(pid), 5, "the kill")
    at = now()
    stage.wait_until(lambda: len(worker.live_pids()) == 2, 5, "another child")
    assert now() - at < 0.5
    task = stage.ended(handle)
    assert (task.status, task.cause) == ("dead_lettered", "timeout")
    assert len(stage.effects("swallowed", "t")) == 1
    assert stage.ended(sibling).attempt == 1


@pytest.mark.parametrize(
    ("what", "status", "attempts", "error_class"),
    [
        ("generator", "dead_lettered", 1, "InvalidResult"),
        ("coroutine", "dead_lettered", 1, "InvalidResult"),
        ("PermanentError", "dead_lettered", 1, "PermanentError"),
        ("Discard", "cancelled", 1, "Discard"),
        ("Retry", "dead_lettered", 2, "Retry"),
    ],
)
def test_what_handlers_should_not_do(stage: Stage, what: str, status: str, attempts: int, error_class: str) -> None:
    """No exception and no result takes the child along."""
    worker = stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("raise_named", {"name": "t", "what": what}, max_attempts=2))
    assert (task.status, task.error_class, len(stage.effects("start", "t"))) == (status, error_class, attempts)
    assert len(worker.ready_pids()) == 1


@pytest.mark.parametrize("after", [1e10, 1e300])
def test_a_retry_asked_for_in_the_far_future_waits_ten_years(stage: Stage, after: float) -> None:
    """No number that a handler gives harms its child."""
    stage.worker(children=1)
    handle = stage.app.enqueue("retry_after", {"after": after})
    stage.wait_until(lambda: handle.status() == "retrying", 5, "the retry")
    assert handle.task().attempt == 1
    assert handle.cancel() == "cancelled"


def test_a_handler_cannot_release_itself(stage: Stage) -> None:
    """Only a stop is free of charge; the same exception raised by the handler is a failure."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("raise_interruption", {"name": "t"}, max_attempts=1))
    assert (task.status, task.cause, task.error_class, task.error) == (
        "dead_lettered",
        "error",
        "TaskReleased",
        "by myself",
    )


def test_nobody_handles_this_type(stage: Stage) -> None:
    """An unknown task type is a permanent failure that names what is known."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("no_such_task", {}))
    assert (task.status, task.error_class) == ("dead_lettered", "UnknownTask")
    assert task.error is not None
    assert "no_such_task" in task.error


def test_the_payload_does_not_fit(stage: Stage) -> None:
    """A payload that does not fit the signature fails without a call."""
    stage.worker(children=1)
    task = stage.ended(stage.app.enqueue("mark", {"nome": "t"}))
    assert (task.status, task.error_class) == ("dead_lettered", "InvalidPayload")
    assert not stage.effects()


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda raw: b"\x07" + raw[1:20], "version"),
    (lambda raw: b"", "damaged"),
    (lambda raw: b"\xff" * 20, "version"),
    (lambda raw: raw[:10], "damaged"),
    (lambda raw: raw[:-3], "decoded"),
    (lambda raw: raw[:-1] + b"\xff", "decoded"),
    (lambda raw: raw.replace(b"{", b"["), "decoded"),
    (lambda raw: raw[:17] + b"\xff" + raw[18:], "damaged"),
    (lambda raw: raw + b"x" * 1_000_000, "decoded"),
    (lambda raw: raw.replace(b"mark", b"m\n\x1b["), "no handler"),
]
"""What is done to the bytes of an envelope, and a word of the error."""


def test_damaged_envelopes_are_dead_lettered(stage: Stage) -> None:
    """Bytes damaged in Redis by hand end as dead letters that can be looked at, and the worker goes on."""
    broker = stage.app.broker
    stream = broker.keys.stream("default", 5)
    handles = []
    for damage, _ in DAMAGES:
        handle = stage.app.enqueue("mark", {"name": "t"})
        entry, fields = broker.command("XREVRANGE", stream, "+", "-", "COUNT", 1)[0]
        broker.command("XDEL", stream, entry)
        damaged = broker.command("XADD", stream, "*", fields[0], damage(fields[1]))
        broker.command("HSET", broker.keys.live("default"), handle.id, b"q:1:0:" + damaged + b":")
        handles.append(handle)
    stage.worker(children=1)
    for number, (handle, (_, word)) in enumerate(zip(handles, DAMAGES, strict=True)):
        stage.wait_until(lambda handle=handle: broker.states("default", [handle.id]) == b"7", 5, f"end of {number}")
        assert word in (handle.task().error or ""), number
        with pytest.raises(dtq.TaskFailed):
            handle.result(timeout=1)
    assert stage.ended(stage.app.enqueue("mark", {"name": "next"})).status == "succeeded"


@pytest.mark.parametrize("key", ["schedule", "live"])
def test_a_queue_with_damaged_keys_does_not_stop_the_others(stage: Stage, key: str) -> None:
    """Delays and recovery of the other queues go on; the log names the queue, at most every few seconds."""
    broker = stage.app.broker
    broker.prepare_queue("a-damaged")  # before the worker: a leader asks for new queues every ten seconds only
    name = getattr(broker.keys, key)("a-damaged")
    broker.command("SET", name, "x")
    worker = stage.worker(children=1)
    for i in range(3):
        task = stage.ended(stage.app.enqueue("mark", {"name": f"t{i}"}, delay=0.5))
        assert task.status == "succeeded"
    if key == "schedule":
        stage.wait_until(lambda: "a-damaged: promotion of due tasks is not possible" in worker.log, 5, "one line")
    assert worker.log.count("a-damaged") <= 3


@pytest.mark.parametrize("key", ["live", "meta", "schedule", "a used stream", "an unused stream"])
def test_a_child_serves_the_queues_beside_a_damaged_one(stage: Stage, key: str) -> None:
    """A key of the first one has a wrong type: what is in the second runs on, and the first once it is mended."""
    worker = stage.worker(queues=["bad", "good"], children=1)
    broker = stage.app.broker
    stage.ended(stage.app.enqueue("noop", {}, queue="bad"))
    band = {"a used stream": 5, "an unused stream": 7}.get(key)
    name = broker.keys.stream("bad", band) if band else getattr(broker.keys, key)("bad")
    stands = broker.command("EXISTS", name)
    if stands:
        broker.command("RENAME", name, "kept")
    broker.command("SET", name, "damaged")
    if key == "live":
        broker.command("XADD", broker.keys.stream("bad", 5), "*", "id", "envelope")  # so that it is looked at
    at = now()
    for i in range(20):
        stage.ended(stage.app.enqueue("mark", {"name": f"m{i}"}, queue="good"))
    assert now() - at < 5
    assert worker.log.count("work on it is not possible") <= 1, worker.log
    assert worker.log.count("Redis is unavailable") <= 1  # a stream's removal itself ends the read that stands there
    broker.command("DEL", name)
    if stands:
        broker.command("RENAME", "kept", name)
    broker.prepare_queue("bad")
    stage.ended(stage.app.enqueue("noop", {}, queue="bad"), timeout=6)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
