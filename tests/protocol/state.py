"""A state of the model: what stands in Redis, what the processes are at, and what must never be undone (ghosts)."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.protocol.rules import Config

SHELF = ("shelf",)
"""The consumer with which work waits that comes back; others are (worker, its incarnation, child, its incarnation)."""

Consumer = tuple[Any, ...]


class Live(NamedTuple):
    """A live value. kind: Q or R; no consumer and seq 0 while queued; flag 1: cancel requested."""

    kind: str
    attempt: int
    entry: int
    consumer: Consumer | None
    seq: int
    flag: int


class Claim(NamedTuple):
    """What a child was given."""

    task: int
    attempt: int
    entry: int
    seq: int


class Turn(NamedTuple):
    """A turn's arguments. adopts: (task, entry, has its handler started); held: entries that the child knows."""

    outcomes: tuple[tuple[Claim, str], ...]
    adopts: tuple[tuple[int, int, bool], ...]
    first: int
    want: int
    held: tuple[int, ...]
    send: int


class Message(NamedTuple):
    """What a child has sent and waits for: a `turn` or a `read`. done: applied by Redis, its reply is on the way."""

    kind: str
    body: Any
    done: int
    recover: bool
    reply: Any


class Child(NamedTuple):
    """A child; `next` claim number, `begun` watermark; dirty: a reply may be lost."""

    alive: int
    incarnation: int
    message: Message | None
    run: Claim | None
    holds: tuple[Claim, ...]
    outcomes: tuple[tuple[Claim, str], ...]
    next: int
    begun: int
    dirty: bool
    sends: int


class Purge(NamedTuple):
    """A purge at work. part: schedule or streams; made: tasks older than it; at: where it goes on."""

    part: str
    made: tuple[int, ...]
    at: int
    taken: int
    ends: tuple[tuple[int, int], ...]


class Ghost(NamedTuple):
    """What must never be undone. lives: accepted; final: how this life ended, or ''; barred: must not start.

    started: attempts; place: when it was queued; hole: a repeat may revive it (rule 11); born: nonces accepted.
    """

    lives: int
    final: str
    barred: int
    started: tuple[int, ...]
    place: int
    hole: int
    born: tuple[int, ...]


class Key(NamedTuple):
    """The idempotency record that all tasks of a scenario share."""

    state: str
    holder: int
    final: str


MAPS = ("entries", "pending", "last", "live", "records", "letters", "incarnations", "lease", "supervised", "stopped",
        "children", "producers", "nonces", "ghosts")  # fmt: skip
SHRINKING = ("entries", "pending", "live", "records", "letters", "lease")
SINGLE = ("next_entry", "unique", "key", "queued", "running", "paused", "sent", "graves", "late", "hand_back", "purge",
          "purges", "crash", "loss", "pause", "group", "cancel", "ttl", "lock_ttl", "key_ttl", "requeue", "reuse",
          "expired", "asked", "unlocked", "unkeyed", "waiting", "requeued", "next_letter")  # fmt: skip
STEADY = tuple(name for name in MAPS if name not in SHRINKING)


class Broken(Exception):
    """An invariant fails."""


class State:
    """One state; a step copies it and changes the copy."""

    __slots__ = MAPS + SINGLE
    entries: dict[int, int]  # -> task
    pending: dict[int, Consumer]  # entry ->
    last: dict[int, int]  # band -> last entry handed out; highest band first
    next_entry: int
    live: dict[int, Live]
    records: dict[int, tuple[str, int]]  # status (P, T retrying, S, D, C, X), attempt or dead letter
    letters: dict[int, int]  # dead letter -> task
    next_letter: int
    unique: int | None
    key: Key | None
    queued: int
    running: int
    paused: int  # 1 paused, 2 resumed
    sent: tuple[tuple[Consumer, int], ...]  # last send number of each consumer
    incarnations: dict[int, int]
    lease: dict[tuple[int, int], str]  # V valid, E expired (nobody noticed), D dead, G dead and reaped once
    supervised: dict[int, int]
    stopped: dict[int, int]  # 1 all of it, 2 the supervisor alone
    children: dict[int, Child]
    graves: tuple[tuple[Consumer, tuple[Any, ...]], ...]
    late: tuple[tuple[Any, Consumer], ...]  # what may still be applied although nobody waits for it
    hand_back: tuple[int, Consumer, tuple[Claim, ...], int] | None
    purge: Purge | None
    producers: dict[int, int]  # 0 not sent, 1 sent and unanswered, 2 answered
    nonces: dict[int, int]  # in the envelope of the task that has the id, or had it last
    ghosts: dict[int, Ghost]
    expired: tuple[int, ...]  # ttl over
    asked: tuple[int, ...]  # cancel promised
    unlocked: tuple[int, ...]  # unique lock lost to its ttl
    unkeyed: tuple[int, ...]  # the same of the idempotency record
    waiting: tuple[int, ...]  # since the purge began
    requeued: tuple[int, ...]  # dead letters
    # how many faults of a kind may still happen
    crash: int
    loss: int
    pause: int
    group: int
    cancel: int
    ttl: int
    lock_ttl: int
    key_ttl: int
    requeue: int
    reuse: int
    purges: int

    def copy(self) -> State:
        """A copy whose maps are its own; what they hold is never changed in place."""
        new = State.__new__(State)
        for name in MAPS:
            setattr(new, name, getattr(self, name).copy())
        for name in SINGLE:
            setattr(new, name, getattr(self, name))
        return new

    def fingerprint(self) -> int:
        """64-bit hash of the state (maps that lose names are sorted, the others keep their order)."""
        return hash((
            tuple([tuple(sorted(getattr(self, name).items())) for name in SHRINKING]),
            tuple([tuple(getattr(self, name).values()) for name in STEADY]),
            tuple([getattr(self, name) for name in SINGLE]),
        ))  # fmt: skip


def fresh(incarnation: int) -> Child:
    """A child that has just been forked."""
    return Child(1, incarnation, None, None, (), (), 1, 1, False, 0)


def initial(c: Config) -> State:
    """Workers are up, nothing is enqueued."""
    s = State()
    s.entries, s.pending, s.live, s.records, s.letters = {}, {}, {}, {}, {}
    s.last = dict.fromkeys(sorted(set(c.bands), reverse=True), 0)
    s.next_entry = s.next_letter = 1
    s.unique = s.key = s.hand_back = s.purge = None
    s.queued = s.running = s.paused = 0
    s.incarnations = dict.fromkeys(c.workers, 0)
    s.lease = {(worker, 0): "V" for worker in c.workers}
    s.supervised = dict.fromkeys(c.workers, 1)
    s.stopped = dict.fromkeys(c.workers, 0)
    s.children = {child: fresh(0) for child in range(len(c.children))}
    s.producers = dict.fromkeys(range(c.tasks), 0)
    s.nonces = dict.fromkeys(range(c.tasks), 0)
    s.ghosts = dict.fromkeys(range(c.tasks), Ghost(0, "", 0, (), 0, 0, ()))
    s.graves = s.late = s.sent = s.expired = s.asked = s.unlocked = s.unkeyed = s.waiting = s.requeued = ()
    for name in ("crash", "loss", "pause", "group", "cancel", "ttl", "lock_ttl", "key_ttl", "requeue", "reuse"):
        setattr(s, name, getattr(c, name))
    s.purges = c.purge
    return s


def worker_id(c: Config, s: State, worker: int) -> tuple[int, int]:
    """The id a worker has now."""
    return (worker, s.incarnations[worker] if c.rules.fresh_ids else 0)


def consumer(c: Config, s: State, child: int) -> Consumer:
    """The consumer that a child is now."""
    return (*worker_id(c, s, c.children[child]), child, s.children[child].incarnation if c.rules.fresh_ids else 0)


def waits(s: State, task: int) -> bool:
    """Whether a task is pending or retrying: in the schedule."""
    return s.records.get(task, " ")[0] in "PT"


def unended(s: State, task: int) -> bool:
    """Whether a task is known and not terminal."""
    return task in s.live or waits(s, task)
