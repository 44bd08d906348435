"""Cells as children send them, made by the core from claims of a made-up turn."""

from __future__ import annotations

from dtq import _core

MADE_MS, QUEUED_MS, ENDED_MS = 1_700_000_000_000, 1_700_000_000_123, 1_700_000_000_323
TASK_ID = _core.new_ids(MADE_MS, bytes(10), 1)[0].encode()


def cell(task_type: str = "noop", *, took_ms: float = 50, count: int = 1) -> list[tuple[str, bytes]]:
    """What a child tells of `count` successes that ran for `took_ms` each: an argument of Broker.observe."""
    envelope = _core.EnvelopeHead(task_type, 5, 3, 60_000, 0).encode({}, 99)
    token = b"r:1:0:%d-0:host-abcdefgh.1.2:7:%d:" % (QUEUED_MS, QUEUED_MS)
    (claim,) = _core.parse_claims([b"", b"1", b"%d-0" % QUEUED_MS, TASK_ID, token, 5, envelope]).claims
    outcomes = _core.Outcomes("w")
    for _ in range(count):
        outcomes.succeed(claim, None, ENDED_MS, 100, round(took_ms * 1e6))
    return outcomes.take_timings()
