"""A broker on an empty real server; the invariants are checked at the end of every test."""

from collections.abc import Iterator

import pytest

import dtq
from dtq.broker import Broker
from dtq.settings import Settings
from tests.broker.driver import QUEUE, check_invariants
from tests.servers import PrivateServer


@pytest.fixture
def settings(clean_server: PrivateServer) -> Settings:
    """Settings with a lease of one second."""
    return Settings(redis_url=clean_server.url, lease_s=1.0, renew_s=0.2)


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    """A broker with the queue `q` prepared."""
    broker = Broker(settings)
    broker.prepare_queue(QUEUE)
    yield broker
    check_invariants(broker)
    broker.close()


@pytest.fixture
def app(broker: Broker) -> dtq.App:
    """An app on the broker's server."""
    return dtq.App(broker.settings.redis_url, queue=QUEUE)
