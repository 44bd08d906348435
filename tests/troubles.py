"""Ways in which a real server refuses or keeps silent, each with what ends it: for producers and for workers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from tests.servers import PrivateServer

CONFIG = {"appendfsync": "always", "enable-protected-configs": "yes"}
"""What a server needs to be brought into all of them and to come back with its data."""
Trouble = Callable[[PrivateServer], contextlib.AbstractContextManager[None]]


@contextmanager
def replica(server: PrivateServer) -> Iterator[None]:
    """READONLY: it has become a replica, and refuses writes."""
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            client.replicaof("NO", "ONE")


@contextmanager
def stale_replica(server: PrivateServer) -> Iterator[None]:
    """MASTERDOWN: a replica that does not answer from old data either."""
    with server.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", 1)
        try:
            yield
        finally:
            client.replicaof("NO", "ONE")
            client.config_set("replica-serve-stale-data", "yes")


@contextmanager
def full(server: PrivateServer) -> Iterator[None]:
    """OOM: maxmemory is reached, and nothing may be thrown away."""
    with server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def unsaved(server: PrivateServer) -> Iterator[None]:
    """MISCONF: the last snapshot failed, so writes are refused."""
    in_the_way = server.directory / "taken.rdb"
    in_the_way.mkdir()
    (in_the_way / "file").touch()
    with server.client() as client:
        client.config_set("dbfilename", in_the_way.name)
        client.config_set("save", "3600 1")
        client.bgsave()
        _until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        try:
            yield
        finally:
            client.config_set("save", "")
            client.config_set("dbfilename", "dump.rdb")
            (in_the_way / "file").unlink()
            in_the_way.rmdir()


@contextmanager
def busy(server: PrivateServer) -> Iterator[None]:
    """BUSY: a script of somebody else runs without an end."""
    with server.client() as client, server.client(socket_timeout=60) as other:
        client.config_set("busy-reply-threshold", 20)

        def run() -> None:
            with contextlib.suppress(redis.RedisError):
                other.eval("while true do end", 0)

        thread = threading.Thread(target=run)
        thread.start()
        _until(lambda: _refused(client.ping, "BUSY"))
        try:
            yield
        finally:
            client.script_kill()
            thread.join()
            client.config_set("busy-reply-threshold", 5000)


@contextmanager
def forbidden(server: PrivateServer) -> Iterator[None]:
    """NOPERM: the user may not run scripts."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-@scripting")
        try:
            yield
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")


@contextmanager
def foreign_keys(server: PrivateServer) -> Iterator[None]:
    """NOPERM within scripts: the user may not touch these keys."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetkeys", "~other:*")
        try:
            yield
        finally:
            client.execute_command("ACL", "SETUSER", "default", "allkeys")


@contextmanager
def confined(server: PrivateServer, *queues: str) -> Iterator[str]:
    """NOPERM for some: the URL of a user who may touch the keys of these queues only, and the list of all queues."""
    keys = ["dtq:queues", "dtq:events", *(f"*{{{queue}}}*" for queue in queues)]
    with server.client() as client:
        client.acl_setuser("confined", enabled=True, passwords=["+pw"], categories=["+@all"], keys=keys, channels=["*"])
        try:
            yield server.url.replace("://", "://confined:pw@")
        finally:
            client.acl_deluser("confined")


@contextmanager
def locked(server: PrivateServer) -> Iterator[None]:
    """NOAUTH: a password is wanted that nobody has given; standing connections are cut."""
    with server.client() as client:
        client.config_set("requirepass", "S3CRET")
        client.auth("S3CRET")
        client.client_kill_filter(skipme=True)
        try:
            yield
        finally:
            client.config_set("requirepass", "")
            client.execute_command("ACL", "SETUSER", "default", "nopass")


@contextmanager
def crowded(server: PrivateServer) -> Iterator[None]:
    """ERR max number of clients reached: every place is taken by others."""
    with server.client() as client, contextlib.ExitStack() as stack:
        client.ping()
        client.config_set("maxclients", 3)
        client.client_kill_filter(skipme=True)
        while True:
            other = stack.enter_context(server.client())
            try:
                other.ping()
            except redis.RedisError:
                break
        try:
            yield
        finally:
            client.config_set("maxclients", 10_000)


@contextmanager
def frozen(server: PrivateServer) -> Iterator[None]:
    """It stands still: connections stay open, nothing answers."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


@contextmanager
def gone(server: PrivateServer) -> Iterator[None]:
    """It was killed, and comes back with its data."""
    server.kill()
    try:
        yield
    finally:
        server.start()


TROUBLES: dict[str, Trouble] = {
    "READONLY": replica,
    "MASTERDOWN": stale_replica,
    "OOM": full,
    "MISCONF": unsaved,
    "BUSY": busy,
    "NOPERM": forbidden,
    "NOPERM keys": foreign_keys,
    "NOAUTH": locked,
    "max number of clients": crowded,
    "frozen": frozen,
    "gone": gone,
}


def _refused(command: Callable[[], object], word: str) -> bool:
    try:
        command()
    except redis.RedisError as error:
        return word in str(error) or type(error).__name__ == "BusyLoadingError"
    return False


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("the trouble did not come about")
