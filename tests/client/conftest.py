"""An app on an empty real server, and a worker's side driven by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dtq
from tests.broker.driver import Child
from tests.client.proxy import Proxy
from tests.servers import PrivateServer

QUEUE = "default"


@pytest.fixture
def app(clean_server: PrivateServer) -> Iterator[dtq.App]:
    with dtq.App(clean_server.url) as app:
        yield app


@pytest.fixture
def child(app: dtq.App) -> Child:
    app.broker.prepare_queue(QUEUE)
    return Child(app.broker, queue=QUEUE)


@pytest.fixture
def proxy(clean_server: PrivateServer) -> Iterator[Proxy]:
    assert clean_server.socket_path is not None
    with Proxy(clean_server.socket_path) as proxy:
        yield proxy
