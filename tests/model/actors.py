"""Who uses a queue: workers with a lease and their children, without processes. What they remember can be lost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from dtq._core import Claim, Outcomes, TurnReply
from dtq.broker import Broker
from dtq.clock import SYSTEM
from tests.broker.driver import QUEUE

GAP = 1000  # by how much claim numbers grow after a lost reply
LETTERS = "SRFDCL"


class SimulatedWorker:
    """A worker id and what became of its lease: valid, expired (nobody noticed yet) or dead."""

    _numbers = itertools.count(1)

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.id = f"host-{next(self._numbers):08d}"
        self.lease = "valid"
        self.children = itertools.count(0)
        broker.renew(self.id, {})


@dataclass(slots=True)
class Ended:
    """An attempt that has ended and is not settled yet. charged: False for Retry(counts=False)."""

    claim: Claim
    letter: str
    charged: bool = True


@dataclass(slots=True)
class LateTurn:
    """A turn on its way, whose sender no longer waits for it."""

    consumer: str
    send: int
    command: bytes
    outcomes: list[Ended]
    first_seq: int = 0  # number of its first claim
    waits: bool = False  # stands behind a blocking read


@dataclass(slots=True)
class Death:
    """What a supervisor knows of a child that has ended."""

    worker: SimulatedWorker
    consumer: str
    watermark: int
    executing: list[Claim]
    cause: str


@dataclass(slots=True)
class Given:
    """Revoked claim numbers on their way back (half open)."""

    consumer: str
    start: int
    end: int


@dataclass(slots=True)
class SimulatedChild:
    """One child: claims in hand (in order), handlers that run, outcomes unsettled, entries read and not adopted."""

    worker: SimulatedWorker
    consumer: str
    send: int = 0
    next_seq: int = 1
    watermark: int = 0
    holds: list[Claim] = field(default_factory=list)
    runs: list[Claim] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    settled: list[Ended] = field(default_factory=list)
    read: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    lost: bool = False
    yields: bool = False

    @classmethod
    def of(cls, worker: SimulatedWorker) -> SimulatedChild:
        """A child under a name that was never used."""
        return cls(worker, f"{worker.id}.{next(worker.children)}.1")

    @property
    def may_start(self) -> bool:
        """What the shared memory says before each start and each claim (protocol 9)."""
        return self.worker.lease == "valid"

    def begin(self) -> Claim:
        """Start the next claim in hand."""
        claim = self.holds.pop(0)
        self.watermark = claim.seq + 1
        self.runs.append(claim)
        return claim

    def lose(self) -> None:
        """A reply may be lost: forget what has not begun; the next turn recovers."""
        self.lost = True
        self.next_seq += GAP
        self.holds.clear()
        self.read.clear()

    def pack(self, broker: Broker, want: int, recover: bool, adopts: list[tuple[int, bytes, bytes]]) -> LateTurn:
        """The next turn's command, with all outcomes."""
        self.send += 1
        front = broker.front("turn", QUEUE)
        beside = bool(self.runs or self.holds)
        flags = recover | beside << 1 | (beside and self.yields) << 2
        held = [b"%d" % claim.seq for claim in (*self.runs, *self.holds)] if recover else []
        command = outcomes_of(self.worker.id, self.ended).pack_turn(
            front.prefix, front.count, self.consumer, self.send, self.next_seq, want, 1 << 20, flags, adopts, held
        )
        return LateTurn(self.consumer, self.send, command, list(self.ended), self.next_seq)

    def pack_adoption(self, broker: Broker) -> LateTurn:
        """What is sent behind a blocking read."""
        self.send += 1
        command = broker.adoption(QUEUE, consumer=self.consumer, send=self.send, seq=self.next_seq)
        return LateTurn(self.consumer, self.send, command, [], waits=True)

    def receive(self, reply: TurnReply) -> None:
        """Take the reply of the turn that was packed last."""
        self.settled += self.ended
        self.ended = []
        self.lost, self.yields = False, reply.codes.endswith(b"y")
        self.holds += reply.claims
        self.read = []
        if reply.claims:
            self.next_seq = max(self.next_seq + len(reply.claims), reply.claims[-1].seq + 1)

    def die(self, cause: str) -> Death:
        """End the process."""
        return Death(self.worker, self.consumer, self.watermark, list(self.runs), cause)


def outcomes_of(worker: str, ended: list[Ended]) -> Outcomes:
    """Outcomes in wire form."""
    outcomes = Outcomes(worker)
    for item in ended:
        if item.letter == "S":
            outcomes.succeed(item.claim, {"ok": item.claim.attempt}, SYSTEM.now_ms(), 1000)
            continue
        line = b'{"attempt":%d,"cause":"error","error_class":"ValueError"}\n' % item.claim.attempt
        delay = 3_600_000 if item.letter == "R" else 0
        detail = b'{"cause":"error","error_class":"ValueError","error":"no"}'
        released = int(item.letter == "R" and not item.charged)
        outcomes.settle(item.claim, item.letter, SYSTEM.now_ms(), delay, detail, line, released)  # type: ignore[arg-type]
    return outcomes
