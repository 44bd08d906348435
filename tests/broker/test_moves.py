"""All 81 pairs of statuses: what `transition` refuses, the scripts refuse too, against a real server."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from dtq._core import Claim
from dtq.broker import Broker
from dtq.errors import IllegalTransition
from dtq.models import STATUSES, VALID_TRANSITIONS, TaskStatus, transition
from tests.broker.driver import QUEUE, Child, enqueue, state

S = TaskStatus
PAIRS = list(itertools.product(STATUSES, STATUSES))


class Story:
    """One task brought to a status, with whatever tried to move it on the way still at hand."""

    def __init__(self, broker: Broker, at: TaskStatus, overdue: bool) -> None:
        self.broker = broker
        self.child = Child(broker)
        self.claim: Claim | None = None
        place = "t1;" if overdue or at is S.EXPIRED else ""
        scheduled = at is S.PENDING
        self.id = enqueue(broker, place=place + ("w3600000;" if scheduled else ""), dead_letter=at is not S.FAILED)[0]
        if at in (S.PENDING, S.QUEUED):
            return
        if at is S.CANCELLED:
            assert broker.cancel(QUEUE, self.id) == "cancelled"
            return
        if at is S.EXPIRED:
            self.wait_until_overdue()
            assert not self.child.claim()
            return
        (self.claim,) = self.child.claim()
        if at is S.RUNNING:
            return
        letter = {S.SUCCEEDED: "S", S.RETRYING: "R", S.FAILED: "F", S.DEAD_LETTERED: "D"}[at]
        assert self.child.settle(self.claim, letter, delay_ms=3_600_000) == "d"

    def wait_until_overdue(self) -> None:
        """Let Redis' clock pass the ttl of 1 ms."""
        client = self.broker.transport.client()
        start = client.time()
        while client.time()[1] // 2000 == start[1] // 2000 and client.time()[0] == start[0]:
            pass
        client.close()

    def due_now(self) -> None:
        """Let its time come, if it waits in the schedule."""
        key = self.broker.keys.schedule(QUEUE)
        self.broker.command("ZADD", key, "XX", 1, self.id)

    def settle(self, letter: str) -> None:
        """Settle with the claim at hand, or with a made-up one where there is none."""
        claim = self.claim
        if claim is None:
            other = Child(self.broker)
            enqueue(self.broker, ids=["donor"], retention_ms=0, band=9)
            (claim,) = other.claim(1)
            # the id of the task in question with a token that was never its own
            from dtq._core import parse_claims

            reply = [b"", b"1", claim.entry, self.id.encode(), claim.token, claim.band, claim.envelope]
            forged = parse_claims(reply).claims[0]
            self.child.settle(forged, letter)
            other.settle(claim, "S")
            return
        self.child.settle(claim, letter)


def _attempt(target: TaskStatus) -> Callable[[Story], object]:
    """The script that would make the move to `target`, called whatever the task's status."""
    if target is S.PENDING:
        return lambda story: enqueue(story.broker, ids=[story.id], place="w3600000;g;", any=True)
    if target is S.QUEUED:

        def promote(story: Story) -> None:
            story.due_now()
            story.broker.promote(QUEUE)

        return promote
    if target is S.RUNNING:
        return lambda story: story.child.claim(10)
    if target is S.CANCELLED:
        return lambda story: (story.broker.cancel(QUEUE, story.id), story.settle("C") if story.claim else None)
    if target is S.EXPIRED:

        def expire(story: Story) -> None:
            story.wait_until_overdue()
            if story.claim is None:  # a due retrying task would move by way of queued: a test of its own below
                story.due_now()
            if story.broker.command("ZSCORE", story.broker.keys.schedule(QUEUE), story.id):
                story.broker.promote(QUEUE)
            else:
                story.child.claim(10)

        return expire
    letters = {S.SUCCEEDED: "S", S.RETRYING: "R", S.FAILED: "F", S.DEAD_LETTERED: "D"}
    return lambda story: story.settle(letters[target])


@pytest.mark.parametrize(("current", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_scripts_make_legal_moves_and_refuse_the_others(
    broker: Broker, current: TaskStatus, target: TaskStatus
) -> None:
    """A legal move happens; an illegal one leaves the status as it was (spec §1)."""
    story = Story(broker, current, overdue=target is S.EXPIRED and current in (S.PENDING, S.QUEUED))
    assert state(broker, story.id) == str(current.code)
    _attempt(target)(story)
    after = S.from_code(int(state(broker, story.id)))
    if target in VALID_TRANSITIONS[current]:
        assert after is target
        assert transition(current, target) is target
    else:
        assert after is current
        with pytest.raises(IllegalTransition):
            transition(current, target)
    if story.claim is not None and after is S.RUNNING:
        story.child.settle(story.claim, "S")


def test_a_due_retrying_task_past_its_ttl_expires_by_way_of_queued(broker: Broker) -> None:
    """retrying -> queued -> expired in one script: two legal moves (spec §1)."""
    child = Child(broker)
    story_id = enqueue(broker, place="t50;")[0]
    (claim,) = child.claim()
    assert child.settle(claim, "R", delay_ms=60) == "d"
    while broker.promote(QUEUE)[0] == 0:
        pass
    assert state(broker, story_id) == str(S.EXPIRED.code)
