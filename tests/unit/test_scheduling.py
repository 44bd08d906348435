"""dtq.worker.processes: the scheduling of an idle and of a busy thread, where it may and may not be changed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from dtq.worker.processes import Scheduling

NO_PRIORITY = os.sched_param(0)


def in_a_thread(work: Callable[[], object]) -> object:
    """What work returns in a thread of its own, whose policy ends with it."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def policies() -> list[int]:
    """As it is made, while it is idle, and busy again."""
    scheduling = Scheduling()
    seen = [os.sched_getscheduler(0)]
    for change in (scheduling.idle, scheduling.busy):
        change()
        seen.append(os.sched_getscheduler(0))
    return seen


def test_batch_work_while_it_is_busy() -> None:
    assert in_a_thread(policies) == [os.SCHED_BATCH, os.SCHED_OTHER, os.SCHED_BATCH]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler"])
def test_where_the_system_refuses_nothing_happens(call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """musl answers that it has no such call, a sandbox that it is not allowed: a child works all the same."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    def work() -> None:
        scheduling = Scheduling()
        scheduling.idle()
        scheduling.busy()

    monkeypatch.setattr(os, call, refuse)
    assert in_a_thread(work) is None


def test_a_policy_that_was_chosen_meanwhile_stays() -> None:
    """By chrt on the running child, or by a handler."""

    def work() -> list[int]:
        scheduling = Scheduling()
        os.sched_setscheduler(0, os.SCHED_IDLE, NO_PRIORITY)
        seen = []
        for change in (scheduling.idle, scheduling.busy):
            change()
            seen.append(os.sched_getscheduler(0))
        return seen

    assert in_a_thread(work) == [os.SCHED_IDLE, os.SCHED_IDLE]
