"""The model: what the lifecycle says of every task, told what was asked and what then stood in Redis.

It does not follow the scripts. After each verb it looks at every task's old and new status and asks whether this verb
was allowed to do that, keeps what must never be undone (starts, promises, ends, charges), and from that says what
counters, locks and records must be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dtq._core import Claim
from dtq.keys import PARKED, SHELF
from dtq.models import VALID_TRANSITIONS, TaskStatus
from tests.model.actors import Ended
from tests.model.observing import RECENT, STATUS, Live, Seen

SETTLED = {"S": "succeeded", "R": "retrying", "F": "failed", "D": "dead_lettered", "C": "cancelled", "L": "queued"}


@dataclass(slots=True)
class Offer:
    """One task as its producer offers it."""

    id: str
    band: int
    envelope: bytes
    place: str
    retention_ms: int
    max_attempts: int
    dead_letter: bool
    given: bool = False
    unique: str = ""
    key: str = ""
    fingerprint: str = ""
    delayed: bool = False
    overdue: bool = False
    task_type: str = ""


@dataclass(slots=True)
class Life:
    """One accepted task. charges: attempts that count against max_attempts and are over."""

    offer: Offer
    status: str
    charges: int = 0
    starts: set[int] = field(default_factory=set)
    attempt: int = 1
    asked: bool = False
    barred: bool = False
    overdue: bool = False
    regrouped: bool = False
    purged: bool = False
    discarded: bool = False

    @property
    def kept(self) -> bool:
        """Whether an ended task has a record."""
        return not self.purged and (self.status != "succeeded" or self.offer.retention_ms > 0)

    @property
    def ended(self) -> bool:
        """Whether the status is terminal."""
        return self.status in RECENT


@dataclass(frozen=True, slots=True)
class Settled:
    """What a turn must say of an outcome. applied: it is the one that ends the attempt."""

    ended: Ended
    code: str
    applied: bool


@dataclass(slots=True)
class Moves:
    """Consumers whose claims a verb moves to the shelf, and which of them."""

    consumers: set[str] = field(default_factory=set)
    begun_below: int = 0  # claims with a lower number had begun
    first: int = 0  # a hand-back takes only this range
    beyond: int = 1 << 62
    executing: set[int] = field(default_factory=set)  # numbers of the claims that are charged
    idle: bool = False  # the child died with nothing executing: what it had claimed alone is charged (protocol 19)
    reaps: bool = False


class Lifecycle:
    """All tasks of one queue, and what they leave behind."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.counters: Counter[str] = Counter()
        self.started = 0  # the counter, as last seen
        self.unique: dict[str, str] = {}
        self.idempotency: dict[str, tuple[str, str, str]] = {}  # key -> fingerprint, id, final status or ''
        self.purging: set[str] = set()  # what has waited since the purge began

    # --- what a verb must answer

    def answer(self, offer: Offer, repeat: bool, seen: Seen, room: int, scheduled_room: int) -> tuple[str, str, bool]:
        """Code and detail of an enqueue, and whether a new task is born (spec §3, protocol 11)."""
        if (offer.given or repeat) and seen.status(offer.id) is not None:
            same = self.lives[offer.id].offer.envelope == offer.envelope
            return ("a" if same or not offer.given else "e"), "", False
        if offer.key in self.idempotency:
            fingerprint, holder, status = self.idempotency[offer.key]
            if holder == offer.id and repeat:
                return "a", "", False
            if fingerprint != offer.fingerprint:
                return "r", "", False
            return ("d", f"{holder} {status}", False) if status else ("i", holder, False)
        if self.unique.get(offer.unique, offer.id) != offer.id:
            return "u", self.unique[offer.unique], False
        if (scheduled_room if offer.delayed else room) <= 0:
            return ("p" if offer.delayed else "f"), "", False
        return "a", "", True

    def settled(self, outcomes: list[Ended], seen: Seen) -> list[Settled]:
        """What a turn must say of outcomes (protocol 17)."""
        return [self._settled(item, seen) for item in outcomes]

    def _settled(self, item: Ended, seen: Seen) -> Settled:
        token = item.claim.token.decode()
        names = (token, token + "c")
        live = seen.live.get(item.claim.id)
        if live is not None:
            if live.raw not in names:
                return Settled(item, "s", False)
            return Settled(item, "c" if live.flagged else "d", True)
        record = seen.records.get(item.claim.id)
        if record is None:
            return Settled(item, "g", False)
        return Settled(item, "d" if record.token.decode() in names else "s", False)

    def cancelled(self, task_id: str, seen: Seen) -> str:
        """What a cancel must answer (spec §5)."""
        status = seen.status(task_id)
        if status is None:
            return "unknown"
        if status in RECENT:
            return f"terminal:{status}"
        if self._redelivered(task_id, seen):
            return "cancelled"  # it waits on the shelf, its worker is gone
        if status == "running" or (status == "queued" and seen.holder(task_id) not in (None, SHELF, PARKED)):
            return "requested"
        return "cancelled"

    def _redelivered(self, task_id: str, seen: Seen) -> bool:
        live = seen.live.get(task_id)
        return live is not None and live.kind == "r" and seen.holder(task_id) in (SHELF, PARKED) and seen.waits(task_id)

    def requeued(self, entry: str, task_id: str, seen: Seen) -> tuple[str, str]:
        """What the requeue of a dead letter must answer (spec §7, protocol 12)."""
        offer, status = self.lives[task_id].offer, seen.status(task_id)
        if status in ("pending", "queued", "running", "retrying"):
            return "live", str(STATUS.index(status))
        if status is not None and status != "dead_lettered":
            return "ended", str(STATUS.index(status))
        if (entry, task_id) not in seen.dead:
            return "gone", ""
        if self.unique.get(offer.unique, task_id) != task_id:
            return "unique", self.unique[offer.unique]
        if offer.key in self.idempotency and self.idempotency[offer.key][1] != task_id:
            return "key", self.idempotency[offer.key][1]
        return "requeued", ""

    def waiting(self) -> list[str]:
        """Tasks that a purge takes."""
        return [task_id for task_id, life in self.lives.items() if life.status in ("pending", "queued", "retrying")]

    # --- what was done

    def accept(self, offer: Offer) -> None:
        """A task is born."""
        assert offer.id not in self.lives or self.lives[offer.id].ended
        status = "pending" if offer.delayed else "queued"
        self.lives[offer.id] = Life(offer, status, overdue=offer.overdue)
        self.counters["submitted"] += 1
        self._take_locks(offer)

    def _take_locks(self, offer: Offer) -> None:
        if offer.unique:
            self.unique[offer.unique] = offer.id
        if offer.key:
            first = self.idempotency.get(offer.key)
            kept = first is not None and first[1] == offer.id
            self.idempotency[offer.key] = (first[0] if first and kept else offer.fingerprint, offer.id, "")

    def revive(self, task_id: str) -> None:
        """A dead letter is queued again: the operator's named exception (spec §1)."""
        old = self.lives[task_id]
        assert old.status == "dead_lettered"
        self.lives[task_id] = Life(old.offer, "queued", regrouped=old.regrouped)
        self.counters["requeued"] += 1
        self._take_locks(old.offer)

    def discard(self, task_id: str) -> None:
        """A dead letter is taken off its stream."""
        self.lives[task_id].discarded = True
        self.counters["discarded"] += 1

    def start(self, claim: Claim, seen: Seen, others: list[Claim]) -> None:
        """A handler starts. others: what runs in children whose lease is valid."""
        life = self.lives[claim.id]
        assert not life.barred, f"{claim.id} starts after its cancel was answered `cancelled` or it expired"
        assert claim.attempt not in life.starts, f"attempt {claim.attempt} of {claim.id} starts twice"
        assert claim.attempt - claim.released <= life.offer.max_attempts, f"{claim.id}: too many charged attempts"
        assert claim.id not in [other.id for other in others], f"{claim.id} runs twice at a time"
        live = seen.live.get(claim.id)
        assert live is not None, f"{claim.id} starts and is not live"
        assert live.raw in (claim.token.decode(), claim.token.decode() + "c"), (
            f"{claim.id}: the live value names another"
        )
        life.starts.add(claim.attempt)

    def judge(
        self, before: Seen, after: Seen, verb: str, settled: list[Settled] | None = None, moves: Moves | None = None
    ) -> None:
        """Look at what a verb did to every task."""
        applied = {item.ended.claim.id: item for item in settled or () if item.applied}
        for task_id, life in self.lives.items():
            new = after.status(task_id)
            if life.ended:
                assert new == (life.status if life.kept else None), f"{task_id} had ended {life.status} and is {new}"
                continue
            old = before.live.get(task_id)
            why = f"{verb}: {task_id} was {life.status} ({old and old.raw}), is {new}"
            if task_id in applied:
                new = self._judge_settled(life, applied[task_id], new, why)
            elif verb == "purge" and new is None:
                new = self._judge_purged(life, old, why)
            elif moves is not None and old is not None:
                self._judge_moved(life, old, before, after, new, moves, why)
            else:
                self._judge_other(life, old, before, new, verb, why)
            assert new is not None, why
            self._enter(life, new, after.live.get(task_id), why)

    def _judge_purged(self, life: Life, old: Live | None, why: str) -> str:
        assert life.status in ("pending", "queued", "retrying"), why
        assert old is None or old.kind == "q", why
        life.purged = life.barred = True
        self.counters["purged"] += 1
        return "cancelled"

    def _judge_settled(self, life: Life, item: Settled, new: str | None, why: str) -> str:
        letter = item.ended.letter
        why += f", settled {letter}"
        if item.code == "c":
            assert new == "cancelled", why
            return "cancelled"
        if letter == "S" and life.offer.retention_ms == 0:
            assert new is None, why
            return "succeeded"
        if letter == "L":
            assert new in ("queued", "running"), why
            self.counters["released"] += 1
            return str(new)
        assert new == SETTLED[letter], why
        if letter == "R":
            self.counters["retried"] += 1
            life.charges += item.ended.charged
        return SETTLED[letter]

    def _judge_moved(
        self, life: Life, old: Live, before: Seen, after: Seen, new: str | None, moves: Moves, why: str
    ) -> None:
        holder = before.holder(life.offer.id)
        touched = holder in moves.consumers and not (old.kind == "q" and moves.beyond < 1 << 62)
        if old.kind == "r" and (old.consumer != holder or not moves.first <= old.seq < moves.beyond):
            touched = False
        if not touched or before.waits(life.offer.id):
            assert new == life.status, why
            return
        begun = moves.reaps or old.seq < moves.begun_below
        if old.kind == "r" and begun and not old.flagged:
            assert new == "running", why
            assert after.waits(life.offer.id), why
            life.charges += old.seq in moves.executing or (moves.idle and "s;" in old.tail)
            return
        assert new == ("cancelled" if old.flagged else "queued"), why
        if old.kind == "r" and not begun:
            # Only where the group was lost may a started claim come back as never started (see README).
            assert old.attempt not in life.starts or life.regrouped, why
            life.starts.discard(old.attempt)

    def _judge_other(self, life: Life, old: Live | None, before: Seen, new: str | None, verb: str, why: str) -> None:
        status = life.status
        if new == status:
            return
        assert new is not None, why
        waits = before.waits(life.offer.id)
        if verb == "cancel":
            assert new == "cancelled", why
            life.barred = True
        elif new == "cancelled":
            assert verb == "turn", why
            assert life.asked, why
            # running: a claim whose reply was lost, met by the recovery of its own child, which has not begun it
            assert status == "queued" or waits or (old is not None and old.flagged), why
        elif new == "expired":
            assert life.overdue, why
            assert verb == ("turn" if status == "queued" else "promote"), why
            life.barred = True
            if status == "retrying":  # two legal moves in one script: by way of queued
                return
        elif new in ("failed", "dead_lettered"):
            assert verb == "turn", why
            assert waits, why
            assert life.charges >= life.offer.max_attempts, f"{why}: charged {life.charges} only"
            assert new == ("dead_lettered" if life.offer.dead_letter else "failed"), why
        elif new == "queued":
            assert verb == "promote", why
            assert not life.overdue, why
        else:
            assert (verb, status, new) == ("turn", "queued", "running"), why
            assert not life.asked, why
            assert not life.overdue, why
        assert TaskStatus(new) in VALID_TRANSITIONS[TaskStatus(status)], why

    def _enter(self, life: Life, new: str, live: Live | None, why: str) -> None:
        life.status = new
        if life.asked:
            kept = new == "cancelled" or (live is not None and live.flagged)
            assert kept, f"{why}: the promised cancel is forgotten"
        if live is not None:
            assert live.attempt >= life.attempt, f"{why}: attempt went from {life.attempt} to {live.attempt}"
            life.attempt = live.attempt
        if new not in ("pending", "queued", "retrying"):
            self.purging.discard(life.offer.id)
        if not life.ended:
            return
        offer = life.offer
        self.counters[new] += 1
        if self.unique.get(offer.unique) == offer.id:
            del self.unique[offer.unique]
        if offer.key in self.idempotency and self.idempotency[offer.key][1] == offer.id:
            self.idempotency[offer.key] = (self.idempotency[offer.key][0], offer.id, new)
