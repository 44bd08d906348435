"""One child's side of the protocol without a process: enqueue, claim by a turn, settle."""

from __future__ import annotations

import os

from bench.servers import Server
from bench.workload import payload
from dtq._core import Chunk, Claim, EnvelopeHead, Outcomes, new_ids
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.settings import Settings

WORKER = "bench-00000001"
BARE_CLAIM = """
local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], '>')
local out = {}
for _, entry in ipairs(read[1][2]) do
  out[#out + 1], out[#out + 2], out[#out + 3] = entry[1], entry[2][1], entry[2][2]
end
return out
"""
"""The least that a script can do to claim: read the entries and give them back. No fence, state, order or counter."""
RESULT_BYTES = 262_144


class Consumer:
    """Drives turns on a queue of its own through the broker, as a child does."""

    def __init__(self, server: Server, queue: str) -> None:
        self._broker = Broker(Settings.from_environment(redis_url=server.url, prefix=server.prefix))
        self._broker.prepare_queue(queue)
        self._queue = queue
        self._consumer = f"{WORKER}.{os.getpid()}.{SYSTEM.monotonic_ns()}"
        self._head = EnvelopeHead("noop", 5, 5, 30_000, 0)
        self._outcomes = Outcomes(WORKER)
        self._claims: list[Claim] = []
        self._send = 0
        self._seq = 1
        self._bare_sha: bytes | None = None

    def enqueue(self, count: int) -> None:
        """Enqueue tasks with one script call."""
        now_ms, chunk = SYSTEM.now_ms(), Chunk()
        ids = new_ids(now_ms, os.urandom(10 * count), count)
        refused = chunk.extend(ids, self._head, [payload(index) for index in range(count)], RESULT_BYTES, b"5")
        assert not refused
        answers = self._broker.enqueue(self._queue, chunk)
        assert all(answer.code == "a" for answer in answers)

    def claim(self, want: int) -> int:
        """One turn that settles what `end` has collected and claims up to `want`; how many it brought."""
        self._send += 1
        reply = self._broker.turn(
            self._queue, self._outcomes, consumer=self._consumer, send=self._send, first_seq=self._seq, want=want
        )
        assert not reply.late
        assert not reply.codes.strip(b"d"), f"settled with codes {reply.codes!r}"
        self._outcomes.clear()
        self._claims = reply.claims
        self._seq += len(self._claims)
        return len(self._claims)

    def end(self) -> None:
        """Collect a success for each claim in hand; the next turn sends them."""
        for claim in self._claims:
            self._outcomes.succeed(claim, None, SYSTEM.now_ms(), RESULT_BYTES)
        self._claims = []

    def settle(self) -> None:
        """Settle the claims in hand with a turn that claims nothing."""
        self.end()
        self.claim(0)

    def drain(self, tasks: int, batch: int) -> None:
        """Claim and settle in turns until nothing is left, which must be after `tasks`."""
        drained = 0
        while claimed := self.claim(batch):
            drained += claimed
            self.end()
        assert drained == tasks, f"{drained} of {tasks} tasks were drained"

    def fill_bare(self, key: str, count: int) -> None:
        """Put entries of the same size on a bare stream."""
        for number in range(count):
            envelope = self._head.encode(payload(number), RESULT_BYTES)
            self._broker.command("XADD", key, "*", new_ids(SYSTEM.now_ms(), os.urandom(10), 1)[0], envelope)

    def claim_bare(self, key: str, group: str, want: int) -> list[bytes]:
        """BARE_CLAIM by EVALSHA, over the connection that turns use; the entries it brought."""
        if self._bare_sha is None:
            self._bare_sha = self._broker.command("SCRIPT", "LOAD", BARE_CLAIM)
        return self._broker.command("EVALSHA", self._bare_sha, 1, key, group, self._consumer, want)[::3]

    def end_bare(self, key: str, group: str, entries: list[bytes]) -> None:
        """Take entries off a bare stream."""
        self._broker.command("XACK", key, group, *entries)
        self._broker.command("XDEL", key, *entries)

    def close(self) -> None:
        """Close the connections."""
        self._broker.close()
