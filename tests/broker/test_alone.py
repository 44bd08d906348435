"""What must be alone is passed over by children with others under way, until one has fallen empty (protocol 19)."""

from __future__ import annotations

import pytest

from dtq._core import Claim
from dtq.broker import Broker
from tests.broker.driver import QUEUE, Child, check_invariants, enqueue, live, state
from tests.conftest import WaitUntil


def redelivered(broker: Broker, count: int = 1, **options: int) -> list[str]:
    """Tasks whose child has died with them; they wait on the shelf."""
    ids = enqueue(broker, count, **options)
    child = Child(broker, worker="host-dead0001")
    claims = child.claim(count)
    broker.hand_over(QUEUE, child.consumer, claims[-1].seq + 1, [c.seq for c in claims], "signal SIGKILL")
    return ids


def ids_of(claims: list[Claim]) -> list[str]:
    """Which tasks were claimed."""
    return [claim.id for claim in claims]


def waited(broker: Broker, wait_until: WaitUntil) -> None:
    """What lies on the shelf has been there for so long that a child is told to yield."""

    def look() -> bool:
        (_, _, idle, _), *_ = broker.command("XPENDING", broker.keys.stream(QUEUE, 5), "workers", "-", "+", 1, "shelf")
        return int(idle) >= 500

    wait_until(look, 5, "half a second on the shelf")


def test_a_child_with_others_under_way_leaves_it_and_keeps_the_order_of_the_rest(broker: Broker) -> None:
    """Shelf first, then the stream, each in its order; the one that must be alone goes to whoever is empty."""
    first, last = redelivered(broker, 2)
    back = enqueue(broker, 2)
    giver, busy, empty = Child(broker), Child(broker), Child(broker)
    held = giver.turn(3, beside=True).claims
    assert ids_of(held) == back
    broker.hand_back(QUEUE, giver.consumer, held[0].seq, held[-1].seq + 1)
    new = enqueue(broker, 2)
    assert ids_of(busy.turn(2, beside=True).claims) == back
    assert ids_of(busy.turn(1, beside=True).claims) == new[:1]
    assert ids_of(empty.claim(9)) == [first]
    assert ids_of(busy.turn(9, beside=True).claims) == new[1:]
    assert ids_of(Child(broker).claim(9)) == [last]
    check_invariants(broker)


def test_what_has_to_end_does_not_wait_behind_it(broker: Broker) -> None:
    """Its attempts are used up, so it needs no child: it ends with the turn that claims the task before it."""
    child = Child(broker, worker="host-dead0001")
    first, used_up, last = (enqueue(broker, max_attempts=attempts)[0] for attempts in (2, 1, 2))
    claims = child.claim(3)
    broker.hand_over(QUEUE, child.consumer, claims[-1].seq + 1, [c.seq for c in claims], "signal SIGKILL")
    assert ids_of(Child(broker).claim(1)) == [first]
    assert state(broker, used_up) == "7"
    assert ids_of(Child(broker).claim(9)) == [last]
    assert broker.command("HGET", broker.keys.meta(QUEUE), "shelf") == b""


def test_many_that_wait_cost_a_turn_little_and_keep_nobody_from_newer_work(broker: Broker) -> None:
    """A bounded number is looked at."""
    redelivered(broker, 150)
    (new,) = enqueue(broker)
    busy = Child(broker)
    before = calls(broker, "xrange")
    assert ids_of(busy.turn(200, beside=True).claims) == [new]
    assert calls(broker, "xrange") - before <= 20


def calls(broker: Broker, command: str) -> int:
    """How often the server has run a command."""
    info = broker.transport.client().info("commandstats")
    return int(info.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_after_a_while_one_child_yields_and_the_others_go_on(broker: Broker, wait_until: WaitUntil) -> None:
    """It claims nothing until the task is gone, or it is empty and takes it; nobody else is told meanwhile."""
    (solo,) = redelivered(broker)
    new = enqueue(broker, 6)
    one, other = Child(broker), Child(broker)
    reply = one.turn(1, beside=True)
    assert (ids_of(reply.claims), reply.codes) == (new[:1], b"w")
    waited(broker, wait_until)
    reply = one.turn(1, beside=True)
    assert (reply.claims, reply.codes) == ([], b"y")
    reply = other.turn(1, beside=True)
    assert (ids_of(reply.claims), reply.codes) == (new[1:2], b"w")
    for _ in range(2):
        reply = one.turn(1, beside=True, yields=True)
        assert (reply.claims, reply.codes) == ([], b"y")
    assert ids_of(one.turn(9).claims) == [solo]
    reply = other.turn(1, beside=True, yields=True)
    assert (ids_of(reply.claims), reply.codes) == (new[2:3], b"")


def test_a_child_that_yields_goes_on_when_the_task_is_gone(broker: Broker, wait_until: WaitUntil) -> None:
    """Cancelled while it waits: at once, and what had yielded claims again."""
    (solo,) = redelivered(broker)
    (new,) = enqueue(broker)
    child = Child(broker)
    waited(broker, wait_until)
    assert child.turn(1, beside=True).codes == b"y"
    assert broker.cancel(QUEUE, solo) == "cancelled"
    reply = child.turn(1, beside=True, yields=True)
    assert (ids_of(reply.claims), reply.codes) == ([new], b"")


def test_the_bell_is_passed_on_to_an_empty_child(broker: Broker) -> None:
    """The read of a child with others under way stood first; the one that sleeps behind it is woken all the same."""
    busy, sleeper = Child(broker), Child(broker)
    redelivered(broker)
    got = busy.read()
    assert [task_id for _, _, task_id in got] == [b""]
    reply = busy.turn(1, adopts=got, beside=True)
    assert (reply.claims, reply.codes) == ([], b"w")
    assert [task_id for _, _, task_id in sleeper.read()] == [b""]


@pytest.mark.parametrize("way", ["adopted", "recovered"])
def test_met_in_the_stream_it_goes_to_the_shelf(broker: Broker, way: str) -> None:
    """After a lost group it is read as new."""
    (solo,) = redelivered(broker)
    child, busy = Child(broker), Child(broker)
    (claim,) = child.claim(1)
    broker.hand_back(QUEUE, child.consumer, claim.seq, claim.seq + 1)
    stream = broker.keys.stream(QUEUE, 5)
    broker.command("XGROUP", "DESTROY", stream, "workers")
    broker.command("XGROUP", "CREATE", stream, "workers", "0")
    broker.command("HSET", broker.keys.meta(QUEUE), "shelf", "")
    got = [entry for entry in busy.read() if entry[2]]
    assert [entry[2] for entry in got] == [solo.encode()]
    options: dict[str, object] = {"adopts": got} if way == "adopted" else {"recover": True}
    assert busy.turn(1, beside=True, **options).claims == []
    assert live(broker, solo).startswith("q:2:0:")
    assert ids_of(Child(broker).claim(9)) == [solo]
    check_invariants(broker)
