"""Every Redis key dtq uses: a function, its type, its bound.

All keys of a queue carry the hash tag `{queue}`, so that it lives in one cluster slot.
The global keys are untagged and never touched by a queue's script; the workers' keys share the tag `{workers}`.
"""

import re

BANDS = range(10)
HOME_BAND = 5  # readers wait on it always, on others only once they are in use: their first use rings here
GROUP = "workers"
SHELF = "shelf"
PARKED = "parked"
LAYOUT = 1  # number of this key layout and wire format; a worker refuses a store with another one

_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Keys:
    """The keys under one prefix.

    Args:
        prefix: replaces the leading `dtq`; 1-64 of A-Za-z0-9._:-.

    Raises:
        ValueError: when the prefix holds other characters.
    """

    def __init__(self, prefix: str = "dtq") -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"prefix {prefix!r}: use 1 to 64 of A-Z a-z 0-9 . _ : -")
        self.prefix = prefix

    def stream(self, queue: str, band: int) -> str:
        """Stream: entries {id: envelope} of one priority band, group `workers`. Bound: the queued and running tasks."""
        return f"{self.prefix}:stream:{{{queue}}}:p{band}"

    def live(self, queue: str) -> str:
        """Hash: id -> live value of every queued or running task."""
        return f"{self.prefix}:live:{{{queue}}}"

    def task(self, queue: str, task_id: str) -> str:
        """String: record of a waiting or ended task, or history of a live one. Ttl: its retention, once ended."""
        return f"{self.prefix}:task:{{{queue}}}:{task_id}"

    def schedule(self, queue: str) -> str:
        """Sorted set: id -> due time in ms, of pending and retrying tasks. Also a channel: one came that is first."""
        return f"{self.prefix}:retry:schedule:{{{queue}}}"

    def schedules(self) -> str:
        """Glob pattern of the channels of all schedules (a prefix holds no character that it would have to escape)."""
        return self.schedule("*")

    def dead_letters(self, queue: str) -> str:
        """Stream: entries {id: record}. Bound: DTQ_DEAD_LETTER_MAX, trimmed ones counted."""
        return f"{self.prefix}:stream:dead-letter:{{{queue}}}"

    def idempotency(self, queue: str, key: str) -> str:
        """String: `state fingerprint id status` of an idempotency key. Ttl: the key's (24 h)."""
        return f"{self.prefix}:idempotency:{{{queue}}}:{key}"

    def unique(self, queue: str, fingerprint: str) -> str:
        """String: id of the task that holds a unique lock. Ttl: its unique_ttl; deleted with the task's end."""
        return f"{self.prefix}:unique:{{{queue}}}:{fingerprint}"

    def meta(self, queue: str) -> str:
        """Hash: counters, what is paused, bands in use, shelved bands, listeners, last yield. Bound: few fields."""
        return f"{self.prefix}:queue:{{{queue}}}:meta"

    def timings(self, queue: str) -> str:
        """Hash: task type -> sums of its attempts' times. Bound: 200 types, the others together."""
        return f"{self.prefix}:queue:{{{queue}}}:timings"

    def minutes(self, queue: str) -> str:
        """Hash: minute modulo 64 -> what happened in it, and `last`, the counters then. Bound: an hour."""
        return f"{self.prefix}:queue:{{{queue}}}:minutes"

    def sends(self, queue: str) -> str:
        """Hash: consumer -> last send number. Removed with the consumer."""
        return f"{self.prefix}:queue:{{{queue}}}:sends"

    def lost(self, queue: str) -> str:
        """Set: entries found missing, until the task naming them is found and ended."""
        return f"{self.prefix}:queue:{{{queue}}}:lost"

    def recent(self, queue: str, status: str) -> str:
        """List: newest ids that ended in `status`. Bound: DTQ_RECENT."""
        return f"{self.prefix}:queue:{{{queue}}}:recent:{status}"

    def workers(self) -> str:
        """Set: ids of workers with a lease, or with one not yet cleaned up."""
        return f"{self.prefix}:{{workers}}"

    def worker(self, worker_id: str) -> str:
        """String: the worker's lease and facts (JSON), or `dead`. Ttl: the lease; 1 h for the mark."""
        return f"{self.prefix}:{{workers}}:{worker_id}"

    def leader(self) -> str:
        """String: id of the worker that runs scheduler and reaper. Ttl: seconds."""
        return f"{self.prefix}:{{workers}}:leader"

    def queues(self) -> str:
        """Set: names of the known queues."""
        return f"{self.prefix}:queues"

    def layout(self) -> str:
        """String: layout number of what is stored under this prefix."""
        return f"{self.prefix}:layout"

    def once(self, key: str) -> str:
        """String: `processing <run>` or `done <result>` of a side effect that runs once. Ttl: the caller's."""
        return f"{self.prefix}:once:{key}"

    def events(self) -> str:
        """Pub/sub channel of task events (a name, not a key)."""
        return f"{self.prefix}:events"

    def cancels(self, worker_id: str) -> str:
        """Pub/sub channel that tells a worker of cancelled tasks it executes (a name, not a key)."""
        return f"{self.prefix}:{{workers}}:cancel:{worker_id}"

    def audit(self) -> str:
        """Stream: destructive acts. Bound: 10 000 entries."""
        return f"{self.prefix}:stream:audit"

    def of_queue(self, queue: str) -> list[str]:
        """The KEYS of every queue script, in the order of lua/parts/prelude.lua (the last five are key prefixes)."""
        return [
            self.live(queue),
            self.meta(queue),
            self.sends(queue),
            self.schedule(queue),
            self.dead_letters(queue),
            self.lost(queue),
            self.stream(queue, 0)[:-1],
            self.recent(queue, ""),
            self.task(queue, ""),
            self.idempotency(queue, ""),
            self.unique(queue, ""),
        ]
