"""How a task comes, ends and comes again: enqueue, promote, cancel, every end, purge, requeue. Each is one script."""

from __future__ import annotations

from typing import Any

from tests.protocol.rules import Config
from tests.protocol.state import SHELF, Broken, Ghost, Key, Live, Purge, State, unended, waits


def drop(s: State, entry: int) -> None:
    """XACK and XDEL."""
    s.pending.pop(entry, None)
    s.entries.pop(entry, None)


def release(c: Config, s: State, task: int, status: str) -> None:
    """Locks and idempotency record at the end of a task."""
    if c.unique and (s.unique == task or (not c.rules.release_compares and s.unique is not None)):
        s.unique = None
    if s.key is None or (not c.rules.key_ends and status in "CX"):
        return
    if s.key.holder == task or not c.rules.key_compares:
        s.key = Key("failed" if status != "S" else "completed", s.key.holder, status)


def end(
    c: Config, s: State, task: int, status: str, entry: int | None, *, kept: bool = True, frees: bool = True
) -> None:
    """Any end of a task: record (not `kept`: a purge), follow-ups, ack and delete."""
    ghost = s.ghosts[task]
    if task in s.asked and status != "C":
        raise Broken(f"cancel of t{task} was promised, yet it ends {status}")
    if ghost.final:
        raise Broken(f"second end of t{task} ({status})")
    live = s.live.pop(task, None)
    if live and live.kind == "Q":
        s.queued -= 1
    elif live:
        s.running -= 1
    s.records.pop(task, None)
    recorded = kept and (c.retention or (status != "S" and c.rules.ends_leave_records))
    if recorded:
        s.records[task] = (status, 0)
    if status == "D" and c.requeue:
        s.letters[s.next_letter] = task
        s.records[task] = (status, s.next_letter)
        s.next_letter += 1
    if frees:
        release(c, s, task, status)
    if entry:
        drop(s, entry)
    s.waiting = tuple(other for other in s.waiting if other != task)
    hole = (status == "S" and not c.retention) or not kept  # what no repeat can find any more (rule 11)
    s.ghosts[task] = ghost._replace(final=status, barred=ghost.barred or status in "CX", hole=hole)


def queue(s: State, task: int, attempt: int) -> None:
    """XADD, and a live value that names the entry."""
    entry = s.next_entry
    s.next_entry += 1
    s.entries[entry] = task
    s.live[task] = Live("Q", attempt, entry, None, 0, 0)
    s.queued += 1
    s.records.pop(task, None)
    s.ghosts[task] = s.ghosts[task]._replace(place=entry)


# --- producers


def enqueue(c: Config, s: State, task: int, nonce: int = 0, again: bool = False) -> tuple[Any, ...]:
    """One task of a chunk: ('accepted',), ('conflict',), ('refused',) or ('in progress' | 'ended', holder, status)."""
    if task in s.live or (task in s.records and (waits(s, task) or c.rules.repeat_sees_ended)):
        return ("accepted",) if s.nonces[task] == nonce or not c.rules.nonce else ("conflict",)
    if c.key and s.key is not None:
        if s.key.holder == task and s.key.state != "processing" and again and c.rules.key_knows_repeat:
            return ("accepted",)
        if s.key.state != "processing":
            return ("ended", s.key.holder, s.key.final)
        if c.rules.key_answers and unended(s, s.key.holder):
            return ("in progress", s.key.holder, "")
    if c.unique:
        if s.unique not in (None, task):
            return ("refused",)
        s.unique = task
    _be_born(c, s, task, nonce)
    s.nonces[task] = nonce
    if c.key:
        s.key = Key("processing", task, "")
    if task in c.delayed:
        s.records[task] = ("P", 1)
    else:
        queue(s, task, 1)
    return ("accepted",)


def _be_born(c: Config, s: State, task: int, nonce: int) -> None:
    """The ghost of a new life, and whether there may be one."""
    old = s.ghosts[task]
    if nonce in old.born and (not old.hole or (c.key and task not in s.unkeyed)):
        raise Broken(f"repeated enqueue of t{task} accepted twice")
    if c.key:
        for other, ghost in s.ghosts.items():
            if other not in (task, *s.unkeyed) and ghost.lives:
                raise Broken(f"t{task} is accepted although the key of t{other} stands")
    s.asked = tuple(other for other in s.asked if other != task)
    s.expired = tuple(other for other in s.expired if other != task)
    s.unlocked = tuple(other for other in s.unlocked if other != task)
    s.unkeyed = tuple(other for other in s.unkeyed if other != task)
    s.ghosts[task] = Ghost(old.lives + 1, "", 0, (), 0, 0, tuple(sorted({*old.born, nonce})))


def hear(s: State, task: int, nonce: int, answer: tuple[Any, ...]) -> None:
    """A producer is answered: is it true?"""
    ghost = s.ghosts[task]
    if answer[0] == "accepted":
        if nonce not in ghost.born:
            raise Broken(f"a new task under the id of t{task}, which stands, was answered `accepted`")
    elif answer[0] in ("in progress", "ended"):
        _, holder, final = answer
        if holder == task and nonce in ghost.born:
            raise Broken(f"t{task} was answered to be a duplicate of itself")
        if s.ghosts[holder].final != final:
            raise Broken(f"t{task} was answered that t{holder} is `{final or answer[0]}`: it is not")


# --- schedule and cancel


def promote(c: Config, s: State, task: int) -> None:
    """A due task goes to its stream, or ends."""
    status, attempt = s.records[task]
    if task in s.expired:
        end(c, s, task, "X", None)  # retrying: by way of queued
    else:
        queue(s, task, attempt + 1 if status == "T" else attempt)


def cancel(c: Config, s: State, task: int) -> str:
    """End what waits, flag what runs."""
    live = s.live.get(task)
    if live:
        holder = s.pending.get(live.entry)
        delivered = holder not in (None, SHELF)
        redelivered = live.kind == "R" and holder == SHELF
        counts = c.optimistic and c.rules.delivered_counts and delivered
        if (live.kind == "R" and not redelivered) or counts:
            s.live[task] = live._replace(flag=1)
            s.asked += (task,)
            return "requested"
        end(c, s, task, "C", live.entry)
        if not c.rules.end_acks and holder is not None:
            s.pending[live.entry] = holder
        return "cancelled"
    if waits(s, task):
        end(c, s, task, "C", None)
        return "cancelled"
    return "terminal"


# --- operators


def requeue(c: Config, s: State, task: int, letter: int) -> str:
    """A dead letter's new life."""
    if task in s.live or s.records.get(task, "D")[0] != "D":
        return "live or ended otherwise"
    if c.rules.requeue_names_letter and (letter not in s.letters or s.records.get(task, ("D", letter))[1] != letter):
        return "gone"
    if c.unique and c.rules.requeue_takes_lock and s.unique not in (None, task):
        return "unique"
    if c.key and s.key is not None and s.key.holder != task:
        return "key"
    if letter in s.requeued:
        raise Broken(f"dead letter {letter} of t{task} is queued again twice")
    s.requeued += (letter,)
    s.letters.pop(letter, None)
    if c.unique:
        s.unique = task
        s.unlocked = tuple(other for other in s.unlocked if other != task)
    if c.key and c.rules.key_reopened:
        s.key = Key("processing", task, "")
        s.unkeyed = tuple(other for other in s.unkeyed if other != task)
    ghost = s.ghosts[task]
    s.asked = tuple(other for other in s.asked if other != task)
    s.expired = tuple(other for other in s.expired if other != task)  # the ttl is counted anew
    s.ghosts[task] = ghost._replace(final="", barred=0, started=())
    queue(s, task, 1)
    return "requeued"


def begin_purge(c: Config, s: State) -> None:
    """What waits now must not wait when the purge is over, unless it ran in between."""
    s.purges -= 1
    s.waiting = tuple(t for t in s.ghosts if waits(s, t) or (t in s.live and s.live[t].kind == "Q"))
    ends = () if c.rules.purge_schedule_first else _ends(c, s)
    s.purge = Purge("schedule", tuple(t for t in s.ghosts if unended(s, t)), 0, 0, ends)


def _ends(c: Config, s: State) -> tuple[tuple[int, int], ...]:
    """(band, newest entry) of each band that has one, highest first."""
    newest = ((band, max((e for e, t in s.entries.items() if c.bands[t] == band), default=0)) for band in s.last)
    return tuple((band, entry) for band, entry in newest if entry)


def purge_slice(c: Config, s: State) -> None:
    """One call of a purge, which looks at one task. The schedule is in its worst order: what is newer is due first."""
    assert s.purge
    part, made, at, taken, ends = s.purge
    if part == "schedule":
        due = sorted((t for t in s.records if waits(s, t)), reverse=True)
        rest = [t for t in due if -t > at - c.tasks] if c.rules.purge_cursor else due[at:]
        if not rest:
            if taken and not c.rules.purge_cursor:
                s.purge = s.purge._replace(at=0, taken=0)
                return
            ends = ends or _ends(c, s)
            s.purge = Purge("streams", made, 0, 0, ends) if ends else None
            if not ends:
                _purged(s)
            return
        task = rest[0]
        if task in made:
            end(c, s, task, "C", None, kept=False, frees=c.rules.purge_frees)
        at = c.tasks - task if c.rules.purge_cursor else at + (task not in made)
        s.purge = s.purge._replace(at=at, taken=taken + (task in made))
        return
    band, last = ends[0]
    rest = sorted(e for e, t in s.entries.items() if at < e <= last and c.bands[t] == band)
    if rest:
        _purge_entry(c, s, rest[0])
        s.purge = s.purge._replace(at=rest[0])
    elif ends[1:]:
        s.purge = s.purge._replace(at=0, ends=ends[1:])
    else:
        s.purge = None
        _purged(s)


def _purge_entry(c: Config, s: State, entry: int) -> None:
    task = s.entries[entry]
    live = s.live.get(task)
    if not live or live.entry != entry or (live.kind == "R" and c.rules.purge_owns):
        return
    holder = s.pending.get(entry)
    end(c, s, task, "C", entry, kept=False, frees=c.rules.purge_frees)
    if not c.rules.end_acks and holder is not None:
        s.pending[entry] = holder


def _purged(s: State) -> None:
    if s.waiting:
        raise Broken(f"the purge is over, and t{s.waiting[0]} has waited all the time and waits still")
