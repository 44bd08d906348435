"""Which servers are refused, by a message that says what is needed."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dtq.broker import Broker
from dtq.errors import BrokerUnavailable, UnsupportedServer
from dtq.settings import Settings
from tests.broker.driver import enqueue
from tests.servers import PrivateServer, free_port


@contextmanager
def server_that_knows_only_info(answer: str) -> Iterator[str]:
    """A server that answers INFO and takes a client's name, and knows nothing else; its URL."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            while head := lines.readline():
                words = []
                for _ in range(int(head[1:])):
                    size = int(lines.readline()[1:])
                    words.append(lines.read(size + 2)[:-2].upper())
                replies = {b"INFO": f"${len(answer)}\r\n{answer}\r\n", b"CLIENT": "+OK\r\n"}
                connection.sendall(replies.get(words[0], "-ERR unknown command\r\n").encode())

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("redis_version:6.2.0\r\n", "redis 6.2.0"),
        ("redis_version:3.0\r\n", "redis 3.0"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.1.0\r\n", "valkey 7.1.0"),
    ],
)
def test_an_old_server_is_refused_whatever_else_it_does_not_know(answer: str, version: str) -> None:
    """Its version is judged before anything else is asked (S037)."""
    with server_that_knows_only_info(answer) as url:
        broker = Broker(Settings(redis_url=url))
        with pytest.raises(UnsupportedServer, match=f"{version} at .* too old; dtq needs Redis 7.0 or Valkey 7.2"):
            broker.check_server()


def test_a_cluster_is_refused() -> None:
    """By the worker's check, and by the message of what cannot be done there (S039)."""
    # Its bus would else take the port 10 000 above, which need not exist.
    config = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    with PrivateServer(tcp=True, config=config) as server:
        broker = Broker(Settings(redis_url=server.url, enqueue_deadline_s=0.2))
        with pytest.raises(UnsupportedServer, match="cluster"):
            broker.check_server()
        with pytest.raises(BrokerUnavailable, match="a node of a cluster; dtq needs a single server"):
            enqueue(broker)
        broker.close()


def test_a_server_that_hides_its_settings_is_accepted_with_no_policy() -> None:
    """Managed services forbid CONFIG; the worker warns once that it could not look."""
    with PrivateServer(tcp=True) as server:
        server.client().acl_setuser("default", enabled=True, commands=["+@all", "-config"], keep=True)
        broker = Broker(Settings(redis_url=server.url))
        assert broker.check_server().policy == ""
        broker.close()


@pytest.mark.parametrize("stored", [b"999", b"\xff"])
def test_a_store_of_another_layout_is_refused(broker: Broker, stored: bytes) -> None:
    """Nothing is written into what another release keeps there, not even the queue's name."""
    key = broker.keys.layout()
    broker.command("SET", key, stored)
    shown = stored.decode("utf-8", "replace")
    with pytest.raises(UnsupportedServer, match=f"{key} says layout '{shown}', this dtq reads 1; use another prefix"):
        broker.prepare_queue("new")
    assert broker.command("SISMEMBER", broker.keys.queues(), "new") == 0
    broker.command("SET", key, "1")
