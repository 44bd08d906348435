"""A queue in figures: what stands in it at one instant."""

from __future__ import annotations

import threading

from dtq.broker import Broker, QueueCounts
from dtq.settings import Settings
from dtq.worker.scheduler import BurstWatch
from tests.broker.driver import QUEUE, Child, enqueue
from tests.client.proxy import Proxy
from tests.servers import PrivateServer

MOVES = """
local live, schedule, meta = KEYS[1], KEYS[2], KEYS[3]
if redis.call('ZREM', schedule, 't') == 1 then
  redis.call('HSET', live, 't', 'q:1:0:1-1:')
  redis.call('HSET', meta, 'retrying', 0)
elseif string.sub(redis.call('HGET', live, 't') or '', 1, 1) == 'q' then
  redis.call('HSET', live, 't', 'r:1:0:1-1:w.1.1:1:1:')
  redis.call('HSET', meta, 'running', 1)
else
  redis.call('HDEL', live, 't')
  redis.call('ZADD', schedule, 1, 't')
  redis.call('HSET', meta, 'running', 0, 'retrying', 1)
end
"""


def test_a_task_that_moves_is_counted_once(broker: Broker, clean_server: PrivateServer) -> None:
    """It is retrying, waiting or running, never nowhere: a worker in burst mode leaves when nothing is counted."""
    assert clean_server.socket_path is not None
    keys = [broker.keys.live(QUEUE), broker.keys.schedule(QUEUE), broker.keys.meta(QUEUE)]
    stop = threading.Event()

    def move() -> None:
        while not stop.is_set():
            broker.command("EVAL", MOVES, 3, *keys)

    broker.command("EVAL", MOVES, 3, *keys)
    mover = threading.Thread(target=move)
    mover.start()
    try:
        # The request arrives in pieces, so that others are served in its middle.
        with Proxy(clean_server.socket_path) as proxy:
            proxy.piece = 40
            reader = Broker(Settings(redis_url=proxy.url))
            seen = [reader.queue_counts(QUEUE) for _ in range(100)]
            reader.close()
    finally:
        stop.set()
        mover.join()
        broker.command("DEL", *keys)
    assert {counts.waiting + counts.running + counts.retrying for counts in seen} == {1}


def test_a_burst_does_not_end_while_a_task_hops_between_queues(broker: Broker, settings: Settings) -> None:
    """Each queue was empty when it was looked at, and the last task of the second had enqueued into the first."""

    class Hopping(Broker):
        """Between the looks at `q` and at `second`, a task of `second` enqueues into `q` and ends."""

        def queue_counts(self, queue: str) -> QueueCounts:
            if queue == "second" and runs:
                enqueue(broker)
                child.settle(runs.pop())
            return super().queue_counts(queue)

    child = Child(broker, queue="second")
    broker.prepare_queue("second")
    enqueue(broker, queue="second")
    runs = child.claim()
    hopping, ended = Hopping(settings), []
    watch = BurstWatch(hopping, [QUEUE, "second"], lambda: ended.append(1))
    watch.run()
    assert not ended
    last = Child(broker)
    last.settle(last.claim()[0])
    watch.run()
    assert ended
    hopping.close()
