"""The judge of the chaos runs finds what it is there for: made-up ledgers and executions with one fault each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dtq.models import Task, TaskStatus
from tests.chaos.accounts import Act, Ledger, Promise, Run
from tests.chaos.events import Event
from tests.chaos.judge import Judge, Verdict
from tests.chaos.litter import Expected, QueueRemains, recount

PROMISE = Promise(
    n=1, kind="quick", queue="default", id="t", answer="accepted", expect=["succeeded"], kept=True, max_attempts=5,
    asked=1.0, answered=1.1,
)  # fmt: skip
FIRST = Run("t", 1, 1, "quick", pid=11, parent=10, worker_id="w", start=2.0, end=2.1, word="ok")
SECOND = replace(FIRST, attempt=2, pid=12, start=3.0, end=3.1)
KILL = Event(2.05, "kill child SIGKILL", (11,))


def task(status: str = "succeeded", attempt: int = 1, **facts: Any) -> Task:
    """What Redis says of the task."""
    found = Task.__new__(Task)
    defaults: dict[str, Any] = dict.fromkeys(Task.__dataclass_fields__)
    defaults |= {
        "status": TaskStatus(status),
        "attempt": attempt,
        "released": 0,
        "result": {"n": 1, "attempt": attempt},
    }
    for name, value in (defaults | facts).items():
        object.__setattr__(found, name, value)
    return found


def judge(
    *runs: Run,
    promise: Promise = PROMISE,
    events: tuple[Event, ...] = (),
    acts: tuple[Act, ...] = (),
    end: Task | None = None,
) -> Verdict:
    """The verdict on a run with one task."""
    ledger = Ledger([promise], list(acts))
    return Judge(ledger, {"t": list(runs)} if runs else {}, list(events), set(), {"t": end}).judge()


def faults(verdict: Verdict) -> str:
    """All faults as one text."""
    return "; ".join(what for _, what in verdict.faults)


def act(what: str, asked: float, answered: float, answer: str = "done", **facts: Any) -> Act:
    """One act in the ledger."""
    return Act(what, "default", asked, answered, answer, **facts)


def test_a_task_that_ran_once_is_no_fault() -> None:
    assert not judge(FIRST, end=task()).faults


def test_a_lost_task_is_found() -> None:
    """Nothing of it in Redis, with and without an execution, kept or not."""
    assert "lost: Redis knows nothing" in faults(judge())
    assert "lost: Redis knows nothing" in faults(judge(FIRST))
    gone = replace(PROMISE, kept=False)
    assert "no execution of it ended well" in faults(judge(replace(FIRST, word="", end=0.0), promise=gone))
    assert not judge(FIRST, promise=gone).faults


def test_a_purge_excuses_only_what_it_may_have_met() -> None:
    verdict = judge(acts=(act("purge", 1.5, 1.6),))
    assert not verdict.faults
    assert verdict.expected["default"].purged == 1
    assert "lost" in faults(judge(acts=(act("purge", 0.5, 0.6),)))  # was over before the enqueue
    assert "lost" in faults(judge(acts=(replace(act("purge", 1.5, 1.6), queue="other"),)))
    assert "lost" in faults(judge(FIRST, acts=(act("purge", 1.5, 1.6),)))  # it ran after that


def test_a_task_that_never_ends_is_found() -> None:
    assert "stuck: running" in faults(judge(FIRST, end=task("running")))


def test_a_second_run_needs_a_cause() -> None:
    killed = replace(FIRST, word="", end=0.0)
    assert "explained by nothing" in faults(judge(killed, SECOND, end=task(attempt=2)))
    assert not judge(killed, SECOND, end=task(attempt=2), events=(KILL,)).faults
    elsewhere = replace(KILL, pids=(99,))
    assert "explained by nothing" in faults(judge(killed, SECOND, end=task(attempt=2), events=(elsewhere,)))


def test_one_attempt_that_starts_twice_is_found() -> None:
    twice = replace(SECOND, attempt=1)
    assert "attempt 1 started twice" in faults(judge(FIRST, twice, end=task(), events=(KILL,)))


def test_attempts_beside_each_other_are_found() -> None:
    """A kill explains the second run, and not that the first one goes on."""
    assert "beside each other" in faults(judge(replace(FIRST, end=3.5), SECOND, end=task(attempt=2), events=(KILL,)))


def test_a_worker_that_is_cut_off_may_run_beside_its_successor() -> None:
    cut_off = Event(1.9, "black hole for replies of worker0", (10,), until=6.0)
    assert not judge(replace(FIRST, end=3.5), SECOND, end=task(attempt=2), events=(cut_off,)).faults
    drain = Event(3.1, "drain", (10,), until=8.0)
    stopped = replace(FIRST, end=3.5, word="CancelledError")  # by a drain that came after its task was taken away
    assert not judge(stopped, SECOND, end=task(attempt=2), events=(cut_off, drain)).faults
    assert "by nothing" in faults(judge(stopped, SECOND, end=task(attempt=2), events=(drain,)))


def test_more_charged_attempts_than_allowed_are_found() -> None:
    assert "6 charged attempts" in faults(judge(FIRST, end=task("dead_lettered", 6, cause="exit", result=None)))


def test_a_wrong_end_is_found() -> None:
    assert "ended cancelled" in faults(judge(FIRST, end=task("cancelled")))
    cancel = act("cancel", 1.5, 1.6, "cancelled", id="t")
    assert not judge(end=task("cancelled"), acts=(cancel,)).faults
    assert "not cancelled" in faults(judge(FIRST, end=task(), acts=(cancel,)))


def test_a_bulk_cancel_names_its_type_and_time() -> None:
    promise = replace(PROMISE, kind="slow")
    bulk = act("cancel_matching", 1.5, 1.6, kind="slow")
    assert not judge(promise=promise, end=task("cancelled"), acts=(bulk,)).faults
    assert "ended cancelled" in faults(judge(end=task("cancelled"), acts=(bulk,)))  # of another type
    early = replace(bulk, asked=0.5, answered=0.6)
    assert "ended cancelled" in faults(judge(promise=promise, end=task("cancelled"), acts=(early,)))


def test_a_requeue_gives_a_new_life_once() -> None:
    promise = replace(PROMISE, kind="wrong", expect=["dead_lettered"])
    dead = replace(FIRST, kind="wrong", word="PermanentError")
    again = replace(dead, pid=12, start=3.0, end=3.1)
    end = task("dead_lettered", cause="failed", result=None)
    requeue = act("requeue", 2.5, 2.6, id="t")
    assert not judge(dead, again, promise=promise, end=end, acts=(requeue,)).faults
    assert "started twice" in faults(judge(dead, again, promise=promise, end=end))
    third = replace(again, start=4.0, end=4.1)
    assert "started twice" in faults(judge(dead, again, third, promise=promise, end=end, acts=(requeue,)))


def test_a_start_in_a_paused_queue_is_found() -> None:
    paused = (act("pause", 1.2, 1.3), act("resume", 9.0, 9.1))
    late = replace(FIRST, start=4.0, end=4.1)
    assert "after a pause" in faults(judge(late, end=task(), acts=paused))
    assert not judge(late, end=task(), acts=paused, events=(Event(1.0, "stop worker", (10, 11), until=3.9),)).faults
    assert not judge(replace(FIRST, start=9.5, end=9.6), end=task(), acts=paused).faults


def test_a_side_effect_that_was_done_twice_is_found() -> None:
    ledger = Ledger([PROMISE])
    for times, fault in ((1, ""), (2, "was done 2 times")):
        verdict = Judge(ledger, {"t": [FIRST]}, [], set(), {"t": task()}, Counter({"t": times})).judge()
        assert fault in faults(verdict)
        assert bool(verdict.faults) == bool(fault)


def test_what_nobody_enqueued_is_found() -> None:
    stranger = replace(FIRST, id="s", n=2)
    verdict = Judge(Ledger([PROMISE]), {"t": [FIRST], "s": [stranger]}, [], set(), {"t": task(), "s": task()}).judge()
    assert "never enqueued" in faults(verdict)
    refused = replace(PROMISE, answer="refused", id=None)
    assert "the producer was told: refused" in faults(judge(FIRST, promise=refused, end=task()))
    late = replace(refused, kept=False, answered=2.2)  # its first reply was lost, and its repeat found the queue full
    assert not judge(FIRST, promise=late).faults


@pytest.mark.parametrize(
    ("meta", "fault"),
    [
        ({}, ""),
        ({"succeeded": 4}, "the counter succeeded is 4"),
        ({"submitted": 7}, "7 submitted"),
        ({"purged": 2, "cancelled": 2}, "the counter purged is 2"),
        ({"dead_lettered": 3}, "the counter dead_lettered is 3"),
        ({"discarded": 1}, "the counter discarded is 1"),
    ],
)
def test_counters_are_counted_again(meta: dict[str, int], fault: str) -> None:
    """One succeeded with retention 0 among three, one purged, two dead letters of which one was queued again."""
    right = {"submitted": 5, "succeeded": 3, "cancelled": 1, "purged": 1, "dead_lettered": 2, "requeued": 1}
    found = QueueRemains(records=Counter({"succeeded": 2, "dead_lettered": 1}), meta=right | meta)
    wrong = recount(found, Expected(gone=1, purged=1))
    assert fault in "; ".join(wrong)
    assert bool(wrong) == bool(fault)
