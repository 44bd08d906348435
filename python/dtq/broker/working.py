"""The verbs of workers on a queue: turn, blocking read, hand-over, hand-back, promote, lost entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dtq._core import encode_promote, pack_command, parse_claims, parse_due
from dtq.broker.calls import Calls
from dtq.broker.reader import Reader
from dtq.keys import BANDS
from dtq.scripts import script
from dtq.transport import Begun

if TYPE_CHECKING:
    from dtq._core import Outcomes, TurnReply

TURN_BYTES = 1024 * 1024  # a claim is bounded by this after its first task (spec §4)
MOVES_A_CALL = 500
WHOLE_LIST = 1_000_000  # more than a live child can hold
DUE_BYTES = 1024 * 1024


class Working(Calls):
    """Verbs of children, supervisors and the leader."""

    def turn(
        self,
        queue: str,
        outcomes: Outcomes,
        *,
        consumer: str,
        send: int,
        first_seq: int,
        want: int,
        recover: bool = False,
        beside: bool = False,
        yields: bool = False,
        adopts: Sequence[tuple[int, bytes, bytes]] = (),
        held: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> TurnReply:
        """Settle outcomes and claim the next batch of one queue.

        Args:
            queue: its name.
            outcomes: what to settle; left as it is.
            consumer: the child's consumer name.
            send: number of this send; grows with every send, repeats too.
            first_seq: number of the first claim; above any that an earlier send may have used.
            want: most tasks to claim.
            recover: return what the own pending list holds unknown to the child (after a lost reply, and when idle).
            beside: claims of this child have not ended, so that one which has to be alone is passed over (protocol 19).
            yields: claim nothing as long as such a one waits; set once a reply has asked for it.
            adopts: (band, entry, id) of what a blocking read delivered.
            held: numbers of the claims the child still holds.
            timeout_s: how long the reply may take.

        Raises:
            BrokerUnavailable: no answer; repeat with a higher send, first_seq beyond and recover.
        """
        call = self.front("turn", queue)
        command = outcomes.pack_turn(
            call.prefix,
            call.count,
            consumer,
            send,
            first_seq,
            want,
            TURN_BYTES,
            recover | beside << 1 | yields << 2,
            list(adopts),
            [b"%d" % seq for seq in held],
        )
        return parse_claims(self.transport.call(command, call.script, timeout_s), consumer, first_seq)

    def begin_settle(self, queue: str, outcomes: Outcomes, *, consumer: str, send: int) -> Begun:
        """Send a turn that settles outcomes and claims nothing, and come back at once; `finish_settle` has its answer.

        outcomes: left as they are; what is collected behind them belongs to the next turn. Raises BrokerUnavailable.
        """
        call = self.front("turn", queue)
        command = outcomes.pack_turn(call.prefix, call.count, consumer, send, 0, 0, TURN_BYTES, 0, [], [])
        return self.transport.begin(command, call.script)

    def finish_settle(self, begun: Begun) -> TurnReply:
        """The answer to a settle that was begun; raises what `turn` does."""
        return parse_claims(self.transport.finish(begun))

    def adoption(self, queue: str, *, consumer: str, send: int, seq: int) -> bytes:
        """The command that a reader sends behind its blocking read, to adopt what the read gets.

        Redis serves it right after the read, so that a waiting child starts a new task after one round trip. Only for
        a child that holds nothing and has nothing to settle. Numbers as for turn(); it claims one task at most.
        """
        keys = self.keys
        called = [keys.live(queue), keys.meta(queue), keys.sends(queue), keys.stream(queue, 0)[:-1]]
        return pack_command(["EVALSHA", script("adopt").sha, len(called), *called, consumer, f"{send:016d}", seq])

    def has_streams(self, queue: str) -> bool:
        """Whether the keys of a queue's streams are streams, or not there."""
        kinds = {self.command("TYPE", self.keys.stream(queue, band)) for band in BANDS}
        return kinds <= {b"stream", b"none"}

    def reader(self, consumer: str) -> Reader:
        """A connection of its own for blocking reads."""
        return Reader(self.transport, self.keys, consumer)

    def hand_over(
        self, queue: str, consumer: str, watermark: int, executing: Sequence[int], cause: str, *, ended: bool = True
    ) -> int:
        """Move everything a dead child holds to the shelf; answers how many entries.

        Args:
            queue: its name.
            consumer: the dead child's name, never used again.
            watermark: claims with a lower number had begun.
            executing: numbers of the claims whose handlers ran at the death: only these are charged.
            cause: why it died, kept with the attempt; `released` charges nothing.
            ended: delete the consumer once it holds nothing.
        """
        return self._shelve("hand_over", queue, consumer, watermark, 0, cause, ended, executing)

    def hand_back(self, queue: str, consumer: str, from_seq: int, to_seq: int) -> int:
        """Queue again the revoked claims from_seq <= number < to_seq of a busy or draining child.

        The rest of its pending list stays, so one call looks at all of it: slices would see the same entries again.
        """
        return self._shelve("hand_back", queue, consumer, from_seq, to_seq, "handed back", False, (), WHOLE_LIST)

    def reap_consumer(self, queue: str, consumer: str) -> int:
        """Take over what a consumer of a worker declared dead holds, and delete it."""
        return self._shelve("reap", queue, consumer, 0, 0, "lost lease", True, ())

    def _shelve(
        self,
        mode: str,
        queue: str,
        consumer: str,
        start: int,
        end: int,
        cause: str,
        ended: bool,
        executing: Sequence[int],
        most: int = MOVES_A_CALL,
    ) -> int:
        moved = 0
        while True:
            count, left, _ = self.run("shelve", queue, mode, consumer, start, end, cause, most, int(ended), *executing)
            moved += int(count)
            if mode == "reap" and count > 1:
                start = 1  # the rest was held in a batch too
            if not left:
                return moved

    def consumers(self, queue: str) -> dict[str, int]:
        """Every consumer of a queue's groups with the number of entries it holds (the shelf too)."""
        holds: dict[str, int] = {}
        listed = self.run("consumers", queue)
        for name, pending in zip(listed[::2], listed[1::2], strict=True):
            holds[name.decode()] = holds.get(name.decode(), 0) + int(pending)
        return holds

    def promote(
        self, queue: str, limit: int = 500, tell: Callable[[str, int, str], None] | None = None
    ) -> tuple[int, int | None]:
        """Move due tasks to their streams; answers how many it took, and in how many ms the next one is due (or None).

        Where more are due than one call takes (`limit`, or 1 MiB of records) the next may be due already: 0 or less.
        tell: called with queue, number and reason if some could not be moved; they are due again 5 s later.
        """
        reply = self.run("due", queue, limit, DUE_BYTES)
        now, following = int(reply[0]), reply[1]
        due = parse_due(reply[2:])
        if due:
            call = self.front("promote", queue)
            failed = self.transport.call(encode_promote(due, call.prefix, call.count), call.script)[3:]
            if failed and tell is not None:
                tell(queue, int(failed[0]), failed[1].decode(errors="replace").partition(" script: ")[0][:300])
        return len(due), int(float(following)) - now if following else None

    def end_lost(self, queue: str, slice_size: int = 1000) -> int:
        """End the tasks whose entries were found missing: the live hash is scanned in slices (protocol 4)."""
        entries = set(self.command("SRANDMEMBER", self.keys.lost(queue), slice_size))
        if not entries:
            return 0
        ended, cursor = 0, b"0"
        while True:
            cursor, fields = self.command("HSCAN", self.keys.live(queue), cursor, "COUNT", slice_size)
            for task_id, live in zip(fields[::2], fields[1::2], strict=True):
                parts = live.split(b":", 4)
                if len(parts) == 5 and (entry := parts[3]) in entries:
                    ended += self.run("lost", queue, task_id, entry)
            if cursor == b"0":
                break
        self.command("SREM", self.keys.lost(queue), *entries)
        return ended
