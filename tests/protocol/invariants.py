"""What must hold in every state, and what it means that all has ended."""

from __future__ import annotations

from tests.protocol.rules import Config
from tests.protocol.state import Broken, State, unended, waits


def check(c: Config, s: State) -> None:
    """Raise Broken where a state is wrong by itself (invariants of a step stand in the step)."""
    queued = sum(live.kind == "Q" for live in s.live.values())
    if (queued, len(s.live) - queued) != (s.queued, s.running):
        raise Broken(f"counters {s.queued},{s.running} but recount {queued},{len(s.live) - queued}")
    for task, live in s.live.items():
        if task in s.records:
            raise Broken(f"t{task} in the live hash and in a record")
        if s.entries.get(live.entry) != task:
            raise Broken(f"t{task} is {live.kind} but its entry is gone")
        if live.entry not in s.pending and live.entry <= s.last[c.bands[task]]:
            raise Broken(f"t{task} is {live.kind}, delivered, and in no pending list: lost")
    for entry, task in s.entries.items():
        if task not in s.live or s.live[task].entry != entry:
            raise Broken(f"entry {entry} of t{task} is not the one the live hash names")
    for entry in s.pending:
        if entry not in s.entries:
            raise Broken(f"entry {entry} is gone and stands in a pending list")
    if c.unique:
        _check_lock(s)
    if c.key:
        _check_key(s)


def _check_lock(s: State) -> None:
    if s.unique is not None and not unended(s, s.unique):
        raise Broken(f"unique lock outlives t{s.unique}")
    for task in s.ghosts:
        if task not in s.unlocked and unended(s, task) and s.unique != task:
            raise Broken(f"t{task} has not ended but its unique lock is gone")


def _check_key(s: State) -> None:
    if s.key is not None:
        if s.key.state == "processing" and not unended(s, s.key.holder):
            raise Broken(f"the key says that t{s.key.holder} is in progress: it has ended")
        if s.key.state != "processing" and s.key.final != s.ghosts[s.key.holder].final:
            raise Broken(f"the key says that t{s.key.holder} ended {s.key.final}: it did not")
    for task, ghost in s.ghosts.items():
        if ghost.lives and task not in s.unkeyed and (s.key is None or s.key.holder != task):
            raise Broken(f"the key of t{task} is gone, or another's")


def goal(s: State) -> bool:
    """Everything terminal and nothing left behind."""
    return (
        not s.live
        and not s.entries
        and not s.pending
        and s.unique is None
        and s.purge is None
        and all(sent == 2 for sent in s.producers.values())
        and not any(waits(s, task) for task in s.records)
    )
