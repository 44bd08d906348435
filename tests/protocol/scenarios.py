"""Scenarios: how large a search is, which faults happen in it, and which of them shows what a rule is for."""

from __future__ import annotations

from typing import Any

ONE: dict[str, Any] = {"workers": (0,), "children": (0,)}
PAIR: dict[str, Any] = {"workers": (0,), "children": (0, 0)}
BATCH: dict[str, Any] = {"tasks": 2, "batch": 2, **PAIR}

SCENARIOS: dict[str, dict[str, Any]] = {
    # name: settings. Two workers with one child each unless said.
    "crash": {"crash": 2},
    "crash-batch": {**BATCH, "crash": 1},
    "loss": {"loss": 2},
    "loss-kept": {"loss": 2, "retention": 1},
    "loss-batch": {"tasks": 2, "batch": 2, **ONE, "loss": 1},
    "pause": {"pause": 2},
    "pause-crash": {"pause": 1, "crash": 1},
    "pause-cancel": {"pause": 1, "cancel": 1, "crash": 1},
    "crash-loss": {"crash": 1, "loss": 1},
    "retry": {"fail": True, "crash": 1, "loss": 1, "retention": 1},
    "cancel": {"cancel": 2, "crash": 1, "fail": True, "delayed": (0,), "retention": 1},
    "expire": {"ttl": 1, "crash": 1, "pause": 1},
    "handback": {**BATCH, "hand_back": True},
    "handback-loss": {**BATCH, "hand_back": True, "loss": 1},
    "handback-cancel": {**BATCH, "hand_back": True, "cancel": 1},
    "queue-pause": {"queue_pause": 1, "crash": 1},
    "unique": {"tasks": 2, "unique": True, "crash": 1, **ONE, "workers": (0, 1), "lock_ttl": 1},
    "group-lost": {"group": 1, "crash": 1},
    "reconcile": {"loss": 1, "crash": 1, "recover_always": True},
    "reconcile-handback": {**BATCH, "hand_back": True, "loss": 1, "recover_always": True},
    "numbered": {"loss": 1, "crash": 1, "recover_always": True, "numbers": True},
    "numbered-handback": {**BATCH, "hand_back": True, "loss": 1, "recover_always": True, "numbers": True},
    "three": {"children": (0, 0, 1), "crash": 1},
    "two-tasks": {"tasks": 2, "crash": 1},
    # a repeat, and an id that is used again
    "repeat": {"loss": 1, "cancel": 1, "fail": True, "max_attempts": 1, **ONE},
    "repeat-purge": {"loss": 1, "purge": 1, "delayed": (0,), **ONE},
    "reuse": {"reuse": 1, "loss": 1, **ONE},
    "reuse-crash": {"reuse": 1, "crash": 1, **PAIR},
    # bands and order
    "order": {"tasks": 2, "crash": 1, **PAIR},
    "order-one": {"tasks": 2, "crash": 1, **ONE},
    "order-handback": {**BATCH, "tasks": 3, "bands": (0, 0, 0), "hand_back": True},
    "order-retry": {"tasks": 2, "fail": True, **ONE},
    "bands": {"tasks": 2, "bands": (0, 1), **PAIR},
    "bands-crash": {"tasks": 2, "bands": (0, 1), "crash": 1, **PAIR},
    "bands-loss": {"tasks": 2, "bands": (1, 0), "loss": 1, "batch": 2, **ONE},
    "bands-pause": {"tasks": 2, "bands": (0, 1), "queue_pause": 1, **PAIR},
    # idempotency records
    "key": {"tasks": 2, "key": True, "cancel": 1, "fail": True, "max_attempts": 1, **ONE},
    "key-loss": {"tasks": 2, "key": True, "loss": 1, **ONE},
    "key-ttl": {"tasks": 2, "key": True, "key_ttl": 1, "crash": 1, **ONE},
    "key-requeue": {"tasks": 2, "key": True, "requeue": 1, "fail": True, "max_attempts": 1, "key_ttl": 1, **ONE},
    "key-reuse": {"key": True, "reuse": 1, "loss": 1, **ONE},
    # purge
    "purge": {"purge": 1, "crash": 1, **PAIR},
    "purge-schedule": {"tasks": 2, "purge": 1, "delayed": (0, 1), **ONE},
    "purge-handback": {**BATCH, "purge": 1, "hand_back": True},
    "purge-retry": {"purge": 1, "fail": True, "cancel": 1, **PAIR},
    "purge-bands": {"tasks": 2, "purge": 1, "bands": (0, 1), "delayed": (0,), **ONE},
    "purge-locks": {"tasks": 2, "purge": 1, "unique": True, "key": True, "lock_ttl": 1, "key_ttl": 1, **ONE},
    "purge-loss": {"purge": 1, "loss": 1, **PAIR},
    "purge-group": {"tasks": 2, "purge": 1, "group": 1, **ONE},
    # dead letters
    "requeue": {"requeue": 1, "pause": 1, "crash": 1, "max_attempts": 1, "fail": True},
    "requeue-loss": {"requeue": 2, "loss": 1, "max_attempts": 1, "fail": True, "discard": True, **ONE},
    "requeue-unique": {"tasks": 2, "requeue": 1, "max_attempts": 1, "fail": True, "unique": True, **ONE},
    "requeue-reuse": {"requeue": 1, "reuse": 1, "max_attempts": 1, "fail": True, "loss": 1, **ONE},
    # a handler that starts before its claim, which rule 14 forbids
    "optimistic": {"optimistic": True, "cancel": 1, "crash": 1},
    "optimistic-pause": {"optimistic": True, "pause": 1, "cancel": 1},
    "optimistic-crash": {"optimistic": True, "crash": 2},
    "optimistic-loss": {"optimistic": True, "loss": 1, "crash": 1},
}

# Which scenarios show what a rule that is left out breaks.
NAIVE = {
    "recover_after_loss": "loss",
    "recover_renumbers": "handback-loss",
    "repeat_is_known": "optimistic-loss",
    "kill_connection": "loss reconcile-handback numbered-handback",  # the last: send numbers instead, clean
    "send_numbers,kill_connection": "numbered-handback",
    "adopt_checks_owner,kill_connection,shelf_before_adopted": "numbered",
    "adopt_checks_owner,absorb_spares_live": "pause",
    "dead_is_final": "pause",
    "fresh_ids": "crash",
    "sweep": "pause crash",
    "slot_watermark": "crash",
    "revoke_first": "handback",
    "full_token": "handback-loss",
    "end_acks": "cancel purge-handback",
    "flag_survives": "handback-cancel",
    "release_compares": "unique",
    "give_to_owner": "group-lost",
    "delivered_counts": "optimistic optimistic-crash",
    "start_checks_lease": "pause pause-cancel",
    "repeat_sees_ended": "loss-kept repeat",
    "ends_leave_records": "repeat",
    "nonce": "reuse",
    "high_band_first": "bands",
    "shelf_first": "order-one",
    "shelf_before_adopted": "order",
    "entry_kept,give_to_owner": "order-one",
    "key_answers": "key",
    "key_ends": "key",
    "key_compares": "key-ttl",
    "key_knows_repeat": "key-loss",
    "key_reopened": "key-requeue",
    "purge_schedule_first": "purge-schedule",
    "purge_cursor": "purge-schedule",
    "purge_frees": "purge-locks",
    "purge_owns": "purge",
    "requeue_names_letter": "requeue-loss",
    "requeue_takes_lock": "requeue-unique",
}
