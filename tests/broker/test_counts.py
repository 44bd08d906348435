"""A queue in figures: what stands in it at one instant."""

from __future__ import annotations

import threading

from dtq.broker import Broker
from dtq.settings import Settings
from tests.broker.driver import QUEUE
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
