"""The first half of the state machine: producers and children, one script at a time on a real server.

The rules say who may do what; `lifecycle.Lifecycle` judges what came of it. `pick` chooses among what there is.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from redis.exceptions import ResponseError

from dtq._core import Claim, parse_claims
from dtq.broker import Broker
from dtq.keys import GROUP
from dtq.scripts import script
from dtq.settings import Settings
from tests.broker.driver import QUEUE
from tests.model.actors import LETTERS, Death, Ended, Given, LateTurn, SimulatedChild, SimulatedWorker
from tests.model.checking import check
from tests.model.lifecycle import Lifecycle, Moves, Settled
from tests.model.observing import BANDS_IN_USE, Seen, look
from tests.model.producer import DAY_MS, Producer, offers, plain

LOSSES = st.sampled_from(["", "", "", "", "reply", "late"])
PICK = st.integers(0, 5)
WAYS = st.tuples(st.sampled_from(LETTERS + "SSRR"), st.sampled_from([True, True, False]))  # letter, charged


class ChildrenAndProducers(RuleBasedStateMachine):
    """Two workers and their children on one queue; the server's url is given by the test."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        # A lease outlives any example: it runs out only where a rule takes it away.
        self.broker = Broker(Settings(redis_url=self.url, lease_s=3600.0, renew_s=600.0))
        self.client: Any = self.broker.transport.client()
        self.client.flushall()
        self.broker.prepare_queue(QUEUE)
        self.model = Lifecycle()
        self.producer = Producer(self.broker, self.model)
        self.workers = [SimulatedWorker(self.broker) for _ in range(2)]
        self.children = [SimulatedChild.of(worker) for worker in (*self.workers, self.workers[0])]
        self.dead: list[Death] = []
        self.late: list[LateTurn] = []
        self.given: list[Given] = []
        self.given_before: list[Given] = []
        self.paused: set[str] = set()  # task types, and "" for the queue
        self.grouped = True  # until the groups are lost and nobody has prepared the queue again
        self.regrouped = False  # whether they ever were
        self.seen: Seen = look(self.broker, self.client)

    # --- producers

    @initialize(first=st.lists(offers, min_size=2, max_size=5))
    def begin(self, first: list[dict[str, Any]]) -> None:
        """Some tasks wait when the workers come."""
        for offer in first:
            self.enqueue(offer, False)

    @rule(offer=offers, lost=st.booleans(), capped=st.sampled_from([False, False, True]))
    def enqueue(self, offer: dict[str, Any], lost: bool, capped: bool = False) -> None:
        """Offer a task; where the reply is lost, the very same chunk again."""
        made = self.producer.make(offer)
        before = self.seen
        self.producer.send(made, False, before, capped)
        self._look("enqueue")
        if lost:
            self.producer.send(made, True, self.seen, capped)
            self._look("enqueue")

    @rule(count=st.integers(1, 4), band=st.sampled_from(BANDS_IN_USE), kept=st.booleans(), attempts=st.integers(1, 3))
    def enqueue_plain(self, count: int, band: int, kept: bool, attempts: int) -> None:
        """Offer tasks without options."""
        self.enqueue(plain(band=band, count=count, retention_ms=DAY_MS * kept, max_attempts=attempts), False)

    @precondition(lambda self: any(life.ended for life in self.model.lives.values()))
    @rule(pick=PICK)
    def enqueue_late_copy(self, pick: int) -> None:
        """A chunk is repeated long after: what stood counts as accepted (a task gone without a key is the hole)."""
        ended = [life for life in self.model.lives.values() if life.ended]
        gone = [life for life in ended if life.offer.key and self.seen.status(life.offer.id) is None]
        ended = gone or ended
        life = ended[pick % len(ended)]
        keyed = self.model.idempotency.get(life.offer.key, ("", "", ""))[1] == life.offer.id
        if self.seen.status(life.offer.id) is not None or keyed:
            self.producer.send(life.offer, True, self.seen)
            self._look("enqueue")

    @precondition(lambda self: self.model.lives)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        """Cancel a task, an ended one where there is no other."""
        waiting = [task_id for task_id, life in self.model.lives.items() if not life.ended] or list(self.model.lives)
        task_id = waiting[pick % len(waiting)]
        expected = self.model.cancelled(task_id, self.seen)
        assert self.broker.cancel(QUEUE, task_id) == expected
        if expected == "requested":
            self.model.lives[task_id].asked = True
        self._look("cancel" if expected == "cancelled" else "nothing")

    # --- children

    @rule(pick=PICK, want=st.integers(0, 4), idle=st.booleans(), lost=LOSSES)
    def turn(self, pick: int, want: int, idle: bool, lost: str) -> None:
        """Settle what has ended, adopt what was read, claim. lost: the reply is, or the command itself comes late."""
        child = self.children[pick % len(self.children)]
        self._turn(child, want, idle, lost)

    @precondition(lambda self: any(child.may_start and not child.holds for child in self.children))
    @rule(
        pick=PICK, want=st.integers(1, 4), left=st.integers(0, 2), ways=st.lists(WAYS, min_size=1, max_size=3),
        settles=st.sampled_from([True, True, False]), lost=LOSSES,
    )  # fmt: skip
    def batch(self, pick: int, want: int, left: int, ways: list[tuple[str, bool]], settles: bool, lost: str) -> None:
        """A child with empty hands claims, starts all but the `left` last, ends some, and perhaps settles those."""
        free = [child for child in self.children if child.may_start and not child.holds]
        child = free[pick % len(free)]
        if not any(life.status == "queued" for life in self.model.lives.values()):
            self.enqueue_plain(want, BANDS_IN_USE[left], pick % 2 == 0, 1 + left)  # idle workers show nothing
        self._turn(child, want, True)
        while len(child.holds) > left:
            self._start(child)
        for way in ways[: len(child.runs)]:
            self._end(child, *way)
        if settles:
            self._turn(child, 0, False, lost)

    def _turn(self, child: SimulatedChild, want: int, idle: bool, lost: str = "") -> None:
        if not child.may_start:
            want, child.read = 0, []
        if child.holds:
            want = 0  # a child claims when its hands are empty
        recover = want > 0 and (child.lost or (idle and not child.ended and not child.read))
        if child.lost and not recover:
            lost = ""
        was_lost = child.lost
        turn = child.pack(self.broker, want, recover, [] if recover else child.read)
        if lost == "late":
            self.late.append(turn)
            child.lose()
            return
        first_seq = child.next_seq
        before = self.seen
        reply = self._apply(turn)
        assert not reply.late, "a turn with a new number is called late"
        if lost == "reply":
            child.lose()
            return
        child.receive(reply)
        child.lost = was_lost and not recover
        self._check_claims(child, reply.claims, before)
        assert [claim.seq for claim in reply.claims] == list(range(first_seq, first_seq + len(reply.claims)))

    def _apply(self, turn: LateTurn) -> Any:
        """Let Redis apply a turn, and judge it."""
        if turn.waits:
            self._deliver(turn.consumer)
            reply = parse_claims(self.broker.transport.call(turn.command, script("adopt")))
            self._look("turn")
            return reply
        before = self.seen
        expected = self.model.settled(turn.outcomes, before)
        is_late = before.sends.get(turn.consumer, 0) >= turn.send
        raw = self.broker.transport.call(turn.command, self.broker.front("turn", QUEUE).script)
        reply = parse_claims(raw, turn.consumer, turn.first_seq)
        assert reply.late == is_late
        if is_late:
            self._look("nothing")
            return reply
        assert reply.codes.decode().rstrip("pwy") == "".join(item.code for item in expected)
        self._look("turn", settled=expected)
        return reply

    def _deliver(self, consumer: str) -> list[tuple[int, bytes, bytes]]:
        """What a blocking read brings that need not wait: one entry a stream; nothing where the group is lost."""
        streams: Any = {self.broker.keys.stream(QUEUE, band): ">" for band in BANDS_IN_USE}
        try:
            reply = self.client.xreadgroup(GROUP, consumer, streams, count=1)
        except ResponseError:
            self._prepare()
            return []
        finally:
            self._look("nothing")
        return [(int(stream[-1:]), entry, next(iter(fields))) for stream, ((entry, fields),) in reply]

    def _check_claims(self, child: SimulatedChild, claims: list[Claim], before: Seen) -> None:
        fresh = []
        for claim in claims:
            live, old = self.seen.live[claim.id], before.live.get(claim.id)
            assert live.raw == claim.token.decode(), f"{claim.id}: the claim differs from the live value"
            assert claim.error is None
            again = (
                old is not None and old.kind == "r" and old.consumer == child.consumer and not before.waits(claim.id)
            )
            if not again:
                fresh.append(claim)
            if old is not None:
                assert (
                    claim.attempt == old.attempt + before.waits(claim.id)
                    or old.attempt < self.seen.live[claim.id].attempt
                )
        if any(before.waits(claim.id) or claim.solo for claim in fresh):
            assert len(fresh) == 1, f"a redelivered task was claimed beside others: {[claim.id for claim in fresh]}"
            assert not child.runs, f"a redelivered task was claimed beside {[claim.id for claim in child.runs]}"
        if "" in self.paused:
            assert not fresh, "a paused queue gave out a task"
        types = {self.model.lives[claim.id].offer.task_type for claim in fresh}
        assert not types & self.paused, f"a paused type was given out: {types}"

    @precondition(lambda self: self._ready())
    @rule(pick=PICK, way=WAYS, end=st.booleans())
    def work(self, pick: int, way: tuple[str, bool], end: bool) -> None:
        """End the handler that runs longest, or start the next claim in hand (and perhaps end it at once)."""
        ready = self._ready()
        child = ready[pick % len(ready)]
        if child.holds and child.may_start:
            self._start(child)
            if not end:
                return
        self._end(child, *way)

    def _end(self, child: SimulatedChild, letter: str, charged: bool) -> None:
        """The oldest handler ends, by a letter that its options allow."""
        claim = child.runs.pop(0)
        offer = self.model.lives[claim.id].offer
        if letter == "R" and charged and claim.attempt - claim.released >= offer.max_attempts:
            letter = "D"
        if letter in "FD":
            letter = "D" if offer.dead_letter else "F"
        child.ended.append(Ended(claim, letter, charged))

    def _ready(self) -> list[SimulatedChild]:
        """Children with something to run or to end."""
        return [c for c in self.children if not c.lost and (c.runs or (c.holds and c.may_start))]

    def _start(self, child: SimulatedChild) -> None:
        others = [run for other in self.children if other.may_start for run in other.runs]
        self.model.start(child.begin(), self.seen, others)

    @precondition(lambda self: any(self.seen.undelivered(entry) for entry in self.seen.entries) and self._idle())
    @rule(pick=PICK, lost=st.booleans())
    def read(self, pick: int, lost: bool) -> None:
        """A child with nothing to do blocks, and is woken if there is something."""
        idle = self._idle()
        child = idle[pick % len(idle)]
        child.read = self._deliver(child.consumer)
        if lost or not child.read:
            child.lose()

    @precondition(lambda self: self._idle())
    @rule(pick=PICK, lost=LOSSES)
    def wait(self, pick: int, lost: str) -> None:
        """A child blocks, with an adoption behind its read; late: it does so still when others have forgotten it."""
        idle = self._idle()
        child = idle[pick % len(idle)]
        adoption = child.pack_adoption(self.broker)
        if lost == "late":
            self.late.append(adoption)
            child.lose()
            return
        before = self.seen
        reply = self._apply(adoption)
        if lost == "reply" or not reply.claims:
            child.lose()
            return
        assert [claim.seq for claim in reply.claims] == [child.next_seq]
        child.receive(reply)
        self._check_claims(child, reply.claims, before)

    def _idle(self) -> list[SimulatedChild]:
        return [c for c in self.children if c.may_start and not (c.holds or c.runs or c.ended or c.read or c.lost)]

    @precondition(lambda self: any(child.settled and not child.lost for child in self.children))
    @rule(pick=PICK, which=PICK)
    def settle_again(self, pick: int, which: int) -> None:
        """An outcome is sent again although its reply came: nothing changes (protocol 17)."""
        ready = [child for child in self.children if child.settled and not child.lost]
        child = ready[pick % len(ready)]
        kept, child.ended = child.ended, [child.settled[-1 - which % len(child.settled)]]
        turn = child.pack(self.broker, 0, False, [])
        child.ended = kept
        assert not any(item.applied for item in self.model.settled(turn.outcomes, self.seen))
        self._apply(turn)

    @precondition(lambda self: self.late)
    @rule(pick=PICK, dropped=st.sampled_from([False, False, False, True]))
    def late_turn_arrives(self, pick: int, dropped: bool) -> None:
        """A turn whose sender has given it up, or died, is applied now, or never."""
        turn = self.late.pop(pick % len(self.late))
        if not dropped:
            self._apply(turn)

    def _prepare(self) -> None:
        """What a worker does that learns of a lost group."""
        self.broker.prepare_queue(QUEUE)
        self.grouped = True

    # --- after every script

    def _look(self, verb: str, settled: list[Settled] | None = None, moves: Moves | None = None) -> None:
        """Read all there is, and hold it against the model."""
        before, self.seen = self.seen, look(self.broker, self.client)
        self.model.judge(before, self.seen, verb, settled, moves)
        check(self.model, self.seen, self.broker)
