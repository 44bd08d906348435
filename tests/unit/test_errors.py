"""The tree of errors: codes, HTTP statuses, and what survives a trip through pickle."""

from __future__ import annotations

import copy
import pickle

import pytest

from dtq import _core, errors

TABLE = {
    "InvalidTask": (422, "INVALID_TASK", "invalid"),
    "PayloadTooLarge": (413, "PAYLOAD_TOO_LARGE", "payload"),
    "QueueFull": (429, "QUEUE_FULL", "full"),
    "TaskIdConflict": (409, "TASK_ID_CONFLICT", "conflict"),
    "UniqueConflict": (409, "UNIQUE_CONFLICT", "unique"),
    "IdempotencyInProgress": (409, "IDEMPOTENCY_IN_PROGRESS", "idempotency"),
    "IdempotencyKeyReused": (409, "IDEMPOTENCY_KEY_REUSED", "idempotency"),
    "AmbiguousTaskId": (409, "AMBIGUOUS_ID", None),
    "TaskNotFound": (404, "TASK_NOT_FOUND", None),
    "OnceInProgress": (409, "ONCE_IN_PROGRESS", None),
    "IllegalTransition": (409, "ILLEGAL_TRANSITION", None),
    "BrokerUnavailable": (503, "REDIS_UNAVAILABLE", "unavailable"),
    "UnsupportedServer": (503, "UNSUPPORTED_SERVER", None),
    "ResultNotKept": (410, "RESULT_NOT_KEPT", None),
    "TaskFailed": (200, "TASK_FAILED", None),
    "ResultTimeout": (202, "RESULT_TIMEOUT", None),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_error_says_how_it_is_answered(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, errors.DtqError)
    assert (error.http_status, error.code, error.reason) == TABLE[name]


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidTask("payload.x", "NaN is not JSON"),
        errors.QueueFull("queue: full", 2.5),
        errors.UniqueConflict("unique: held", "abc"),
        errors.IdempotencyInProgress("idempotency_key: held", "abc"),
        errors.BrokerUnavailable("Redis cannot be reached"),
        errors.TaskFailed("boom", task_id="abc", status="dead_lettered", error_class="ValueError"),
        errors.InvalidSettings(["one", "two"]),
    ],
)
def test_errors_survive_pickle_and_copy(error: errors.DtqError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - made here
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_an_ended_task_refuses_with_410() -> None:
    error = errors.IllegalTransition("status: it has ended", terminal=True)
    assert (error.code, error.http_status) == ("ALREADY_TERMINAL", 410)


def test_signals_into_handlers_pass_a_broad_except() -> None:
    for signal in (errors.TaskTimeout, errors.TaskCancelled, errors.TaskReleased):
        assert not issubclass(signal, Exception)


def test_core_errors_become_public_ones() -> None:
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json({"items": [1, float("nan")]})
    error = errors.from_core(caught.value)
    assert isinstance(error, errors.InvalidTask)
    assert error.field == "payload.items[1]"
    assert str(error) == "payload.items[1]: NaN is not JSON; use None or a string"
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json({"text": "x" * 100}, "payload", 50)
    assert isinstance(errors.from_core(caught.value), errors.PayloadTooLarge)


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_retry_refuses_what_is_no_waiting_time(after: float) -> None:
    with pytest.raises(ValueError, match=r"^after: "):
        errors.Retry(after=after)
