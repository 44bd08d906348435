"""Long outages: however often a process has tried to connect, it talks again as soon as the server is back."""

from __future__ import annotations

import asyncio

import pytest

from dtq.broker import Broker
from dtq.errors import BrokerUnavailable
from dtq.settings import Settings
from tests.servers import PrivateServer

TRIES = 250
"""More than the connections that redis-py lets a pool make in its life, 100 by default."""


def test_an_outage_of_many_tries_is_survived() -> None:
    """Each failed try, and each connection that the server has closed, leaves nothing behind."""
    with PrivateServer("redis") as server:
        broker = Broker(Settings(redis_url=server.url))
        assert broker.queues() == []
        server.stop()
        for _ in range(TRIES):
            with pytest.raises(BrokerUnavailable):
                broker.command("PING")
        server.start()
        for _ in range(TRIES):
            broker.command("PING")
            with server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
        assert broker.command("PING") == b"PONG"
        broker.close()


def test_the_same_for_asyncio() -> None:
    """The connections of a loop."""

    async def states(broker: Broker) -> bytes:
        return await broker.astates("q", ["a"])

    async def outage(broker: Broker, server: PrivateServer) -> None:
        assert await states(broker) == b"0"
        server.stop()
        for _ in range(TRIES):
            with pytest.raises(BrokerUnavailable):
                await states(broker)
        server.start()
        assert await states(broker) == b"0"
        await broker.async_transport.close()

    with PrivateServer("redis") as server:
        broker = Broker(Settings(redis_url=server.url))
        asyncio.run(outage(broker, server))
        broker.close()


def test_subscribing_to_a_server_that_is_gone() -> None:
    """A typed error, as of every verb, and the way back is open."""
    with PrivateServer("redis") as server:
        broker = Broker(Settings(redis_url=server.url))
        server.stop()
        with pytest.raises(BrokerUnavailable):
            broker.subscribe()
        server.start()
        subscription = broker.subscribe()
        assert subscription.get(0.01) == []
        subscription.close()
        broker.close()
