"""Connections to Redis: carry one packed command, bring back its reply, and name what went wrong.

Nothing here is ever sent twice on its own (redis-py's ten silent retries are switched off): who may repeat a command
and with what is decided by the protocol, in the callers. A fork gets connections of its own: those of its parent are
dropped unclosed, so that no two processes share a socket.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

from dtq._core import pack_command
from dtq.errors import BrokerUnavailable, DtqError, GroupLost
from dtq.scripts import Script
from dtq.wire import CONNECT_TIMEOUT_S, Wire

if TYPE_CHECKING:
    import asyncio

_LOADS = 3
"""So often a script that the server does not know is loaded, before that is an error."""


def _options(timeout_s: float | None) -> dict[str, Any]:
    from inspect import signature

    from redis.backoff import NoBackoff
    from redis.connection import AbstractConnection
    from redis.retry import Retry

    # Two CLIENT SETINFO and a look at redis-py's metadata for each new connection: 5 ms that tell nobody anything.
    parameters = signature(AbstractConnection.__init__).parameters
    silent = {"driver_info": None} if "driver_info" in parameters else {"lib_name": None, "lib_version": None}
    return {
        **silent,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S if timeout_s is None else min(CONNECT_TIMEOUT_S, timeout_s),
        "health_check_interval": 0,
        "client_name": "dtq",
    }


def place_of(url: str) -> str:
    """Where a URL points, without user and password: for messages."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def translate(error: Exception, place: str) -> DtqError:
    """The dtq error for one that redis-py raised; the message names the place, never a password."""
    from redis import exceptions

    text = " ".join(str(error).split())
    if isinstance(error, exceptions.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return BrokerUnavailable(f"Redis at {place} refused the user or password; check DTQ_REDIS_URL")
    clustered = (exceptions.MovedError, exceptions.AskError, exceptions.ClusterDownError)
    if isinstance(error, clustered) and not isinstance(error, exceptions.MasterDownError):
        return BrokerUnavailable(f"Redis at {place} is a node of a cluster; dtq needs a single server")
    if isinstance(error, exceptions.TimeoutError):
        return BrokerUnavailable(f"Redis at {place} did not answer in time")
    if isinstance(error, (exceptions.ConnectionError, OSError)):
        # At a socket it may be the embedded store, which nobody has named or starts by hand.
        way_out = "" if place.startswith("unix") else "; start it, or correct DTQ_REDIS_URL"
        return BrokerUnavailable(f"Redis at {place} cannot be reached: {text.rstrip('.')}{way_out}")
    if "NOGROUP" in text:
        return GroupLost(f"Redis at {place}: a consumer group is gone")
    # Scripts add their own hash and line, which help nobody outside of dtq.
    refused = BrokerUnavailable(f"Redis at {place} answered: {text.partition(' script: ')[0][:300]}")
    refused.damaged = text.startswith(("WRONGTYPE", "user_script", "ERR user_script"))
    return refused


def _is_of_connection(error: BaseException) -> TypeGuard[Exception]:
    from redis.exceptions import RedisError

    return isinstance(error, (RedisError, OSError, UnicodeError))  # the last: a host's name that can be none


def _new_pool(url: str, timeout_s: float | None, module: Any) -> Any:
    try:
        options = _options(timeout_s)
        if not url.startswith("unix"):
            options["socket_keepalive"] = True
        return module.ConnectionPool.from_url(url, **options)
    except ValueError as error:
        reason = str(error).split("://")[0][:120]
        raise BrokerUnavailable(
            f"DTQ_REDIS_URL is not a usable URL ({reason}); give redis://, rediss:// or unix://"
        ) from None


def _new_connection(pool: Any) -> Any:
    """A connection of a pool's kind, past its count: make_connection() counts those it ever made, and ends at 100."""
    return pool.connection_class(**pool.connection_kwargs)


def _is_usable(connection: Any) -> bool:
    """Whether an idle connection of asyncio's still stands: one that the server has closed, or that holds a reply, is
    readable, unless the loop has read that already."""
    writer, reader = connection._writer, connection._reader
    if writer is None:
        return True  # not connected yet
    if writer.is_closing() or reader.at_eof() or reader._buffer or connection._parser._reader.has_data():
        return False
    poll = select.poll()
    poll.register(writer.get_extra_info("socket"), select.POLLIN)
    return not poll.poll(0)


class Begun(NamedTuple):
    """A command on its way, and where its reply will arrive."""

    wire: Wire
    command: bytes
    script: Script | None


class Transport:
    """A pool of blocking connections, safe for threads and forks.

    Args:
        url: called at the first connection, and again after a lost one, for the server's URL (it may start a server).
        timeout_s: how long a reply may take.
    """

    def __init__(self, url: Callable[[], str], timeout_s: float) -> None:
        self._url = url
        self.timeout_s = timeout_s
        self._owner = os.getpid()
        self._idle: deque[Wire] = deque()
        self._made_from: Any = None
        self._abandoned: list[Any] = []

    def place(self) -> str:
        """Where the server is, without credentials."""
        return place_of(self._url())

    def connection(self, timeout_s: float | None = None) -> Any:
        """A new redis-py connection outside the pool, with its own reply time-out."""
        import redis

        pool = _new_pool(self._url(), self.timeout_s if timeout_s is None else timeout_s, redis)
        return _new_connection(pool)

    def _acquire(self) -> Wire:
        if self._owner != os.getpid():
            # The parent still uses these sockets: keep them from being closed by the collector, and start anew.
            self._abandoned = [*self._idle, self._made_from]
            self._idle = deque()
            self._made_from = None
            self._owner = os.getpid()
        try:
            while not (wire := self._idle.pop()).usable():
                wire.close()
            return wire
        except IndexError:
            pass
        if self._made_from is None:
            import redis

            self._made_from = _new_pool(self._url(), self.timeout_s, redis)
        return Wire(_new_connection(self._made_from), self.timeout_s)

    def call(
        self,
        command: bytes,
        script: Script | None = None,
        timeout_s: float | None = None,
        meanwhile: Callable[[], None] | None = None,
        awake: bool = False,
    ) -> Any:
        """Send one packed command and wait for its reply.

        Args:
            command: RESP bytes.
            script: the script an EVALSHA names; loaded when the server does not know it.
            timeout_s: how long the reply may take, with the connection where there is none yet; the pool's time-out
                unless given.
            meanwhile: called once the command is sent, while the server works on it; must not raise.
            awake: wait for the reply without falling asleep, at first (`dtq.spin`).

        Raises:
            BrokerUnavailable: no answer, or a refusal. The command may have been applied.
            GroupLost: a consumer group does not exist.
        """
        wire = self._acquire()
        try:
            reply = wire.ask(command, timeout_s, meanwhile, awake)
            if isinstance(reply, Exception):
                reply = self._refused(wire, reply, command, script)
        except BaseException as error:
            self._break(wire, error)
            raise
        return self._over(wire, reply)

    def begin(self, command: bytes, script: Script | None = None) -> Begun:
        """Send one packed command and come back at once; `finish` brings the reply. Raises what `call` does."""
        wire = self._acquire()
        try:
            wire.begin(command)
        except BaseException as error:
            self._break(wire, error)
            raise
        return Begun(wire, command, script)

    def finish(self, begun: Begun) -> Any:
        """The reply to a command that was begun, as `call` returns it. To be called once for each."""
        wire, command, script = begun
        try:
            reply = wire.finish()
            if isinstance(reply, Exception):
                reply = self._refused(wire, reply, command, script)
        except BaseException as error:
            self._break(wire, error)
            raise
        return self._over(wire, reply)

    def _over(self, wire: Wire, reply: Any) -> Any:
        """An exchange is over: its reply, or what the refusal stands for. From the first line on the wire may be that
        of another thread: whatever is raised here, by a signal as well, must not close it."""
        self._idle.append(wire)
        if isinstance(reply, Exception):
            raise translate(reply, place_of(self._url())) from reply
        return reply

    def _break(self, wire: Wire, error: BaseException) -> None:
        """Close after an error in the middle of an exchange: its reply would answer the next question.

        Raises dtq's error for one of the connection. What a signal's handler has raised here is none: it goes on.
        """
        wire.close()
        if _is_of_connection(error):
            raise translate(error, place_of(self._url())) from error

    def _refused(self, wire: Wire, refusal: Exception, command: bytes, script: Script | None) -> Any:
        """What comes of a refusal: the reply after the script was loaded, or the refusal; raised, if it is for all."""
        from redis.exceptions import MasterDownError, NoScriptError, ReadOnlyError, ResponseError

        for _ in range(_LOADS):
            if script is None or not isinstance(refusal, NoScriptError):
                break
            # Both at once: others who flush the scripts hardly come between them.
            both = pack_command(["SCRIPT", "LOAD", script.text]) + command
            loaded, reply = wire.ask_many(both, 2, wire.left_s())
            if not isinstance(reply, Exception):
                return reply
            refusal = loaded if isinstance(loaded, Exception) else reply
        if not isinstance(refusal, ResponseError):
            raise refusal  # the server is loading, or will not have more clients
        if isinstance(refusal, (ReadOnlyError, MasterDownError)):
            wire.close()  # a fail-over: the server's name may lead to another one now
        return refusal

    def call_many(self, commands: bytes, count: int) -> list[Any]:
        """Send `count` packed commands at once and wait for their replies; a refused one's reply is its exception.

        Raises:
            BrokerUnavailable: no answer, or a server that refuses whatever it is sent. Some may have been applied.
        """
        from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

        wire = self._acquire()
        try:
            replies = wire.ask_many(commands, count)
            for reply in replies:
                if isinstance(reply, (ReadOnlyError, MasterDownError)) or (
                    isinstance(reply, Exception) and not isinstance(reply, ResponseError)
                ):
                    raise reply
        except BaseException as error:
            self._break(wire, error)
            raise
        self._idle.append(wire)
        return replies

    def client(self, timeout_s: float | None = None) -> Any:
        """A redis-py client on a connection pool of its own, for reads and administration off the hot path."""
        import redis

        return redis.Redis(connection_pool=_new_pool(self._url(), timeout_s or self.timeout_s, redis))

    def close(self) -> None:
        """Close the idle connections of this process."""
        if self._owner != os.getpid():
            return
        while self._idle:
            self._idle.pop().close()


@contextmanager
def translated(transport: Transport) -> Generator[None]:
    """Turn redis-py's errors into dtq's within the block."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        raise translate(error, transport.place()) from error


class AsyncTransport:
    """The same for asyncio: connections belong to the loop that made them."""

    def __init__(self, url: Callable[[], str], timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._owner = os.getpid()
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Any]] = WeakKeyDictionary()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._abandoned: list[Any] = []

    async def _acquire(self) -> Any:
        import asyncio

        if self._owner != os.getpid():
            self._abandoned = [self._idle, self._pools]
            self._idle, self._pools = WeakKeyDictionary(), WeakKeyDictionary()
            self._owner = os.getpid()
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(loop, deque())
        while idle:
            connection = idle.pop()
            if _is_usable(connection):
                return connection
            await connection.disconnect(nowait=True)
        if loop not in self._pools:
            import redis.asyncio

            url = await loop.run_in_executor(None, self._url)  # it may start a server
            self._pools[loop] = _new_pool(url, self._timeout_s, redis.asyncio)
        return _new_connection(self._pools[loop])

    async def call(self, command: bytes, script: Script | None = None, timeout_s: float | None = None) -> Any:
        """As Transport.call, without blocking the loop."""
        import asyncio

        connection = await self._acquire()
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await self._exchange(connection, command, script)
        except DtqError:
            raise
        except TimeoutError as error:
            await connection.disconnect(nowait=True)
            raise BrokerUnavailable(f"Redis at {place_of(self._url())} did not answer in time") from error
        except Exception as error:
            await connection.disconnect(nowait=True)
            raise translate(error, place_of(self._url())) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def _exchange(self, connection: Any, command: bytes, script: Script | None) -> Any:
        import asyncio

        from redis.exceptions import MasterDownError, NoScriptError, ReadOnlyError, ResponseError

        idle = self._idle[asyncio.get_running_loop()]
        try:
            if not connection.is_connected:
                await connection.connect()
            await connection.send_packed_command(command, check_health=False)
            reply = await connection.read_response()
        except NoScriptError as error:
            if script is None:
                raise translate(error, place_of(self._url())) from error
            await connection.send_packed_command(pack_command(["SCRIPT", "LOAD", script.text]), check_health=False)
            await connection.read_response()
            return await self._exchange(connection, command, script)
        except ResponseError as error:
            if isinstance(error, (ReadOnlyError, MasterDownError)):
                await connection.disconnect(nowait=True)
            else:
                idle.append(connection)
            raise translate(error, place_of(self._url())) from error
        idle.append(connection)
        return reply

    async def close(self) -> None:
        """Close this loop's idle connections."""
        import asyncio

        idle = self._idle.pop(asyncio.get_running_loop(), None)
        while idle:
            await idle.pop().disconnect()
