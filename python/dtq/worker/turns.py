"""A child's turns: the outcomes it collects, its send and claim numbers, and what a lost reply asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dtq._core import Claim, CoreError, Outcomes, TurnReply
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable, GroupLost
from dtq.executor import Executor
from dtq.models import Outcome
from dtq.transport import Begun
from dtq.worker.journal import LOGGER
from dtq.worker.outcome_log import Note, OutcomeLog

# After a lost reply the next claim number is beyond all that the lost send, and the recovery of everything it and
# earlier ones claimed, can have used. Numbers are 48 bits wide: room for 280 million losses.
_SEQ_GAP = 1_000_000
_ASIDE_S = 2.0
"""So long nothing is asked of a queue whose keys are damaged; then it is tried again."""
_TELL_S = 10.0

Adopted = tuple[int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a child is. `number` is its place in the slots; `consumer` is never used twice."""

    worker_id: str
    number: int
    incarnation: int

    @property
    def consumer(self) -> str:
        return f"{self.worker_id}.{self.number}.{self.incarnation}"


class Turns:
    """Turns of one consumer over its queues. `lock` guards the outcome buffers and the turns themselves.

    A send is never repeated as it was: each has its own number, and after a loss the next one recovers (protocol 1-3).
    """

    def __init__(
        self,
        broker: Broker,
        executor: Executor,
        identity: Identity,
        queues: Sequence[str],
        result_max_bytes: int,
    ) -> None:
        self.lock = threading.Lock()
        self.outcomes = [Outcomes(identity.worker_id) for _ in queues]
        self._log = OutcomeLog(queues, identity.worker_id)
        self._log_successes = self._log.successes
        self._broker = broker
        self._executor = executor
        self._result_max_bytes = result_max_bytes
        self._consumer = identity.consumer
        self._queues = tuple(queues)
        self._send = 0
        self._next_seq = 1
        self._lost = [False] * len(self._queues)
        self.paused = [False] * len(self._queues)
        """Which queues a read leaves out: those that were paused when their last turn looked, or are damaged."""
        self.claimed_bytes = 0
        """Bytes of the envelopes that the last turn with claims brought."""
        self.yields = [False] * len(self._queues)
        """Which queues have a task that waits to be alone, for which this child is to fall empty (protocol 19)."""
        self.passes = [False] * len(self._queues)
        """Which queues have one that this child has passed over: it looks again soon, it may be empty by then."""
        self.steps_aside = [False] * len(self._queues)
        """For which queues no read is begun for a moment: as it yields, or has passed the bell on to an empty child."""
        self.observed: dict[int, None] = {}
        """Queues of which outcomes were settled since their timings were last told, in order."""
        self._ahead: tuple[int, int, Begun] | None = None
        """A settle whose answer is still to come: queue, how many outcomes, the command."""
        self._look_at = [0.0] * len(self._queues)
        self._aside: dict[int, float] = {}
        self._tell_at: dict[int, float] = {}
        self._stale_told = False

    def noted(self, index: int) -> list[Note] | None:
        """Where whoever adds a success to the outcomes of a queue notes it for the log; None: it is not logged."""
        return self._log.noted[index] if self._log_successes else None

    def collect(self, index: int, claim: Claim, result: object, ended_ms: int, took_ns: int) -> None:
        """Keep how an attempt ended, a result or an Outcome, for the next turn. The caller holds `lock`.

        took_ns: how long its handler ran; negative where none has.
        """
        outcomes = self.outcomes[index]
        if not isinstance(result, Outcome):
            try:
                outcomes.succeed(claim, result, ended_ms, self._result_max_bytes, took_ns)
                if self._log_successes:
                    self._log.noted[index].append((len(outcomes) - 1, claim, None, took_ns))
                return
            except CoreError as error:
                result = self._executor.result_refused(claim, error)
        if result.letter == "S":
            raise ValueError("a success is collected as its result")
        outcomes.settle(
            claim,
            result.letter,
            ended_ms,
            result.delay_ms,
            self._executor.detail(result),
            self._executor.history_line(claim, result, ended_ms),
            # A release is uncharged by the script that does it.
            0 if result.charged or result.letter == "L" else 1,
            took_ns,
        )
        self._log.noted[index].append((len(outcomes) - 1, claim, result, took_ns))

    def settle(self) -> None:
        """Send everything collected, claiming nothing. The caller holds `lock`."""
        self.finish()
        for index, outcomes in enumerate(self.outcomes):
            if len(outcomes):
                self.take(index, 0)

    def settle_ahead(self, index: int) -> None:
        """Send what is collected for this queue, and do not wait for the answer: the next word to Redis takes it first.

        So a child computes while its settle travels (docs/decisions/0010). The outcomes stand until the answer is
        there, as after a lost reply. The caller holds `lock`. Raises BrokerUnavailable.
        """
        self.finish()
        for other, outcomes in enumerate(self.outcomes):
            if len(outcomes) and other != index:
                self.take(other, 0)
        outcomes = self.outcomes[index]
        if not len(outcomes) or index in self._aside:
            return
        self._send += 1
        try:
            begun = self._broker.begin_settle(self._queues[index], outcomes, consumer=self._consumer, send=self._send)
        except BrokerUnavailable:
            self.lost()
            raise
        self._ahead = index, len(outcomes), begun

    def finish(self) -> None:
        """Take the answer to what was sent ahead. The caller holds `lock`. Raises BrokerUnavailable."""
        if self._ahead is None:
            return
        index, count, begun = self._ahead
        self._ahead = None
        reply = self._asked(index, lambda: self._broker.finish_settle(begun))
        if reply is not None:
            self._settled(index, count, reply.codes)

    @property
    def waiting(self) -> bool:
        """Whether outcomes wait to be sent."""
        return any(map(len, self.outcomes))

    def needed(self) -> list[int]:
        """Queues that need a turn whatever they hold: outcomes wait, a reply was lost, or it was paused, or damaged."""
        return [
            index
            for index, outcomes in enumerate(self.outcomes)
            if len(outcomes) or self._lost[index] or self.paused[index]
        ]

    def lost(self) -> None:
        """A reply may have been lost, of a turn or of a read: the next turn of every queue recovers."""
        self._lost = [True] * len(self._queues)
        self._next_seq += _SEQ_GAP

    @property
    def unsure(self) -> bool:
        """Whether this consumer may hold claims that the child does not know of."""
        return any(self._lost)

    def take(
        self,
        index: int,
        want: int,
        *,
        adopts: Sequence[Adopted] = (),
        held: Callable[[], Sequence[int]] = tuple,
        looks: int | None = None,
        recover: bool = False,
        beside: bool = False,
    ) -> list[Claim] | None:
        """Settle what is collected for this queue and claim up to `want` tasks. The caller holds `lock`.

        held: gives the numbers of begun claims that have not ended. looks: look for strays as well; rarely beside so
        many claims under way, or where there are outcomes to settle.
        beside: other claims of the child have not ended, in any queue.
        `want` 0 settles only, and recovers if told to. None: the queue's keys are damaged; its outcomes stand, and it
        is left alone for a while. Raises BrokerUnavailable; the outcomes stand and the caller drops unbegun claims.
        """
        self.finish()
        if self._aside and index in self._aside:
            if SYSTEM.monotonic() < self._aside[index]:
                return []
            del self._aside[index]
        outcomes = self.outcomes[index]
        count = len(outcomes)
        recover = recover or (want > 0 and (self._lost[index] or (not adopts and self._looks(index, count, looks))))
        self._send += 1
        reply = self._asked(
            index,
            lambda: self._broker.turn(
                self._queues[index],
                outcomes,
                consumer=self._consumer,
                send=self._send,
                first_seq=self._next_seq,
                want=want,
                recover=recover,
                beside=beside,
                yields=beside and self.yields[index],
                adopts=list(adopts),
                held=list(held()) if recover else [],
            ),
        )
        if reply is None:
            return None if index in self._aside else []
        self._settled(index, count, reply.codes)
        if want and (beside or self.yields[index] or self.passes[index]):
            self.yields[index] = yields = reply.codes.endswith(b"y")
            self.passes[index] = passes = reply.codes.endswith(b"w")
            self.steps_aside[index] = yields or (passes and bool(adopts))
        if recover:
            self._lost[index] = False
        claims = reply.claims
        if claims:
            self.claimed_bytes = reply.envelope_bytes
            self._next_seq = max(self._next_seq + len(claims), claims[-1].seq + 1)
        return claims

    def _looks(self, index: int, settles: int, under_way: int | None) -> bool:
        """Whether to look for strays, as a read that was given up may bring one late. A child that is never idle looks
        as well, else they would wait as long as it has work; but rarely: a look walks all that is held, beside 5,000
        handlers that takes Redis 40 ms."""
        if not (under_way or settles):
            return under_way is not None
        now = SYSTEM.monotonic()
        if under_way is None or now < self._look_at[index]:
            return False
        self._look_at[index] = now + 1 + under_way / 500
        return True

    def _asked(self, index: int, ask: Callable[[], TurnReply]) -> TurnReply | None:
        """The answer to a turn of this queue; None where there is none to go by, and what was sent still stands."""
        try:
            reply = ask()
        except GroupLost:
            self.lost()
            self.mend_group(self._queues[index])
            return None
        except BrokerUnavailable as error:
            self.lost()
            if not error.damaged:
                raise
            self._set_aside(index, error)
            return None
        if reply.late:
            self.lost()
            return None
        return reply

    def _settled(self, index: int, count: int, codes: bytes) -> None:
        """The first `count` outcomes of this queue have been settled."""
        self.outcomes[index].clear(count)
        if count:
            self.observed[index] = None
            self._log.write(index, codes)
        self.paused[index] = codes.endswith(b"p")
        if b"s" in codes:
            self._tell_stale(codes.count(b"s"))

    def adoption(self) -> bytes:
        """What to send behind a blocking read; for a child that holds nothing and serves one queue."""
        self._send += 1
        return self._broker.adoption(self._queues[0], consumer=self._consumer, send=self._send, seq=self._next_seq)

    def adopted(self, claims: Sequence[Claim]) -> None:
        """An adoption behind a read brought these."""
        self._next_seq = claims[-1].seq + 1

    def mend_groups(self) -> None:
        """The same for all queues, after a read that may have got something: the next turn of each recovers."""
        self.lost()
        for queue in self._queues:
            self.mend_group(queue)

    def mend_group(self, queue: str) -> None:
        """Make a queue's consumer groups anew; nothing happens where they stand (protocol 13)."""
        LOGGER.warning("queue %s: its consumer group is gone; making it anew", queue)
        self._broker.prepare_queue(queue)

    def leave_out_damaged(self, error: BrokerUnavailable) -> bool:
        """After a read of several queues that was refused: find whose streams are none; False if all stand."""
        open_queues = [queue for queue, paused in zip(self._queues, self.paused, strict=True) if not paused]
        damaged = [queue for queue in open_queues if not self._broker.has_streams(queue)]
        for queue in damaged:
            self._set_aside(self._queues.index(queue), error)
        return bool(damaged)

    def _set_aside(self, index: int, error: BrokerUnavailable) -> None:
        """Leave a queue alone whose keys were damaged by hand, so that the work on the others goes on."""
        now = SYSTEM.monotonic()
        self._aside[index] = now + _ASIDE_S
        self.paused[index] = True
        self.yields[index] = self.passes[index] = self.steps_aside[index] = False
        if now >= self._tell_at.get(index, 0.0):
            self._tell_at[index] = now + _TELL_S
            LOGGER.error(
                "queue %s: work on it is not possible: %s; tried again every %g s", self._queues[index], error, _ASIDE_S
            )

    def _tell_stale(self, count: int) -> None:
        if not self._stale_told:
            self._stale_told = True
            LOGGER.warning(
                "%s: %d outcome(s) refused as stale: another claim holds the task (told once)", self._consumer, count
            )
