"""What must hold after every step, of Redis alone and of Redis beside the model."""

from __future__ import annotations

from dtq.broker import Broker
from dtq.keys import BANDS, PARKED, SHELF
from tests.broker.driver import QUEUE
from tests.model.lifecycle import Life, Lifecycle
from tests.model.observing import RECENT, STATUS, Seen

CLAIMS = {
    "started", "attempts_failed", "attempts_dead_lettered", "attempts_cancelled", "attempts_lost", "handed_back",
    "redelivered", "ended_unclaimed",
}  # fmt: skip
"""Counters of what became of claims."""
COUNTED = ("submitted", "released", "retried", "requeued", "discarded", "purged", *RECENT)


def check(model: Lifecycle, seen: Seen, broker: Broker) -> None:
    """Every invariant of one look."""
    for task_id, life in model.lives.items():
        _check_place(task_id, life, seen)
        _check_attempts(task_id, life, seen)
        _check_end(task_id, life, seen, broker)
    _check_entries(model, seen)
    _check_locks(model, seen, broker)
    _check_lists(model, seen)
    _check_keys(model, seen, broker)
    for name in COUNTED:
        assert int(seen.meta.get(name, 0)) == model.counters[name], f"counter {name} is {seen.meta.get(name)}"
    for name in ("absorbed", "strays", "dead_letters_trimmed"):
        assert name not in seen.meta, f"{name}: {seen.meta[name]}"


def _check_place(task_id: str, life: Life, seen: Seen) -> None:
    """One place for a task that has not ended, and none for one that has."""
    scheduled = task_id in seen.schedule
    assert scheduled == (life.status in ("pending", "retrying")), f"{task_id} is {life.status}, scheduled: {scheduled}"
    live = seen.live.get(task_id)
    assert (live is not None) == (life.status in ("queued", "running")), f"{task_id} is {life.status}: {live}"
    named = seen.named(task_id)
    assert named == ([(life.offer.band, live.entry)] if live else []), f"{task_id}: entries {named}, live {live}"
    if live is None:
        return
    holder = seen.holder(task_id)
    assert holder is not None or seen.undelivered(named[0]), f"{task_id} was delivered and is in no pending list"
    if holder is not None and live.kind == "r":
        waits = seen.waits(task_id)
        assert (holder in (SHELF, PARKED)) <= waits, f"{task_id} runs and lies on the shelf"


def _check_attempts(task_id: str, life: Life, seen: Seen) -> None:
    """attempt - released is what was charged, and one more for an attempt that is not over."""
    live, record = seen.live.get(task_id), seen.records.get(task_id)
    if live is not None:
        over = seen.waits(task_id)
        charged = live.attempt - live.released - (not over)
    elif life.status == "retrying" and record is not None:
        charged = record.attempt - record.released
    else:
        return
    assert charged == life.charges, f"{task_id}: {charged} charged attempts by Redis, {life.charges} by the model"
    assert life.charges <= life.offer.max_attempts, f"{task_id}: more attempts than max_attempts"


def _check_end(task_id: str, life: Life, seen: Seen, broker: Broker) -> None:
    """An ended task keeps its record as long as it says; a dead letter stands in the stream that its record names."""
    record = seen.records.get(task_id)
    if not life.ended:
        return
    if not life.kept:
        assert record is None, f"{task_id} ended {life.status}: a record in spite of retention 0 or a purge"
        return
    assert record is not None, f"{task_id} ended {life.status} and has no record"
    assert seen.expires[broker.keys.task(QUEUE, task_id)], f"{task_id}: its record never expires"
    if life.status == "dead_lettered":
        place = record.place.decode()
        stands = (place, task_id) in seen.dead
        assert place == "discarded" if life.discarded else stands, f"{task_id}: its dead letter is at {place}"


def _check_entries(model: Lifecycle, seen: Seen) -> None:
    for entry, name in seen.entries.items():
        assert name == "" or name in seen.live, f"entry {entry} of {name} has no live value"
    for entry, consumer in seen.pending.items():
        assert entry in seen.entries, f"{consumer} holds {entry}, which is gone"
    assert seen.live.keys() <= model.lives.keys()


def _check_locks(model: Lifecycle, seen: Seen, broker: Broker) -> None:
    """Unique locks and idempotency records stand exactly as long as they should, each with a ttl."""
    assert seen.unique == model.unique, f"unique locks {seen.unique}, should be {model.unique}"
    should = {}
    for key, (fingerprint, task_id, status) in model.idempotency.items():
        state = "completed" if status == "succeeded" else "failed" if status else "processing"
        should[key] = f"{state} {fingerprint} {task_id}" + (f" {status}" if status else "")
    assert seen.idempotency == should, f"idempotency records {seen.idempotency}, should be {should}"
    for key in (
        *(broker.keys.unique(QUEUE, name) for name in seen.unique),
        *(broker.keys.idempotency(QUEUE, name) for name in seen.idempotency),
    ):
        assert seen.expires[key], f"{key} never expires"


def _check_lists(model: Lifecycle, seen: Seen) -> None:
    """Every kept end stands once on the recent list of its status; counters of ends count lives, ids come twice only
    where a given id was used again."""
    for status in RECENT:
        listed = set(seen.recent[status])
        ended = {task_id for task_id, life in model.lives.items() if life.status == status and life.kept}
        assert ended <= listed, f"recent {status} misses {ended - listed}"
        assert len(seen.recent[status]) <= model.counters[status]
    gone = model.counters["requeued"] + model.counters["discarded"]
    assert len(seen.dead) == model.counters["dead_lettered"] - gone


def _check_keys(model: Lifecycle, seen: Seen, broker: Broker) -> None:
    """No key without an owner."""
    keys = broker.keys
    known = {
        keys.live(QUEUE), keys.meta(QUEUE), keys.sends(QUEUE), keys.schedule(QUEUE), keys.dead_letters(QUEUE),
        keys.workers(), keys.queues(), keys.layout(), keys.audit(), *(keys.recent(QUEUE, status) for status in RECENT),
        *(keys.stream(QUEUE, band) for band in BANDS), *(keys.task(QUEUE, task_id) for task_id in model.lives),
        *(keys.unique(QUEUE, name) for name in model.unique),
        *(keys.idempotency(QUEUE, name) for name in model.idempotency),
    }  # fmt: skip
    litter = {key for key in seen.keys - known if not key.startswith(keys.worker("")) and "{beside}" not in key}
    assert not litter, f"keys without an owner: {litter}"
    for task_id, record in seen.records.items():
        life = model.lives[task_id]
        if record.status == 0:
            assert task_id in seen.live, f"{task_id}: history of a task that is not live"
        else:
            assert life.status not in ("queued", "running"), f"{task_id} is live and has a record"


def _check_claims(totals: dict[str, int], seen: Seen) -> None:
    """Every claim has ended in one way, or runs; after a death its task waits, was claimed again, or has ended."""
    waits = sum(live.kind == "r" and seen.waits(task_id) for task_id, live in seen.live.items())
    runs = sum(live.kind == "r" for live in seen.live.values()) - waits
    ends = ("succeeded", "retried", "released", *sorted(CLAIMS - {"started", "redelivered", "ended_unclaimed"}))
    ended = {name: totals.get(name, 0) for name in ends}
    assert totals.get("started", 0) == sum(ended.values()) + runs, f"{totals}, {runs} run"
    lost = totals.get("redelivered", 0) + totals.get("ended_unclaimed", 0) + waits
    assert totals.get("attempts_lost", 0) == lost, f"{totals}, {waits} wait"


def check_figures(model: Lifecycle, seen: Seen, broker: Broker, paused: set[str]) -> None:
    """What people are shown (`dtq status`, the states of handles) equals a recount of the model."""
    counts = broker.queue_counts(QUEUE)
    statuses = [life.status for life in model.lives.values()]
    shown = (counts.waiting, counts.running, counts.scheduled, counts.retrying, counts.dead)
    recount = (
        statuses.count("queued"), statuses.count("running"), statuses.count("pending") + statuses.count("retrying"),
        statuses.count("retrying"), len(seen.dead),
    )  # fmt: skip
    assert shown == recount, f"waiting, running, scheduled, retrying, dead: {shown}, should be {recount}"
    totals = {name: count for name, count in counts.totals.items() if count and name not in CLAIMS}
    assert totals == +model.counters
    _check_claims(counts.totals, seen)
    assert counts.totals.get("started", 0) >= model.started, "the counter of starts went back"
    model.started = counts.totals.get("started", 0)
    assert (counts.paused, set(counts.paused_types)) == ("" in paused, paused - {""})
    assert (counts.next_due_ms is None) == (not seen.schedule)
    ids = list(model.lives)
    shown_states = [STATUS[code - ord("0")] for code in broker.states(QUEUE, ids)]
    should = [life.status if not life.ended or life.kept else STATUS[0] for life in model.lives.values()]
    assert shown_states == should, f"states {shown_states}, should be {should}"
