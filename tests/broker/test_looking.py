"""Looks at many queues: they say which may bring work, and rounds over them miss none and favour none."""

from __future__ import annotations

import math

import pytest

from dtq.broker import Broker
from dtq.errors import BrokerUnavailable
from dtq.keys import BANDS, GROUP, HOME_BAND, SHELF
from dtq.worker.rotation import Rotation
from dtq.worker.rounds import MOST_STREAMS, SHORTEST_MS, Rounds
from dtq.worker.waiter import BLOCK_MS, PAUSED_MS
from tests.broker.driver import QUEUE, Child, enqueue
from tests.broker.test_failover import as_a_replica

MANY = [f"q{number:02}" for number in range(30)]


def prepared(broker: Broker, queues: list[str]) -> list[str]:
    for queue in queues:
        broker.prepare_queue(queue)
    return queues


def test_a_queue_is_ready_while_a_claim_may_find_something(broker: Broker) -> None:
    """Queued, on the shelf after a crash, handed back: ready. Running, ended, nothing ever: not."""
    (nothing,) = broker.look([QUEUE])
    assert (nothing.ready, nothing.bands) == (False, (HOME_BAND,))
    enqueue(broker, band=7)
    (queued,) = broker.look([QUEUE])
    assert (queued.ready, queued.bands) == (True, (7, HOME_BAND))
    child = Child(broker)
    (claim,) = child.claim()
    assert not broker.look([QUEUE])[0].ready
    broker.hand_over(QUEUE, child.consumer, claim.seq + 1, [claim.seq], "signal SIGKILL")
    assert broker.look([QUEUE])[0].ready  # running by its state, and on the shelf
    other = Child(broker)
    (again,) = other.claim()
    other.settle(again, want=1)  # sees the shelf empty
    assert not broker.look([QUEUE])[0].ready


def test_which_of_many_queues_hold_tasks(broker: Broker) -> None:
    """None, some, all; running ones count."""
    queues = prepared(broker, MANY[:3])
    assert broker.occupied([]) == broker.occupied(queues) == []
    enqueue(broker, queue=queues[1])
    Child(broker, queue=queues[1]).claim()
    assert broker.occupied(queues) == [queues[1]]
    for queue in (queues[0], queues[2]):
        enqueue(broker, queue=queue)
    assert broker.occupied(queues) == queues
    assert broker.scheduled(queues) == []
    enqueue(broker, queue=queues[2], place="w60000;")
    assert broker.scheduled(queues) == [queues[2]]


def test_a_damaged_queue_is_looked_into(broker: Broker) -> None:
    """Its turn finds the damage and sets it aside; the others are seen as they are."""
    queues = prepared(broker, MANY[:2])
    broker.command("SET", broker.keys.live(queues[0]), "nonsense")
    looks = broker.look(queues)
    assert [look.ready for look in looks] == [True, False]
    assert looks[0].bands == tuple(reversed(BANDS))
    broker.command("SET", broker.keys.meta(queues[0]), "nonsense")
    assert broker.register(queues, "someone.0.1") == [tuple(reversed(BANDS)), (HOME_BAND,)]


@pytest.mark.parametrize("field", ["running", "bands"])
def test_a_queue_whose_figures_are_nonsense_is_looked_into(broker: Broker, field: str) -> None:
    """Its keys have their types, but a field holds no number: the child that looks lives on."""
    queues = prepared(broker, MANY[:2])
    enqueue(broker, queue=queues[0])
    broker.command("HSET", broker.keys.meta(queues[0]), field, "nonsense")
    looks = broker.look(queues)
    assert [look.ready for look in looks] == [True, False]
    assert HOME_BAND in looks[0].bands
    assert HOME_BAND in broker.register(queues, "someone.0.1")[0]


def test_a_look_at_a_server_that_refuses_everything(broker: Broker) -> None:
    """A fail-over: nothing is concluded from it, and the next look stands on a new connection."""
    with as_a_replica(broker), pytest.raises(BrokerUnavailable):
        broker.register([QUEUE], "someone.0.1")
    assert broker.register([QUEUE], "someone.0.1") == [(HOME_BAND,)]


def test_the_first_use_of_a_band_rings_once_for_each_consumer(broker: Broker) -> None:
    """At home, and never again (protocol 21)."""
    broker.register([QUEUE], "host-a.0.1")
    broker.register([QUEUE], "host-b.0.1")
    home = broker.keys.stream(QUEUE, HOME_BAND)
    enqueue(broker, 3, band=8)
    assert broker.command("XLEN", home) == 2
    assert broker.command("HGET", broker.keys.meta(QUEUE), "bands") == b"85"
    enqueue(broker, band=HOME_BAND)
    enqueue(broker, band=8)
    assert broker.command("XLEN", home) == 3


def test_turns_go_to_ready_queues_in_their_order(broker: Broker) -> None:
    """With those that need one, and nothing else, however many there are."""
    rounds = Rounds(broker, "host-a.0.1", prepared(broker, MANY))
    assert list(rounds.turns([])) == [0]  # the first look for strays
    for number in (2, 17, 29):
        enqueue(broker, queue=MANY[number])
    assert list(rounds.turns([])) == [2, 17, 29]
    rounds._quiet_until = 0.0
    assert list(rounds.turns([3, 17, 20])) == [2, 3, 17, 20, 29]


def test_a_turn_that_is_due_spares_a_look_at_what_was_empty_a_moment_ago(broker: Broker) -> None:
    """At queues before it only; and a child that would go idle looks at all of them."""
    rounds = Rounds(broker, "host-a.0.1", prepared(broker, MANY))
    assert list(rounds.turns([17])) == [17, 0], "nothing but a look for strays"
    rounds._quiet_until = math.inf
    for number in (2, 29):
        enqueue(broker, queue=MANY[number])
    assert list(rounds.turns([17])) == [17, 29]
    assert list(rounds.turns([18])) == [2, 18, 29], "it was not looked at all those before it"
    assert list(rounds.turns([])) == [2, 29]
    rounds._quiet_until = 0.0
    assert list(rounds.turns([17])) == [2, 17, 29]


def test_looks_for_strays_reach_every_queue(broker: Broker) -> None:
    """Those that hold tasks first, some at a time; of the others one at a time."""
    rounds = Rounds(broker, "host-a.0.1", prepared(broker, MANY))
    for queue in MANY[5:25]:
        enqueue(broker, queue=queue)
        assert Child(broker, queue=queue).claim()
    seen: list[list[int]] = []
    for _ in range(len(MANY)):
        rounds._strays_at = 0.0
        seen.append(list(rounds.turns([])))
    assert seen[0] == [0, *range(5, 21)]
    assert seen[1] == [1, *range(5, 17), *range(21, 25)]
    assert {index for each in seen for index in each} == set(range(len(MANY)))
    assert list(rounds.turns([])) == []  # not again at once


def test_upkeep_reaches_every_queue(broker: Broker) -> None:
    """As above, for sweeps and the reaper."""
    rotation = Rotation(broker)
    assert rotation.choose([QUEUE]) == [QUEUE]
    queues = prepared(broker, MANY[:4])
    enqueue(broker, queue=queues[2])
    chosen = [rotation.choose(queues) for _ in range(4)]
    assert chosen == [[queues[0], queues[2]], [queues[1], queues[2]], [queues[2]], [queues[2], queues[3]]]


def test_a_read_waits_on_bands_in_use_of_queues_that_are_not_paused(broker: Broker) -> None:
    """The highest first; a bell makes it look again."""
    queues = prepared(broker, MANY[:3])
    rounds = Rounds(broker, "host-a.0.1", queues)
    enqueue(broker, queue=queues[1], band=8)
    q0, q1, q2 = queues
    assert rounds.streams([False] * 3) == (((q0, 5), (q1, 8), (q1, 5), (q2, 5)), BLOCK_MS)
    assert rounds.streams([False, True, False]) == (((q0, 5), (q2, 5)), PAUSED_MS)
    enqueue(broker, queue=q2, band=1)
    assert rounds.streams([False] * 3)[0][-1] == (q2, 5)
    assert rounds.hear([(q2, 5, b"1-1", b""), (q0, 5, b"1-2", b"task")]) == {
        2: [(5, b"1-1", b"")],
        0: [(5, b"1-2", b"task")],
    }
    assert rounds.streams([False] * 3)[0][-2:] == ((q2, 5), (q2, 1))


def test_reads_go_round_over_more_streams_than_one_takes(broker: Broker) -> None:
    """Each stream is waited on, the same number of times, by shorter reads."""
    queues = [f"q{number:03}" for number in range(130)]
    rounds = Rounds(broker, "host-a.0.1", queues)
    rounds.forget()
    for queue in queues:
        broker.command("HSET", broker.keys.meta(queue), "bands", "9876543210")
    reads = [rounds.streams([False] * len(queues)) for _ in range(4)]
    assert [len(streams) for streams, _ in reads] == [MOST_STREAMS, 276] * 2
    assert len({*reads[0][0], *reads[1][0]}) == 1300
    assert all(SHORTEST_MS <= block_ms <= BLOCK_MS // 2 for _, block_ms in reads)


def test_bells_at_home_leave_no_trace(broker: Broker) -> None:
    """Read, adopted, deleted; nothing of them stays pending."""
    child = Child(broker)
    broker.register([QUEUE], child.consumer)
    enqueue(broker, band=9)
    bells = child.read()
    assert {band for band, _, _ in bells} == {9, HOME_BAND}
    (claim,) = child.claim(5, adopts=bells)
    child.settle(claim)
    for band in BANDS:
        assert broker.command("XLEN", broker.keys.stream(QUEUE, band)) == 0
        assert broker.command("XPENDING", broker.keys.stream(QUEUE, band), GROUP)[0] == 0
    assert SHELF not in broker.consumers(QUEUE)
