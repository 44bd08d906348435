"""An API on an empty real Redis, and a worker's side driven by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.server import ApiServer
from tests.broker.driver import Child
from tests.servers import PrivateServer

QUEUE = "default"


@pytest.fixture(scope="package")
def shared_server(redis_server: PrivateServer) -> Iterator[ApiServer]:
    """One API for many tests, without keys."""
    with ApiServer(redis_server.url) as server:
        yield server


@pytest.fixture
def server(clean_server: PrivateServer, shared_server: ApiServer) -> ApiServer:
    """The shared API on an empty Redis."""
    shared_server.app.client._prepared.clear()
    return shared_server


@pytest.fixture
def child(server: ApiServer) -> Child:
    """A child of a worker."""
    server.app.broker.prepare_queue(QUEUE)
    return Child(server.app.broker, queue=QUEUE)
