"""Statuses and moves, and the task that live value, envelope and record stand for."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, get_args

import pytest

from dtq import _core
from dtq.errors import IllegalTransition
from dtq.models import (
    OUTCOME_STATUS,
    VALID_TRANSITIONS,
    AttemptRecord,
    Outcome,
    OutcomeLetter,
    Task,
    TaskStatus,
    parse_history,
    read_task,
    transition,
)

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


@pytest.mark.parametrize(
    ("current", "target", "message"),
    [
        ("succeeded", "queued", "status: a task that is succeeded has ended and cannot become queued"),
        ("retrying", "running", "status: a retrying task cannot become running; it may become cancelled, queued"),
    ],
)
def test_a_refused_move_says_what_is_possible(current: str, target: str, message: str) -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(TaskStatus(current), TaskStatus(target))
    assert str(caught.value) == message


def test_codes_count_in_the_order_of_the_lifecycle() -> None:
    assert [status.code for status in TaskStatus] == list(range(1, 10))
    assert [TaskStatus.from_code(code) for code in range(1, 10)] == list(TaskStatus)
    assert [status for status in TaskStatus if status.terminal] == list(TaskStatus)[4:]
    assert set(VALID_TRANSITIONS) == set(TaskStatus)
    for code in (-1, 0, 10):
        with pytest.raises(ValueError, match=r".") as caught:
            TaskStatus.from_code(code)
        assert str(caught.value) == f"status code: {code} is out of bounds; known are 1 to 9"


@pytest.mark.parametrize(
    ("letter", "status"),
    [
        ("S", "succeeded"),
        ("R", "retrying"),
        ("F", "failed"),
        ("D", "dead_lettered"),
        ("C", "cancelled"),
        ("L", "queued"),
    ],
)
def test_an_outcome_names_the_status_it_leads_to(letter: OutcomeLetter, status: str) -> None:
    assert Outcome(letter).status is TaskStatus(status)
    assert set(get_args(OutcomeLetter)) == set(OUTCOME_STATUS)


def test_what_is_not_said_of_a_task_is_nothing() -> None:
    assert Outcome("S") == Outcome("S", None, 0, True, "", "", "", "")
    assert AttemptRecord(1, "error") == AttemptRecord(1, "error", None, None, None, None, None)
    bare = Task(
        id=ID, queue="mail", status=TaskStatus.QUEUED, task_type="t", payload={}, attempt=1, max_attempts=3, priority=5
    )
    assert bare.as_dict() == {
        **dict.fromkeys(Task.__dataclass_fields__),
        "id": ID,
        "queue": "mail",
        "status": "queued",
        "task_type": "t",
        "payload": {},
        "attempt": 1,
        "max_attempts": 3,
        "priority": 5,
        "released": 0,
        "cancel_requested": False,
        "headers": {},
        "metadata": {},
        "history": [],
    }


@pytest.mark.parametrize(
    "value",
    [
        Outcome("S"),
        AttemptRecord(1, "error"),
        Task("1", "mail", TaskStatus.QUEUED, "t", {}, 1, 3, 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_read_stays_as_it_was_read(value: Outcome | AttemptRecord | Task) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, "other")


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


def test_a_discarded_dead_letter_says_so_and_has_no_place() -> None:
    record = _core.encode_record(7, 3, 1, 1000, 2000, 3000, b"t", b"{}", ENVELOPE, b"", b"discarded")
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=None)
    assert (task.dead_letter_id, task.released) == (None, 1)
    assert task.metadata == {"from": "test", "discarded": True}


def test_a_succeeded_task_has_its_result_and_no_error() -> None:
    record = _core.encode_record(5, 2, 0, 1000, 2000, 3000, b"t", b'{"result":[1],"worker_id":"w1"}', ENVELOPE)
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=9)
    assert task == Task(
        id=ID,
        queue="mail",
        status=TaskStatus.SUCCEEDED,
        task_type="mail.send",
        payload={"to": "a@b"},
        attempt=2,
        max_attempts=3,
        priority=7,
        created_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        started_at=datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        ended_at=datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC),
        worker_id="w1",
        result=[1],
        timeout=timedelta(minutes=1),
        retention=timedelta(days=7),
        ttl=timedelta(seconds=5),
        deadline=datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC),
        headers={"trace": "1"},
        metadata={"from": "test"},
    )


def test_a_failed_task_has_no_result() -> None:
    record = _core.encode_record(6, 1, 0, 1000, 2000, 3000, b"t", b'{"result":1,"traceback":"..."}', ENVELOPE)
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=None)
    assert (task.result, task.traceback) == (None, "...")


def test_a_task_that_asks_for_nothing_special() -> None:
    """No extras at all, kept for ever, and an id of the caller's own, which tells no time."""
    head = _core.EnvelopeHead("mail.send", 5, 3, 0, _core.FOREVER_MS, True, b"")
    task = read_task(
        "mail", "mine", live=b"q:1:0:5-1:;", envelope=head.encode({}, 1000), record=None, due_ms=1_700_000_000_500
    )
    assert task == Task(
        id="mine",
        queue="mail",
        status=TaskStatus.QUEUED,
        task_type="mail.send",
        payload={},
        attempt=1,
        max_attempts=3,
        priority=5,
        timeout=timedelta(0),
    )


def test_the_extras_tell_when_a_task_with_an_id_of_its_own_was_made() -> None:
    extras = {"created_ms": 5000, "batch_id": "b1"}
    head = _core.EnvelopeHead("mail.send", 5, 3, 0, _core.FOREVER_MS - 1, True, json.dumps(extras).encode())
    task = read_task("mail", "mine", live=b"q:1:0:5-1:;", envelope=head.encode({}, 1000), record=None, due_ms=None)
    assert (task.created_at, task.batch_id) == (datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "b1")
    assert task.retention == timedelta(milliseconds=_core.FOREVER_MS - 1)


def test_a_running_task_that_is_to_be_cancelled() -> None:
    task = read_task(
        "mail", ID, live=b"r:2:1:1-1:host-abc.3.7:12:1000:h;c", envelope=ENVELOPE, record=None, due_ms=None
    )
    assert (task.attempt, task.released, task.cancel_requested) == (2, 1, True)
    assert (task.ended_at, task.due_at, task.history) == (None, None, ())


@pytest.mark.parametrize("live", [b"q:2:1:5-1:ua:b;c", b"r:2:1:1-1:host-abc.3.7:12:1000:ua:b;c"])
def test_a_colon_in_the_tail_is_part_of_it(live: bytes) -> None:
    task = read_task("mail", ID, live=live, envelope=ENVELOPE, record=None, due_ms=None)
    assert (task.attempt, task.cancel_requested) == (2, True)


def test_while_an_attempt_runs_the_outcome_of_an_earlier_one_is_history() -> None:
    detail = {"cause": "error", "error_class": "ValueError", "error": "no", "traceback": "...", "worker_id": "w1"}
    record = _core.encode_record(4, 1, 0, 7000, 2000, 3000, b"t", json.dumps(detail).encode(), ENVELOPE)
    task = read_task("mail", ID, live=b"q:2:0:5-1:;", envelope=None, record=record, due_ms=None)
    assert (task.cause, task.error_class, task.error, task.traceback, task.worker_id) == (None,) * 5
    assert (task.started_at, task.ended_at, task.created_at) == (None, None, datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC))
    assert task.task_type == "mail.send", "the record's envelope stands in for the one that is not at hand"


def test_a_lost_envelope() -> None:
    """Live value alone: what only the envelope tells is missing."""
    task = read_task("mail", ID, live=b"q:2:0:5-1:;", envelope=None, record=None, due_ms=None)
    assert task == Task(
        id=ID,
        queue="mail",
        status=TaskStatus.QUEUED,
        task_type="",
        payload=None,
        attempt=2,
        max_attempts=0,
        priority=0,
        created_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    )


def test_a_damaged_envelope_says_what_is_wrong() -> None:
    task = read_task("mail", ID, live=b"q:2:0:5-1:;", envelope=b"\xff\xff", record=None, due_ms=None)
    assert (task.task_type, task.payload) == ("", None)
    assert task.error is not None
    assert task.error.startswith("envelope.version: unknown envelope version 255")


@pytest.mark.parametrize(
    ("envelope", "kept"),
    [
        (_core.EnvelopeHead("mail.send", 7, 3, 0, 0, True, b"").encode({"a": 1}, 1000)[:-1] + b"!", {}),
        (_core.EnvelopeHead("mail.send", 7, 3, 0, 0, True, b'{"headers":{"x":"1"}}').encode({}, 1000)[:-1] + b"!",
         {"x": "1"}),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_json_leaves_the_rest_readable(envelope: bytes, kept: dict[str, str]) -> None:
    task = read_task("mail", ID, live=b"q:2:0:5-1:;", envelope=envelope, record=None, due_ms=None)
    assert (task.task_type, task.priority, task.payload, task.headers) == ("mail.send", 7, None, kept)
    assert task.error is not None
    assert task.error.startswith("envelope: the envelope is damaged: ")


def test_the_error_of_the_task_goes_before_that_of_its_envelope() -> None:
    record = _core.encode_record(7, 3, 0, 1000, 2000, 3000, b"t", b'{"error":"no"}', b"\xff\xff")
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=None)
    assert task.error == "no"


def test_history_is_read_oldest_first_and_what_a_line_lacks_is_nothing() -> None:
    full = {"attempt": 2, "cause": "timeout", "started_ms": 1000, "ended_ms": 2000}
    full |= {"worker_id": "w1", "error_class": "TaskTimeout", "error": "late"}
    assert parse_history(b"{}\n\n" + json.dumps(full).encode() + b"\n") == (
        AttemptRecord(0, ""),
        AttemptRecord(
            2,
            "timeout",
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
            "w1",
            "TaskTimeout",
            "late",
        ),
    )


@pytest.mark.parametrize(("code", "due"), [(1, True), (4, True), (5, False)])
def test_only_what_waits_is_due(code: int, due: bool) -> None:
    record = _core.encode_record(code, 1, 0, 1000, 0, 0, b"", b"", ENVELOPE)
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=1000)
    assert task.due_at == (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC) if due else None)


def test_a_scheduled_task_as_plain_json() -> None:
    record = _core.encode_record(1, 1, 0, 1000, 0, 0, b"", b"{}", ENVELOPE)
    task = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=1_700_000_000_500)
    plain = json.loads(json.dumps(task.as_dict()))
    assert plain["due_at"] == "2023-11-14T22:13:20.500+00:00"
    assert (plain["status"], plain["ttl"], plain["history"]) == ("pending", 5.0, [])


def test_plain_json_has_no_types_of_ours() -> None:
    """Whoever serialises with something else than `json` meets plain texts, numbers, lists and dicts only."""
    line = {"attempt": 1, "cause": "error", "started_ms": 1000, "worker_id": "w1"}
    record = _core.encode_record(4, 1, 0, 1000, 0, 0, b"", b"{}", ENVELOPE, json.dumps(line).encode())
    plain: dict[str, Any] = read_task("mail", ID, live=None, envelope=None, record=record, due_ms=None).as_dict()
    assert {type(value) for value in plain.values()} <= {str, int, float, bool, type(None), dict, list}
    assert plain["history"] == [
        {"attempt": 1, "cause": "error", "started_at": "1970-01-01T00:00:01.000+00:00", "ended_at": None}
        | {"worker_id": "w1", "error_class": None, "error": None}
    ]
    assert (plain["status"], plain["payload"], plain["priority"]) == ("retrying", {"to": "a@b"}, 7)


def test_a_task_of_nothing_cannot_be_read() -> None:
    with pytest.raises(ValueError, match=rf"^task {ID}: neither a live value nor a record was given$"):
        read_task("mail", ID, live=None, envelope=None, record=None, due_ms=None)


def test_a_damaged_record_is_refused() -> None:
    with pytest.raises(_core.CoreError):
        read_task("mail", ID, live=None, envelope=None, record=b"\x01\x05", due_ms=None)
