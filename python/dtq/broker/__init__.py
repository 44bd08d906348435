"""The broker: every verb on Redis, for producers, workers and readers. The only part that knows keys and scripts.

calls.py       what the verbs share: transports, the packed front of each script's command, server checks
producing.py   enqueue, states, inspect, events
cancelling.py  cancel one, several, or by filter; how a worker learns of it
working.py     turn, hand-over, hand-back, promote, lost entries
reader.py      a waiting child's blocking read, and the adoption behind it
leasing.py     a worker's lease, the lead, declaring the dead, reaping
looking.py     many queues at once: which hold tasks, have work, use which bands
listing.py     slices of tasks by status, and what consumers hold: for people
counting.py    queues in figures, timings by task type and minute, refused enqueues
reading.py     which queues there are
operating.py   run now, delete, dead letters, pause and resume, purge
auditing.py    the audit stream
values.py      what the verbs answer
"""

from dtq.broker.cancelling import LIVE, WAITING, Cancelling, Notes
from dtq.broker.leasing import Leasing
from dtq.broker.listing import Listing, Slice
from dtq.broker.looking import Look
from dtq.broker.operating import Operating
from dtq.broker.producing import Producing, Subscription
from dtq.broker.reader import Delivery, Reader
from dtq.broker.reading import Reading
from dtq.broker.values import (
    Answer,
    AuditEntry,
    CancelCounts,
    CancelNote,
    DueNote,
    Held,
    QueueCounts,
    ServerInfo,
    Snapshot,
    WorkerInfo,
)


class Broker(Producing, Cancelling, Leasing, Listing, Reading, Operating):
    """All verbs on one Redis (or on the embedded store), safe for threads and across forks."""


__all__ = [
    "LIVE",
    "WAITING",
    "Answer",
    "AuditEntry",
    "Broker",
    "CancelCounts",
    "CancelNote",
    "Delivery",
    "DueNote",
    "Held",
    "Look",
    "Notes",
    "QueueCounts",
    "Reader",
    "ServerInfo",
    "Slice",
    "Snapshot",
    "Subscription",
    "WorkerInfo",
]
