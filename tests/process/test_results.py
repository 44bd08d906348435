"""What handlers give and raise, however odd: kept exactly or refused clearly, once, and the child goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.process.harness import Stage, WorkerProcess, now

APP = "tests.process.oddities:app"


@pytest.fixture(scope="module")
def worker(lasting_stage: Stage) -> WorkerProcess:
    """One child for the cases of this file: it must outlive them all."""
    return lasting_stage.worker(app=APP, children=1)


@pytest.fixture
def same_child(lasting_stage: Stage, worker: WorkerProcess) -> Iterator[Stage]:
    """The stage with that child, which goes on afterwards as if nothing had been."""
    yield lasting_stage
    assert lasting_stage.ended(lasting_stage.app.enqueue("noop"), 2).status == "succeeded"
    assert worker.process.poll() is None
    assert "died" not in worker.log


@pytest.mark.parametrize("kind", ["give", "async_give"])
@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("set", "set"),
        ("bytes", "bytes"),
        ("object", "object"),
        ("class", "type"),
        ("file", "TextIOWrapper"),
        ("endless", "nested"),
        ("deep", "nested"),
        ("nan", "nan"),
        ("infinity", "result[1].a"),
        ("decimal", "Decimal"),
        ("surrogate", "surrogate"),
        ("number keys", "int"),
        ("huge", "2**64-1"),
    ],
)
def test_a_result_that_is_no_json_fails_once(same_child: Stage, kind: str, what: str, word: str) -> None:
    """No retry would change it; the error says what is wrong, and where (S085)."""
    name = f"{kind}-{what}".replace(" ", "-")
    task = same_child.ended(same_child.app.enqueue(kind, {"name": name, "what": what}, max_attempts=4))
    assert (task.status, task.cause, task.error_class) == ("dead_lettered", "invalid result", "InvalidResult")
    assert task.error is not None
    assert task.error.startswith("result")
    assert word.lower() in task.error.lower()
    assert len(same_child.effects("start", name)) == 1


@pytest.mark.parametrize("kind", ["give", "async_give"])
@pytest.mark.parametrize(
    ("what", "result"),
    [
        ("tuple", [1, [2, []]]),
        ("empty", [[], {}, "", None, False, 0, -0.0, 1.0]),
        ("whole", [2**53 + 1, 2**63, 2**64 - 1, -(2**63)]),
    ],
)
def test_a_result_comes_back_exactly(same_child: Stage, kind: str, what: str, result: object) -> None:
    """Tuples become lists, nothing else changes (S075, S076)."""
    handle = same_child.app.enqueue(kind, {"name": "t", "what": what})
    assert repr(handle.result(timeout=10)) == repr(result)


@pytest.mark.parametrize(
    ("limit", "size", "kept"),
    [
        (262_144, 262_144, True),
        (262_144, 262_145, False),
        (262_144, 20_000_000, False),
        (100, 100, True),
        (100, 101, False),
    ],
)
def test_large_results_are_kept_or_refused_with_their_size(
    open_stage: Callable[..., Stage], limit: int, size: int, kept: bool
) -> None:
    """To the byte; a refusal names size and limit, happens once, and leaves the child free (S054)."""
    stage = open_stage(result_max_bytes=limit)
    worker = stage.worker(app=APP, children=1)
    for _ in range(3):
        at = now()
        handle = stage.app.enqueue("give_text", {"length": size}, max_attempts=3)
        task = stage.ended(handle, 5)
        assert now() - at < 5
        if kept:
            assert handle.result(timeout=1) == "x" * (size - 2)
        else:
            assert (task.status, task.error_class, task.attempt) == ("dead_lettered", "ResultTooLarge", 1)
            assert task.error is not None
            assert str(limit) in task.error
            assert str(size) in task.error
    assert len(worker.ready_pids()) == 1


def test_printing_much_blocks_nobody(same_child: Stage) -> None:
    """Megabytes on both outputs (S054)."""
    for _ in range(3):
        assert same_child.ended(same_child.app.enqueue("print_much", {"kibibytes": 5000}), 5).status == "succeeded"


@pytest.mark.parametrize("kind", ["throw", "async_throw"])
@pytest.mark.parametrize(
    ("what", "name", "text"),
    [
        ("keywords", "NeedsKeywords", "code 4"),
        ("things", "HoldsThings", "holds things"),
        ("not reduced", "NotReduced", "as it is"),
        ("inner", "Inner", "from inside"),
        ("bad words", "BadWords", "RuntimeError"),
        ("no words", "NoWords", "TypeError"),
        ("endless words", "EndlessWords", "RecursionError"),
        ("long", "ValueError", "éé"),
        ("lines", "ValueError", "one\ntwo"),
        ("surrogate", "ValueError", "a?"),
        ("chain", "NotReduced", "the second"),
        ("group", "ExceptionGroup", "several"),
        ("exit 0", "SystemExit", "0"),
        ("exit 3", "SystemExit", "3"),
        ("exit text", "SystemExit", "text"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("generator", "GeneratorExit", ""),
        ("base", "Base", "own"),
        ("stop", "Stop", ""),
        ("stop async", "StopAsyncIteration", ""),
        ("async cancelled", "CancelledError", "by itself"),
        ("memory", "MemoryError", ""),
        ("recursion", "RecursionError", "deep"),
    ],
)
def test_any_exception_is_just_a_failure(
    same_child: Stage, worker: WorkerProcess, kind: str, what: str, name: str, text: str
) -> None:
    """Retried as all are, then dead-lettered with class and text; the child is the same as before (S082-S084)."""
    if (kind, what) == ("async_throw", "stop"):
        name = "RuntimeError"  # Python itself turns it into one where it leaves a coroutine
    label = f"{kind}-{what}".replace(" ", "-")
    task = same_child.ended(same_child.app.enqueue(kind, {"name": label, "what": what}, max_attempts=2))
    assert (task.status, task.cause, task.attempt) == ("dead_lettered", "error", 2)
    assert name in (task.error_class or "")
    assert text in (task.error or "")
    assert len((task.error or "").encode()) <= 2000
    assert len(same_child.effects("start", label)) == 2
    told = [line for line in worker.log.splitlines() if task.id in line]
    assert len(told) == 2, "one line for each attempt"
