"""What the protocol adds to a naive queue, rule by rule, and the settings of one search.

All rules on is the protocol; one off is the natural way to do without it, and some scenario shows what that breaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Rules(NamedTuple):
    """On (True) or left out, one by one."""

    adopt_checks_owner: bool = True
    """Adopt refuses an entry that is no longer in the adopter's own pending list."""
    absorb_spares_live: bool = True
    """An absorber acks an entry only if the live hash does not name it."""
    recover_after_loss: bool = True
    """The turn after a lost reply first returns what its pending list holds that the child does not know."""
    recover_renumbers: bool = True
    """Claims returned by that recovery get new claim numbers."""
    repeat_is_known: bool = True
    """An adopting turn that was applied already returns the same claim again."""
    full_token: bool = True
    """Fence = (attempt, entry, consumer, claim number), not (attempt, worker)."""
    dead_is_final: bool = True
    """The reaper declares a worker dead; renewal never resurrects that id."""
    start_checks_lease: bool = True
    """A child looks at its worker's lease deadline right before each start."""
    slot_watermark: bool = True
    """The slot tells begun claims (watermark), not just the current one."""
    revoke_first: bool = True
    """A hand-back revokes claims in the slot before the script is sent."""
    fresh_ids: bool = True
    """Worker and child ids are never reused."""
    kill_connection: bool = True
    """Before a repeat or a hand-over the old connection is closed, so no late copy arrives."""
    send_numbers: bool = True
    """Every send of a turn has a growing number; the script ignores one that is not above the last."""
    sweep: bool = True
    """Hand-over and reaping are repeated while pending lists name consumers that are not alive."""
    end_acks: bool = True
    """Cancel, expire and purge ack the entry as well as delete it."""
    flag_survives: bool = True
    """Hand-back, redelivery and any settle of a task with cancel_requested end it cancelled."""
    release_compares: bool = True
    """A unique lock is deleted only by the task that holds it."""
    give_to_owner: bool = True
    """An entry read as new (group lost) whose task runs elsewhere goes to its owner's pending list."""
    delivered_counts: bool = True
    """A start before the claim: cancel, reaper and hand-over count a delivered entry as running."""
    # repeats of an enqueue, and ids that are used again
    repeat_sees_ended: bool = True
    """A repeated chunk finds the records of ended tasks, not just what is live."""
    ends_leave_records: bool = True
    """What ended cancelled, failed or expired keeps a record for a while, also with retention 0."""
    nonce: bool = True
    """A given id carries a nonce in its envelope, to tell a repeat from a conflict."""
    # bands and order
    high_band_first: bool = True
    """A turn looks at the bands from the highest down."""
    shelf_first: bool = True
    """In its band, the shelf is looked at before the stream."""
    shelf_before_adopted: bool = True
    """What a reader got goes to the shelf where older work waits there."""
    entry_kept: bool = True
    """What comes back keeps its entry, and so its place; it is not added to the stream again."""
    # idempotency records
    key_answers: bool = True
    """A standing idempotency record answers for its key: in progress, or the stored end."""
    key_ends: bool = True
    """Every end of a task settles its idempotency record, not only a success or a failure."""
    key_compares: bool = True
    """An idempotency record is changed only by the task that it names."""
    key_knows_repeat: bool = True
    """A repeat of the very task that the record names counts as accepted, although it has ended."""
    key_reopened: bool = True
    """A requeue sets the idempotency record back to processing."""
    # purge
    purge_schedule_first: bool = True
    """A purge empties the schedule before it reads where the streams end."""
    purge_cursor: bool = True
    """A purge remembers the task at which it goes on in the schedule, not how many it has passed over."""
    purge_frees: bool = True
    """A purge releases locks and settles idempotency records."""
    purge_owns: bool = True
    """A purge ends only what is queued, and leaves alone what runs."""
    # dead letters
    requeue_names_letter: bool = True
    """A requeue names the dead letter's entry, and checks that it stands."""
    requeue_takes_lock: bool = True
    """A requeue takes the unique lock again, by compare."""


ALL = Rules()


def without(*names: str) -> Rules:
    """All rules but these."""
    return Rules(**dict.fromkeys(names, False))


@dataclass(frozen=True, slots=True)
class Config:
    """Size of one search: tasks, workers, children, options, and how many faults of each kind may happen.

    workers: number of each worker; children: the worker of each child; bands: of each task; `batch` tasks a claim.
    """

    rules: Rules = ALL
    tasks: int = 1
    workers: tuple[int, ...] = (0, 1)
    children: tuple[int, ...] = (0, 1)
    bands: tuple[int, ...] = (0, 0)
    delayed: tuple[int, ...] = ()
    max_attempts: int = 2
    batch: int = 1
    retention: int = 0
    unique: bool = False
    key: bool = False
    fail: bool = False
    hand_back: bool = False
    optimistic: bool = False  # the handler starts before its claim: what rule 14 forbids
    recover_always: bool = False  # every turn carries `recover`, not only the one after a lost reply
    numbers: bool = False  # turns are numbered
    discard: bool = False
    # faults
    crash: int = 0
    loss: int = 0
    pause: int = 0
    queue_pause: int = 0
    group: int = 0
    cancel: int = 0
    ttl: int = 0
    lock_ttl: int = 0
    key_ttl: int = 0
    requeue: int = 0
    reuse: int = 0  # a given id is used again
    purge: int = 0
