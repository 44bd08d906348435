"""Cancel: the order of the scripts decides, and no mark outlives its task."""

from __future__ import annotations

import pytest

from dtq.broker import Broker, CancelCounts, CancelNote
from dtq.models import TaskStatus
from tests.broker.driver import QUEUE, WORKER, Child, enqueue, live, state


def test_waiting_tasks_are_cancelled_at_once_and_never_start(broker: Broker) -> None:
    """pending, queued and retrying: entry or schedule place goes with it (spec §5)."""
    (retrying,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0], "R", delay_ms=3_600_000)
    (pending,) = enqueue(broker, place="w3600000;")
    (queued,) = enqueue(broker)
    for task in (retrying, pending, queued):
        assert broker.cancel(QUEUE, task) == "cancelled"
        assert state(broker, task) == "8"
        assert broker.cancel(QUEUE, task) == "terminal:cancelled"
    assert child.claim(10) == []
    assert broker.command("ZCARD", broker.keys.schedule(QUEUE)) == 0


def test_a_running_task_is_asked_and_ends_cancelled_whatever_its_outcome(broker: Broker) -> None:
    """Flag first, settle later: cancelled, its result discarded (spec §5)."""
    for letter in "SRFDCL":
        (task,) = enqueue(broker)
        child = Child(broker)
        (claim,) = child.claim()
        assert broker.cancel(QUEUE, task) == "requested"
        assert broker.cancel(QUEUE, task) == "requested"
        assert child.settle(claim, letter) == "c"
        assert state(broker, task) == "8"


def test_settled_first_it_stays_what_it_became(broker: Broker) -> None:
    """The order of the scripts decides."""
    (task,) = enqueue(broker)
    child = Child(broker)
    child.settle(child.claim()[0])
    assert broker.cancel(QUEUE, task) == "terminal:succeeded"
    assert state(broker, task) == "5"


def test_a_delivered_entry_is_flagged_and_its_adoption_cancels_it(broker: Broker) -> None:
    """Read but not adopted: 409, and it never starts (protocol 10)."""
    (task,) = enqueue(broker)
    child = Child(broker)
    got = child.read()
    assert broker.cancel(QUEUE, task) == "requested"
    assert child.claim(1, adopts=got) == []
    assert state(broker, task) == "8"


def test_an_unknown_id_is_unknown_and_leaves_no_mark(broker: Broker) -> None:
    """A later task with this id runs (S062)."""
    assert broker.cancel(QUEUE, "never-used") == "unknown"
    enqueue(broker, ids=["never-used"])
    child = Child(broker)
    assert child.settle(child.claim()[0]) == "d"
    assert state(broker, "never-used") == "5"


def test_a_cancelled_task_keeps_its_payload_for_a_minute_at_least(broker: Broker) -> None:
    """Whatever its retention, a repeated enqueue must find it (protocol 11)."""
    (task,) = enqueue(broker, retention_ms=0)
    broker.cancel(QUEUE, task)
    assert 59_000 < broker.command("PTTL", broker.keys.task(QUEUE, task)) <= 60_000


def test_a_redelivered_task_that_waits_is_cancelled_at_once(broker: Broker) -> None:
    """It says running, but its worker is gone: nobody is to be asked, and its old claim is void."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.entry], "signal SIGKILL", ended=False)
    assert broker.cancel(QUEUE, task) == "cancelled"
    assert child.settle(claim) == "s"
    assert Child(broker).claim() == []
    assert state(broker, task) == "8"


def test_the_death_of_its_child_ends_a_cancelled_task(broker: Broker) -> None:
    """Hand-over and reaping end it at once: no later claim is needed."""
    first, second = enqueue(broker, 2)
    child, lost = Child(broker), Child(broker, worker="host-dead0003")
    (claim,) = child.claim()
    lost.claim()
    for task in (first, second):
        assert broker.cancel(QUEUE, task) == "requested"
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.entry], "signal SIGKILL")
    assert state(broker, first) == "8"
    broker.reap(QUEUE)
    assert state(broker, second) == "8"
    assert broker.command("XLEN", broker.keys.stream(QUEUE, 5)) == 0


def test_a_lost_claim_of_a_cancelled_task_is_not_returned(broker: Broker) -> None:
    """The reply with the claim is lost, then the task is cancelled: recovery ends it, its handler never starts."""
    (task,) = enqueue(broker)
    child = Child(broker)
    child.claim()
    assert broker.cancel(QUEUE, task) == "requested"
    assert child.claim(1, recover=True, first_seq=1000) == []
    assert state(broker, task) == "8"


def test_the_worker_is_told_and_finds_the_flag(broker: Broker) -> None:
    """Claim and number by pub/sub; the flag in the live value, found by the entry alone."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    (found,) = broker.flags(QUEUE, [(5, claim.entry, b"")])
    assert found == (task.encode(), live(broker, task).encode())
    notes = broker.hear(WORKER)
    assert broker.cancel(QUEUE, task) == "requested"
    note = None
    while note is None:
        note = notes.get(5)
    assert note == CancelNote(child.consumer, claim.seq)
    notes.close()
    (found,) = broker.flags(QUEUE, [(5, claim.entry, task.encode())])
    assert found[1] == claim.token + b"c"
    assert child.settle(claim) == "c"
    assert broker.flags(QUEUE, [(5, claim.entry, b""), (5, claim.entry, task.encode())]) == [
        (b"", b""),
        (task.encode(), b""),
    ]


def test_a_forbidden_channel_keeps_no_cancel_from_its_flag(broker: Broker) -> None:
    """A user who may not publish cancels all the same: the worker looks by itself."""
    (task,) = enqueue(broker)
    child = Child(broker)
    (claim,) = child.claim()
    client = broker.transport.client()
    client.execute_command("ACL", "SETUSER", "default", "resetchannels")
    try:
        assert broker.cancel(QUEUE, task) == "requested"
    finally:
        client.execute_command("ACL", "SETUSER", "default", "allchannels")
        client.close()
    assert child.settle(claim) == "c"


def crowd(broker: Broker) -> dict[str, list[str]]:
    """Tasks of two types in each status that can be cancelled."""
    made: dict[str, list[str]] = {}
    child = Child(broker)
    for kind in ("noop", "other"):
        retrying, running = enqueue(broker, 2, task_type=kind), []
        for claim in child.claim(10):
            child.end(claim, "R", delay_ms=3_600_000)
        child.turn(0)
        running = enqueue(broker, 2, task_type=kind)
        assert len(child.claim(2)) == 2
        made[f"retrying {kind}"], made[f"running {kind}"] = retrying, running
        made[f"pending {kind}"] = enqueue(broker, 120, place="w3600000;", task_type=kind)
    for kind in ("noop", "other"):
        made[f"queued {kind}"] = enqueue(broker, 450, task_type=kind, band=3)
    return made


@pytest.mark.parametrize("task_type", [None, "other"])
@pytest.mark.parametrize("statuses", [("queued",), ("pending", "retrying"), ("running",), None])
def test_cancel_by_filter(broker: Broker, task_type: str | None, statuses: tuple[str, ...] | None) -> None:
    """Exactly those of the type and the statuses, counted; a dry run says the same and changes nothing."""
    made = crowd(broker)
    options = {} if statuses is None else {"statuses": [TaskStatus(status) for status in statuses]}
    wanted = [
        task
        for name, tasks in made.items()
        for task in tasks
        if name.split()[0] in (statuses or ("pending", "queued", "retrying")) and task_type in (None, name.split()[1])
    ]
    before = {task: state(broker, task) for tasks in made.values() for task in tasks}
    expected = CancelCounts(requested=len(wanted)) if statuses == ("running",) else CancelCounts(cancelled=len(wanted))
    assert broker.cancel_matching(QUEUE, task_type=task_type, dry_run=True, **options) == expected
    assert {task: state(broker, task) for task in before} == before
    assert not [task for task in before if live(broker, task).endswith("c")]
    assert broker.cancel_matching(QUEUE, task_type=task_type, **options) == expected
    for task, status in before.items():
        ended = task in wanted and status != "3"
        assert state(broker, task) == ("8" if ended else status)
        assert live(broker, task).endswith("c") == (task in wanted and status == "3")


def test_a_filter_names_statuses_that_can_be_cancelled(broker: Broker) -> None:
    """Nothing is cancelled by a filter that asks for ended tasks."""
    with pytest.raises(ValueError, match="a task that is failed has ended"):
        broker.cancel_matching(QUEUE, statuses=[TaskStatus.FAILED])


def test_ended_tasks_stay_what_they_are(broker: Broker) -> None:
    """Every terminal status, cancelled twice: the answer says so, nothing changes (S067)."""
    child = Child(broker)
    ended: dict[str, str] = {}
    for letter, name in (("S", "succeeded"), ("D", "dead_lettered"), ("F", "failed"), ("C", "cancelled")):
        tasks = enqueue(broker, 50, dead_letter=letter != "F")
        for claim in child.claim(50):
            child.end(claim, letter)
        child.turn(0)
        ended |= dict.fromkeys(tasks, name)
    expired = enqueue(broker, 50, place="t1;")
    client = broker.transport.client()
    begun = client.time()
    while client.time() <= (begun[0], begun[1] + 2000):
        pass
    client.close()
    assert child.claim(50) == []
    ended |= dict.fromkeys(expired, "expired")
    before = broker.inspect(QUEUE, list(ended))
    for _ in range(2):
        assert broker.cancel_many(QUEUE, list(ended)) == [f"terminal:{name}" for name in ended.values()]
    assert broker.inspect(QUEUE, list(ended)) == before
