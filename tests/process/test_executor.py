"""One attempt without Redis: what each exception, result and payload stands for."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

import dtq
from dtq._core import Average, Claim, EnvelopeHead, Outcomes, Slots, SyncLoop, parse_claims
from dtq.clock import SYSTEM
from dtq.executor import Executor
from dtq.failure import class_name, message_of, traceback_of
from dtq.models import Outcome
from dtq.settings import Settings


def claim(payload: dict[str, object], attempt: int = 1, released: int = 0, **head: Any) -> Claim:
    """A claim as a turn brings it."""
    options: dict[str, Any] = {"band": 5, "max_attempts": 3, "timeout_ms": 1000, "retention_ms": 0, **head}
    envelope = EnvelopeHead("t", **options).encode(payload, 100_000)
    live = f"r:{attempt}:{released}:1-1:w.0.1:7:1000:".encode()
    return parse_claims([b"", b"1", b"1-1", b"id", live, 5, envelope]).claims[0]


def run(
    function: Callable[..., Any],
    payload: dict[str, object] | None = None,
    /,
    *,
    of: Claim | None = None,
    releasing: bool = False,
    **options: Any,
) -> Any:
    """Run a function as a handler."""
    app = dtq.App()
    app.task(name="t", **options)(function)
    executor = Executor(app.registry, Settings(), "worker", draw=lambda: 0.5)
    executor.releasing = releasing
    claimed = of or claim(payload or {})
    result = executor.run(claimed, executor.routes["t"], "default")
    assert without_traceback(result_of_loop(executor, claimed)) == without_traceback(result)
    return result


def without_traceback(result: object) -> object:
    """One that was raised twice has both ways in it."""
    return replace(result, traceback="") if isinstance(result, Outcome) else result


def result_of_loop(executor: Executor, claimed: Claim) -> object:
    """What the core's loop makes of the same: it calls handlers itself."""
    collected: list[object] = []
    memory = os.memfd_create("slots")
    slots = Slots(memory, 1, 1, True)
    os.close(memory)
    slots.set_safe_until(2**63)
    slots.offer(0, claimed.seq, 1)
    loop = SyncLoop(
        slots=slots, child=0, average=Average(), executor=executor, routes=executor.routes, loads=orjson.loads,
        boottime_ns=SYSTEM.boottime_ns, collect=lambda *attempt: collected.append(attempt[2]), collects=False,
        inlines=executor.inlines, timeout_ns=0, claim_max=10, result_max_bytes=1000,
    )  # fmt: skip
    assert loop.run(deque([claimed]), 0, "default", Outcomes("worker"), None, 0, 1) == "used"
    (result,) = collected
    return result


def raising(error: BaseException) -> Callable[[], None]:
    """A handler that raises."""

    def handler() -> None:
        raise error

    return handler


def cancelled() -> dtq.TaskCancelled:
    """What the worker raises in the handler of a cancelled task."""
    error = dtq.TaskCancelled("the task was cancelled")
    error.by_worker = True
    return error


def test_a_success_is_the_result_itself() -> None:
    """No wrapper around what the handler returns."""
    assert run(lambda a, b=2: [a, b], {"a": 1}) == [1, 2]


@pytest.mark.parametrize(
    ("error", "letter", "cause"),
    [
        (ValueError("v"), "R", "error"),
        (dtq.Retry(), "R", "retry"),
        (dtq.PermanentError("p"), "D", "permanent error"),
        (dtq.Discard("d"), "C", "discarded"),
        (dtq.TaskTimeout("late"), "R", "timeout"),
        (dtq.TaskCancelled(), "R", "error"),
        (cancelled(), "C", "cancel requested"),
        (dtq.TaskReleased(), "R", "error"),
        (SystemExit(3), "R", "error"),
        (GeneratorExit(), "R", "error"),
        (KeyboardInterrupt(), "R", "error"),
        (asyncio.CancelledError(), "R", "error"),
    ],
)
def test_what_an_exception_means(error: BaseException, letter: str, cause: str) -> None:
    """Each kind has its outcome."""
    outcome = run(raising(error))
    assert (outcome.letter, outcome.cause) == (letter, cause)


def test_a_release_is_one_while_the_worker_stops() -> None:
    """Then it is free of charge; raised by a handler of its own accord it is a failure like others."""
    outcome = run(raising(dtq.TaskReleased()), releasing=True)
    assert (outcome.letter, outcome.cause, outcome.charged) == ("L", "released", False)


def test_delays() -> None:
    """Backoff doubles by charged attempts; Retry may name its own delay and may cost nothing."""
    assert run(raising(ValueError()), of=claim({}, 2)).delay_ms == 2000
    assert run(raising(ValueError()), of=claim({}, 4, released=2)).delay_ms == 2000
    assert run(raising(dtq.Retry(after=0.25))).delay_ms == 250
    assert run(raising(dtq.Retry(after=1e300))).delay_ms == 315_360_000_000
    free = run(raising(dtq.Retry(counts=False)), of=claim({}, 3))
    assert (free.letter, free.charged) == ("R", False)
    assert run(raising(ValueError()), backoff=7).delay_ms == 7000


def test_the_last_attempt() -> None:
    """Charged attempts decide, and the envelope says where the task ends."""
    assert run(raising(ValueError()), of=claim({}, 3)).letter == "D"
    assert run(raising(ValueError()), of=claim({}, 3, released=1)).letter == "R"
    assert run(raising(ValueError()), of=claim({}, 3, dead_letter=False)).letter == "F"
    assert run(raising(dtq.Retry()), of=claim({}, 3)).letter == "D"


def test_retry_on_and_fatal() -> None:
    """`retry_on` narrows what is retried, `fatal` names what never is."""
    assert run(raising(ValueError()), retry_on=OSError).letter == "D"
    assert run(raising(FileNotFoundError()), retry_on=OSError).letter == "R"
    assert run(raising(SystemExit()), retry_on=OSError).letter == "R"
    assert run(raising(KeyError()), fatal=(LookupError,)).letter == "D"


def test_mistaken_results() -> None:
    """A forgotten `await` and a generator are permanent failures with a clear message."""

    async def inner() -> None: ...

    forgotten = run(lambda: inner())
    assert (forgotten.letter, forgotten.error_class) == ("D", "InvalidResult")
    assert "coroutine" in forgotten.error
    assert "generator" in run(lambda: (i for i in "ab")).error


@pytest.mark.parametrize("payload", [{}, {"a": 1, "z": 2}])
def test_a_payload_that_does_not_fit(payload: dict[str, object]) -> None:
    """It fails for good, before the call, and names the field."""
    outcome = run(lambda a: pytest.fail("called"), payload)
    assert (outcome.letter, outcome.error_class) == ("D", "InvalidPayload")
    assert outcome.error.startswith("payload.")


@pytest.mark.parametrize("payload", [b"{", b"[1]", b"null"])
@pytest.mark.parametrize("of_async", [False, True])
def test_a_payload_that_is_no_json_object(payload: bytes, of_async: bool) -> None:
    """It was damaged after the enqueue: it fails for good, whichever way the handler is called."""

    def handler(a: int) -> None:
        pytest.fail("called")

    async def async_handler(a: int) -> None:
        pytest.fail("called")

    app = dtq.App()
    app.task(name="t")(async_handler if of_async else handler)
    executor = Executor(app.registry, Settings(), "worker")
    raw = EnvelopeHead("t", 5, 3, 1000, 0, True, b"").encode({}, 100)[:-2] + payload
    damaged = parse_claims([b"", b"1-1", b"id", b"r:1:0:1-1:w.0.1:7:1000:", 5, raw]).claims[0]
    route = executor.routes["t"]
    outcome: object
    if of_async:
        outcome = executor.prepare(damaged, route, "default", lambda: False)
    else:
        outcome = executor.run(damaged, route, "default")
    assert isinstance(outcome, Outcome)
    assert (outcome.letter, outcome.error_class) == ("D", "InvalidPayload")
    assert outcome.error.startswith("payload: cannot be decoded: ")


def test_a_payload_that_does_not_fit_an_async_handler() -> None:
    """It is refused before there is a call to hand to the loop."""
    app = dtq.App()

    @app.task(name="t")
    async def handler(a: int) -> None: ...

    executor = Executor(app.registry, Settings(), "worker")
    outcome = executor.prepare(claim({"z": 2}), executor.routes["t"], "default", lambda: False)
    assert isinstance(outcome, Outcome)
    assert (outcome.letter, outcome.error_class) == ("D", "InvalidPayload")
    assert outcome.error.startswith("payload.")


class Hostile(Exception):
    """Its own text cannot be had."""

    def __init__(self, what: object) -> None:
        self.what = what

    def __str__(self) -> str:
        if self.what == "raise":
            raise RuntimeError("no text")
        if self.what == "recurse":
            return str(self)
        if self.what == "exit":
            raise SystemExit
        return self.what  # type: ignore[return-value]


@pytest.mark.parametrize("what", ["raise", "recurse", "exit", 5, None])
def test_hostile_exceptions(what: object) -> None:
    """An exception whose text cannot be had is described by its class."""
    outcome = run(raising(Hostile(what)))
    assert outcome.error_class.endswith("Hostile")
    assert "no message" in outcome.error
    assert outcome.letter == "R"


def test_texts_are_bounded_and_valid() -> None:
    """Lone surrogates are replaced, long texts cut, and a traceback begins at the handler."""
    assert message_of(ValueError("a\ud800b")) == "a?b"
    assert len(message_of(ValueError("é" * 5000)).encode()) <= 2000
    outcome = run(raising(ValueError("x")))
    assert isinstance(outcome, Outcome)
    assert "dtq/executor.py" not in outcome.traceback
    assert "raise error" in outcome.traceback
    with pytest.raises(ValueError, match="ü") as caught:
        raise ValueError("ü" * 10_000)
    assert len(traceback_of(caught.value, 512).encode()) <= 512
    assert traceback_of(caught.value, 0) == ""
    assert class_name(dtq.Retry()) == "Retry"
    assert class_name(Hostile(1)) == f"{__name__}.Hostile"


def test_the_context() -> None:
    """A handler that asks for it learns about its attempt."""

    def handler(context: dtq.Context, a: int) -> list[object]:
        return [context.task_id, context.attempt, context.queue, context.worker_id, context.cancelled, a]

    assert run(handler, of=claim({"a": 4}, 2)) == ["id", 2, "default", "worker", False, 4]
