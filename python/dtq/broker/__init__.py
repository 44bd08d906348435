"""The broker: every verb on Redis, for producers, workers and readers. The only part that knows keys and scripts.

calls.py       what the verbs share: transports, the packed front of each script's command, server checks
producing.py   enqueue, cancel, states, inspect, events
working.py     turn, read, hand-over, hand-back, promote, lost entries
leasing.py     a worker's lease, the lead, declaring the dead, reaping
reading.py     queues, counts, workers: for people
values.py      what the verbs answer
"""

from dtq.broker.leasing import Leasing
from dtq.broker.producing import Producing
from dtq.broker.reading import Reading
from dtq.broker.values import Answer, QueueCounts, ServerInfo, Snapshot, WorkerInfo
from dtq.broker.working import Reader


class Broker(Producing, Leasing, Reading):
    """All verbs on one Redis (or on the embedded store), safe for threads and across forks."""


__all__ = ["Answer", "Broker", "QueueCounts", "Reader", "ServerInfo", "Snapshot", "WorkerInfo"]
