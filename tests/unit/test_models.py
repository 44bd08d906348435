"""Statuses and moves, and the task that live value, envelope and record stand for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from dtq import _core
from dtq.errors import IllegalTransition
from dtq.models import VALID_TRANSITIONS, Outcome, TaskStatus, read_task, transition

MOVES = {
    "pending": {"queued", "cancelled", "expired"},
    "queued": {"running", "cancelled", "expired"},
    "running": {"succeeded", "retrying", "failed", "dead_lettered", "cancelled"},
    "retrying": {"queued", "cancelled"},
}
EXTRAS = {"headers": {"trace": "1"}, "metadata": {"from": "test"}, "ttl_ms": 5000, "deadline_ms": 2_000_000_000_000}
ID = _core.new_ids(1_700_000_000_000, bytes(10), 1)[0]
HEAD = _core.EnvelopeHead("mail.send", 7, 3, 60_000, 604_800_000, True, json.dumps(EXTRAS).encode())
ENVELOPE = HEAD.encode({"to": "a@b"}, 1000)


@pytest.mark.parametrize(("current", "target"), list(product(TaskStatus, TaskStatus)))
def test_all_81_pairs(current: TaskStatus, target: TaskStatus) -> None:
    if target.value in MOVES.get(current.value, ()):
        assert transition(current, target) is target
        return
    with pytest.raises(IllegalTransition) as caught:
        transition(current, target)
    assert caught.value.http_status == (410 if current.terminal else 409)


def test_codes_count_in_the_order_of_the_lifecycle() -> None:
    assert [status.code for status in TaskStatus] == list(range(1, 10))
    assert [TaskStatus.from_code(code) for code in range(1, 10)] == list(TaskStatus)
    assert [status for status in TaskStatus if status.terminal] == list(TaskStatus)[4:]
    assert set(VALID_TRANSITIONS) == set(TaskStatus)
    with pytest.raises(ValueError, match=r"^status code: 0 is out of bounds"):
        TaskStatus.from_code(0)


def test_an_outcome_names_the_status_it_leads_to() -> None:
    assert Outcome("S").status is TaskStatus.SUCCEEDED
    assert Outcome("L").status is TaskStatus.QUEUED


def test_a_queued_task() -> None:
    task = read_task("mail", ID, live=b"q:2:1:1700000001000-3:x5;c", envelope=ENVELOPE, record=None, due_ms=None)
    assert (task.status, task.attempt, task.released, task.priority) == (TaskStatus.QUEUED, 2, 1, 7)
    assert task.payload == {"to": "a@b"}
    assert task.cancel_requested
    assert task.worker_id is None
    assert task.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (task.ttl, task.timeout, task.retention) == (timedelta(seconds=5), timedelta(minutes=1), timedelta(days=7))
    assert (task.headers, task.metadata) == ({"trace": "1"}, {"from": "test"})
    assert task.deadline == datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)


def test_a_running_task_shows_its_worker_and_not_the_error_of_an_earlier_attempt() -> None:
    line = {"attempt": 1, "cause": "error", "started_ms": 1000, "ended_ms": 2000, "worker_id": "w1", "error": "boom"}
    record = _core.encode_record(
        0, 1, 0, 1_600_000_000_000, 1000, 2000, b"", b'{"error":"boom"}', b"", json.dumps(line).encode() + b"\n"
    )
    live = b"r:2:0:1-1:host-abc.3.7:12:1700000002000:h;"
    task = read_task("mail", ID, live=live, envelope=ENVELOPE, record=record, due_ms=None)
    assert (task.status, task.worker_id, task.error) == (TaskStatus.RUNNING, "host-abc", None)
    assert task.started_at == datetime(2023, 11, 14, 22, 13, 22, tzinfo=UTC)
    assert not task.cancel_requested
    assert [(attempt.cause, attempt.error, attempt.worker_id) for attempt in task.history] == [("error", "boom", "w1")]


def test_an_ended_task() -> None:
    detail = {"worker_id": "w1", "cause": "error", "error_class": "ValueError", "error": "no", "traceback": "..."}
    record = _core.encode_record(
        7, 3, 0, 1000, 2000, 3000, b"t", json.dumps(detail).encode(), ENVELOPE, b"", b"1700000000000-0"
    )
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=None)
    assert (task.status, task.error_class, task.error, task.cause) == (
        TaskStatus.DEAD_LETTERED, "ValueError", "no", "error"
    )  # fmt: skip
    assert task.dead_letter_id == "1700000000000-0"
    assert task.ended_at == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)


def test_a_scheduled_task_as_plain_json() -> None:
    record = _core.encode_record(1, 1, 0, 1000, 0, 0, b"", b"{}", ENVELOPE)
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=1_700_000_000_500)
    plain = json.loads(json.dumps(task.as_dict()))
    assert plain["due_at"] == "2023-11-14T22:13:20.500+00:00"
    assert (plain["status"], plain["ttl"], plain["history"]) == ("pending", 5.0, [])


def test_a_damaged_record_is_refused() -> None:
    with pytest.raises(_core.CoreError):
        read_task("mail", ID, live=None, envelope=None, record=b"\x01\x05", due_ms=None)
