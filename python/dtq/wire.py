"""One connection to the server: bytes out, replies back, with nothing in between.

redis-py makes the connection (TLS, users, handshake) and names errors. Its own way for a command and its reply costs
more than the server's work on it: 5 of 19 us of an enqueue (measured), and a socket with a time-out of Python's asks
poll() before every call. So commands go over the socket as they are, replies through hiredis, and time-outs are the
kernel's.
"""

from __future__ import annotations

import select
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

from dtq.clock import SYSTEM

CONNECT_TIMEOUT_S = 3.0
_SHORTEST_S = 0.001
"""What is left of a time-out that has run out: zero would mean a socket that never gives up."""
_READ_BYTES = 65536
_UNFINISHED = object()


class Wire:
    """A connection of redis-py's making, connected at its first use.

    Args:
        connection: not connected yet.
        timeout_s: how long a reply may take, where nothing else is said.
    """

    __slots__ = (
        "__weakref__", "_connection", "_current_s", "_forgotten", "_in_kernel", "_parser", "_poll", "_timeout_s",
    )  # fmt: skip

    def __init__(self, connection: Any, timeout_s: float) -> None:
        self._connection = connection
        self._forgotten: Any = None
        self._timeout_s = self._current_s = timeout_s
        self._parser: Any = None
        self._poll: Any = None
        self._in_kernel = False

    def usable(self) -> bool:
        """Whether it still stands, as far as can be told: one that the server has closed, or that holds a reply that
        nobody waited for, is readable. True for one that is not connected yet."""
        return self._parser is None or (self._connection._sock is not None and not self._poll.poll(0))

    def ask(self, command: bytes, timeout_s: float | None = None, meanwhile: Callable[[], None] | None = None) -> Any:
        """Send one packed command and return its reply; a refusal is returned as the redis-py exception it stands for.

        Args:
            command: RESP bytes.
            timeout_s: how long it may take, with connecting where that is still to be done.
            meanwhile: called once the command is sent; must not raise.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError, OSError: it may have been applied; close
                the wire, its next reply would be that of this command.
        """
        stream = self._send(command, timeout_s)
        if meanwhile is not None:
            meanwhile()
        return self._receive(stream)

    def begin(self, command: bytes) -> None:
        """Send one packed command; `finish` brings its reply, and nothing else may be asked before."""
        self._send(command, None)

    def finish(self) -> Any:
        """The reply to `begin`, as `ask` returns it; its time-out begins now."""
        return self._receive(self._stream(self._timeout_s))

    def ask_many(self, commands: bytes, count: int) -> list[Any]:
        """Send `count` packed commands at once and return their replies, as `ask` does."""
        stream = self._send(commands, None)
        return [self._receive(stream) for _ in range(count)]

    def close(self) -> None:
        """Close the connection; the next question opens it anew."""
        self._parser = None
        if self._forgotten is not None:
            self._forgotten.detach()
        self._connection.disconnect()

    # --- how

    def _send(self, data: bytes, timeout_s: float | None) -> socket.socket:
        if self._parser is None:
            timeout_s = self._connect(self._timeout_s if timeout_s is None else timeout_s)
        stream = self._stream(self._timeout_s if timeout_s is None else timeout_s)
        try:
            stream.sendall(data)
        except (BlockingIOError, TimeoutError):
            raise _timed_out() from None
        return stream

    def _receive(self, stream: socket.socket) -> Any:
        parser = self._parser
        try:
            while (reply := parser.gets()) is _UNFINISHED:
                data = stream.recv(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                parser.feed(data)
        except (BlockingIOError, TimeoutError):
            raise _timed_out() from None
        return reply

    def _connect(self, timeout_s: float) -> float:
        """Connect within `timeout_s`, the handshake included; answers how much of it is left for the reply."""
        import hiredis
        from redis.exceptions import InvalidResponse

        until = SYSTEM.monotonic() + timeout_s
        connection = self._connection
        connection.socket_connect_timeout = min(CONNECT_TIMEOUT_S, timeout_s)
        connection.socket_timeout = timeout_s
        connection.connect()
        stream = connection._sock
        self._in_kernel = type(stream) is socket.socket  # TLS keeps a buffer of its own: its time-outs are Python's
        if self._in_kernel:
            stream.settimeout(None)
        # An application that is forgotten without being closed is collected as a whole, in any order: its sockets first
        # would mean a ResourceWarning each.
        self._forgotten = weakref.finalize(self, stream.close)
        self._forgotten.atexit = False
        self._current_s = 0.0
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._parser = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_UNFINISHED
        )
        return max(_SHORTEST_S, until - SYSTEM.monotonic())

    def _stream(self, timeout_s: float) -> socket.socket:
        """The socket, every wait for which ends after this long."""
        stream: socket.socket | None = self._connection._sock
        if stream is None:
            raise ConnectionResetError("the connection was closed")
        if timeout_s != self._current_s:
            self._current_s = timeout_s
            if self._in_kernel:
                value = struct.pack("@ll", int(timeout_s), max(1, int(timeout_s % 1 * 1e6)))
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
            else:
                stream.settimeout(timeout_s)
        return stream


def _timed_out() -> Exception:
    from redis.exceptions import TimeoutError as NoAnswer

    return NoAnswer("no answer in time")
