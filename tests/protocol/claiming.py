"""How a task is claimed, settled and comes back: the turn, and what moves entries to the shelf. Each is one script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.protocol.entering import drop, end
from tests.protocol.rules import Config
from tests.protocol.state import SHELF, Broken, Claim, Consumer, Live, State, Turn


def holds_claim(c: Config, live: Live | None, who: Consumer, claim: Claim) -> bool:
    """The fence: is this the claim that the live value names?"""
    if not live or live.kind != "R":
        return False
    if c.rules.full_token:
        return live[1:5] == (claim.attempt, claim.entry, who, claim.seq)
    return live.attempt == claim.attempt and live.consumer[:2] == who[:2]


def settle(c: Config, s: State, who: Consumer, claim: Claim, outcome: str) -> None:
    """One outcome of a turn."""
    task, attempt, entry, seq = claim
    live = s.live.get(task)
    if not holds_claim(c, live, who, claim):
        return
    if live[1:5] != (attempt, entry, who, seq):
        raise Broken(f"stale outcome of t{task} accepted: {claim} by {who}, live {live}")
    if live.flag and c.rules.flag_survives:
        end(c, s, task, "C", entry)
    elif outcome == "ok":
        end(c, s, task, "S", entry)
    elif attempt < c.max_attempts:
        del s.live[task]
        s.running -= 1
        s.records[task] = ("T", attempt)
        drop(s, entry)
    else:
        end(c, s, task, "D", entry)


def in_order(c: Config, s: State, task: int, *, adopted: bool = False) -> None:
    """No task that waits comes before the one that is claimed: a higher band, or queued earlier in the same one.

    adopted: what a read got, before which newer work of a higher band may have come.
    """
    mine = (-c.bands[task], s.ghosts[task].place)
    for other, live in s.live.items():
        holder = s.pending.get(live.entry)
        shelved = holder == SHELF
        if other == task or not (shelved or (holder is None and not adopted)):
            continue
        if (-c.bands[other], s.ghosts[other].place) < mine:
            raise Broken(f"t{task} is claimed before t{other}, whose turn it is")


def next_entry(c: Config, s: State) -> tuple[int, bool] | None:
    """What a turn looks at next, and whether it is read as new."""
    bands = list(s.last) if c.rules.high_band_first else list(reversed(s.last))
    for band in bands:
        shelf = min(
            (e for e, o in s.pending.items() if o == SHELF and c.bands[s.entries.get(e, 0)] == band), default=None
        )
        new = min((e for e, t in s.entries.items() if e > s.last[band] and c.bands[t] == band), default=None)
        if shelf is not None and (c.rules.shelf_first or new is None):
            return shelf, False
        if new is not None:
            s.last[band] = new
            return new, True
    return None


def claim_one(c: Config, s: State, who: Consumer, entry: int, seq: int, new: bool) -> Claim | None:
    """Claim an entry from the shelf or, `new`, from its stream, unless its state forbids it."""
    task = s.entries.get(entry)
    live = s.live.get(task)
    if not live or live.entry != entry:
        drop(s, entry)
        return None
    kind, attempt, _, owner, _, flag = live
    if new and kind == "R" and c.rules.give_to_owner:
        s.pending[entry] = owner
        return None
    if flag and (kind == "Q" or c.rules.flag_survives):
        end(c, s, task, "C", entry)
        return None
    if kind == "Q":
        if task in s.expired:
            end(c, s, task, "X", entry)
            return None
        s.queued -= 1
        s.running += 1
    else:
        attempt += 1
        if attempt > c.max_attempts:
            end(c, s, task, "D", entry)
            return None
        if attempt - 1 not in s.ghosts[task].started and s.lease.get(owner[:2]) == "V":
            raise Broken(f"attempt {attempt - 1} of t{task} spent without a start on a worker that lives")
    if task in s.asked:
        raise Broken(f"cancel of t{task} was promised, yet it is claimed again")
    in_order(c, s, task)
    s.live[task] = Live("R", attempt, entry, who, seq, 0)
    s.pending[entry] = who
    s.waiting = tuple(other for other in s.waiting if other != task)
    return Claim(task, attempt, entry, seq)


def adopt(c: Config, s: State, who: Consumer, task: int, entry: int, seq: int, started: bool) -> Claim | None:
    """What a plain blocking read delivered. `started`: the optimistic variant runs it already."""
    live = s.live.get(task)
    named = live and live.entry == entry
    if c.rules.repeat_is_known and named and live.kind == "R" and (live.consumer, live.seq) == (who, seq):
        return Claim(task, live.attempt, entry, seq)
    if c.rules.adopt_checks_owner and s.pending.get(entry) != who:
        return None
    if named and live.kind == "Q":
        if not started:
            older = c.rules.shelf_before_adopted and SHELF in s.pending.values()
            if s.paused == 1 or older:
                s.pending[entry] = SHELF
                return None
            if live.flag or task in s.expired:
                end(c, s, task, "C" if live.flag else "X", entry)
                return None
            in_order(c, s, task, adopted=True)
        s.queued -= 1
        s.running += 1
        s.live[task] = Live("R", live.attempt, entry, who, seq, live.flag)
        s.waiting = tuple(other for other in s.waiting if other != task)
        return Claim(task, live.attempt, entry, seq)
    if named and live.consumer != who and c.rules.give_to_owner and s.pending.get(entry) == who:
        s.pending[entry] = live.consumer
        return None
    if not (c.rules.absorb_spares_live and named):
        drop(s, entry)
    return None


def recover(c: Config, s: State, who: Consumer, known: tuple[int, ...], seq: int) -> tuple[list[Claim], int]:
    """After a lost reply: everything in the own pending list that the child does not hold, under new numbers."""
    got = []
    for entry in sorted(e for e, o in s.pending.items() if o == who):
        task = s.entries.get(entry)
        live = s.live.get(task)
        claim = None
        if not live or live.entry != entry:
            drop(s, entry)
        elif live.kind == "Q":
            claim = adopt(c, s, who, task, entry, seq, False)
        elif live.consumer == who and entry not in known and live.flag and c.rules.flag_survives:
            end(c, s, task, "C", entry)
        elif live.consumer == who and entry not in known:
            number = seq if c.rules.recover_renumbers else live.seq
            s.live[task] = live._replace(seq=number)
            claim = Claim(task, live.attempt, entry, number)
        if claim:
            got.append(claim)
            seq = claim.seq + 1
    return got, seq


def turn(c: Config, s: State, who: Consumer, body: Turn, recovers: bool) -> tuple[tuple[Claim, ...], int]:
    """Adopt, settle, recover, claim; answers the claims and the next claim number."""
    if c.numbers and c.rules.send_numbers:
        last = dict(s.sent)
        if body.send <= last.get(who, 0):
            return (), body.first
        last[who] = body.send
        s.sent = tuple(sorted(last.items()))
    got: list[Claim] = []
    seq = body.first
    for task, entry, started in body.adopts:
        claim = adopt(c, s, who, task, entry, seq, started)
        if claim:
            got.append(claim)
        seq += bool(claim or started)
    for claim, outcome in body.outcomes:
        settle(c, s, who, claim, outcome)
    if recovers and c.rules.recover_after_loss:
        found, seq = recover(c, s, who, body.held + tuple(claim.entry for claim in got), seq)
        got += found
    while s.paused != 1 and len(got) < body.want:
        found = next_entry(c, s)
        if found is None:
            break
        claim = claim_one(c, s, who, found[0], seq, found[1])
        if claim:
            got.append(claim)
            seq += 1
    return tuple(got), seq


# --- ways back


def shelve(c: Config, s: State, entry: int) -> None:
    """To the shelf, where the entry keeps its place; without the rule, to the end of the stream."""
    if c.rules.entry_kept:
        s.pending[entry] = SHELF
        return
    task = s.entries[entry]
    drop(s, entry)
    s.entries[s.next_entry] = task
    s.live[task] = s.live[task]._replace(entry=s.next_entry)
    s.next_entry += 1


def give_back(c: Config, s: State, task: int) -> None:
    """A claim that never began is queued again, its attempt unchanged."""
    live = s.live[task]
    s.live[task] = Live("Q", live.attempt, live.entry, None, 0, 0)
    s.running -= 1
    s.queued += 1
    shelve(c, s, live.entry)


def bring_back(c: Config, s: State, entry: int, who: Consumer, begun: Callable[[int | None], bool]) -> None:
    """Move one entry of `who` to the shelf. `begun(claim number)`: did its handler start?"""
    task = s.entries.get(entry)
    live = s.live.get(task) if task is not None else None
    if not live or live.entry != entry:
        drop(s, entry)
        return
    if live.kind == "R" and live.consumer != who and c.rules.give_to_owner:
        s.pending[entry] = live.consumer
        return
    own = live.kind == "R" and live.consumer == who
    if own and live.flag and c.rules.flag_survives:
        end(c, s, task, "C", entry)
    elif own and not begun(live.seq):
        give_back(c, s, task)
    elif live.kind == "Q" and begun(None):  # optimistic: delivered counts as begun
        s.live[task] = Live("R", live.attempt, entry, who, 0, live.flag)
        s.queued -= 1
        s.running += 1
        shelve(c, s, entry)
    elif live.kind == "Q" and live.flag:
        end(c, s, task, "C", entry)
    else:
        shelve(c, s, entry)


def hand_over(c: Config, s: State, who: Consumer, mark: tuple[Any, ...]) -> None:
    """A dead child's whole pending list. mark: (watermark, entries started before their claim, unsettled numbers)."""
    watermark, early, undone = mark
    counts = c.optimistic and c.rules.delivered_counts
    for entry in sorted(e for e, o in s.pending.items() if o == who):

        def begun(seq: int | None, entry: int = entry) -> bool:
            return (counts and entry in early) if seq is None else seq < watermark and seq not in undone

        bring_back(c, s, entry, who, begun)


def reap(c: Config, s: State, worker: tuple[int, int]) -> None:
    """All that a dead worker's consumers hold; nobody knows what had begun."""
    counts = c.optimistic and c.rules.delivered_counts
    for entry in sorted(e for e, o in s.pending.items() if o[:2] == worker):
        bring_back(c, s, entry, s.pending[entry], lambda seq: counts if seq is None else True)


def hand_back(c: Config, s: State, who: Consumer, claims: tuple[Claim, ...]) -> None:
    """Claims that a supervisor has revoked from a busy child."""
    for claim in claims:
        live = s.live.get(claim.task)
        if not holds_claim(c, live, who, claim):
            continue
        if live.flag and c.rules.flag_survives:
            end(c, s, claim.task, "C", live.entry)
        else:
            give_back(c, s, claim.task)
