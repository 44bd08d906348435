"""One connection to the server: bytes out, replies back, with nothing in between.

redis-py makes the connection (TLS, users, handshake) and names errors. Its own way for a command and its reply costs
more than the server's work on it: 5 of 19 us of an enqueue (measured), and a socket with a time-out of Python's asks
poll() before every call. So commands go over the socket as they are and replies through hiredis; the kernel ends the
first wait for a reply, and only where that was too short, poll() waits for the rest.
"""

from __future__ import annotations

import select
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

from dtq.clock import SYSTEM
from dtq.spin import LONGEST_S

CONNECT_TIMEOUT_S = 3.0
_SHORTEST_S = 0.001
"""What is left of a time-out that has run out: zero would mean a socket that never gives up."""
_FIRST_WAIT = struct.pack("@ll", 0, 5000)
"""A socket waits so long by itself (5 ms). It must be short: each signal makes it begin anew, and one that comes every
now and then would let it never end. Most replies are there in a hundredth of it."""
_READ_BYTES = 65536
_UNFINISHED = object()


class Wire:
    """A connection of redis-py's making, connected at its first use.

    Args:
        connection: not connected yet.
        timeout_s: how long an exchange may take, where nothing else is said.
    """

    __slots__ = (
        "__weakref__", "_allowed_s", "_connection", "_current_s", "_forgotten", "_in_kernel", "_parser", "_poll",
        "_stream", "_timeout_s", "_until",
    )  # fmt: skip

    def __init__(self, connection: Any, timeout_s: float) -> None:
        self._connection = connection
        self._forgotten: Any = None
        self._timeout_s = self._allowed_s = self._current_s = timeout_s
        self._until = 0.0
        self._stream: Any = None
        self._parser: Any = None
        self._poll: Any = None
        self._in_kernel = False

    def usable(self) -> bool:
        """Whether it still stands, as far as can be told: one that the server has closed is readable, as is one that
        holds a reply that nobody waited for. True for one that is not connected yet."""
        parser = self._parser
        return parser is None or not (self._poll.poll(0) or parser.has_data())

    def ask(
        self,
        command: bytes,
        timeout_s: float | None = None,
        meanwhile: Callable[[], None] | None = None,
        awake: bool = False,
    ) -> Any:
        """Send one packed command and return its reply; a refusal is returned as the redis-py exception it stands for.

        Args:
            command: RESP bytes.
            timeout_s: how long it may take, with connecting where that is still to be done.
            meanwhile: called once the command is sent; must not raise.
            awake: ask for the reply again and again for a while, before sleeping for it (`dtq.spin`).

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError, OSError: it may have been applied; close
                the wire, its next reply would be that of this command.
        """
        stream = self._send(command, timeout_s)
        if meanwhile is not None:
            meanwhile()
        if awake and self._in_kernel:
            self._read_awake(stream)
        return self._receive(stream)

    def left_s(self) -> float:
        """What the exchange that has just ended has left of its time-out: all of it, where it hardly had to wait."""
        if not self._until:
            return self._allowed_s
        return max(_SHORTEST_S, self._until - SYSTEM.monotonic())

    def begin(self, command: bytes) -> None:
        """Send one packed command; `finish` brings its reply, and nothing else may be asked before."""
        self._send(command, None)

    def finish(self) -> Any:
        """The reply to `begin`, as `ask` returns it; its time-out begins now."""
        self._allowed_s, self._until = self._timeout_s, 0.0
        if not self._in_kernel:
            self._begin_time(self._stream)
        return self._receive(self._stream)

    def ask_many(self, commands: bytes, count: int, timeout_s: float | None = None) -> list[Any]:
        """Send `count` packed commands at once and return their replies, as `ask` does; all within one time-out."""
        stream = self._send(commands, timeout_s)
        replies: list[Any] = []
        for number in range(count):
            if number:
                self._wait(stream, None)
            replies.append(self._receive(stream))
        return replies

    def close(self) -> None:
        """Close the connection; the next question opens it anew."""
        self._parser = self._stream = None
        if self._forgotten is not None:
            self._forgotten.detach()
        self._connection.disconnect()

    # --- how

    def _send(self, data: bytes, timeout_s: float | None) -> socket.socket:
        self._allowed_s, self._until = self._timeout_s if timeout_s is None else timeout_s, 0.0
        if self._parser is None:
            self._connect()
        stream: socket.socket = self._stream
        if not self._in_kernel:
            self._begin_time(stream)
        try:
            sent = stream.send(data)
        except BlockingIOError:
            sent = 0
        except TimeoutError:
            raise _timed_out() from None
        if sent != len(data):
            self._send_rest(stream, memoryview(data)[sent:])
        return stream

    def _send_rest(self, stream: socket.socket, rest: memoryview) -> None:
        """Send what the kernel has not taken at once, as the server makes room for it."""
        room = select.poll()
        room.register(stream, select.POLLOUT)
        while rest:
            self._wait(stream, room)
            try:
                rest = rest[stream.send(rest) :]
            except BlockingIOError:
                continue
            except TimeoutError:
                raise _timed_out() from None

    def _receive(self, stream: socket.socket) -> Any:
        parser = self._parser
        reply = parser.gets()
        while reply is _UNFINISHED:
            try:
                data = stream.recv(_READ_BYTES)
            except BlockingIOError:
                self._wait(stream, self._poll)
                continue
            except TimeoutError:
                raise _timed_out() from None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            parser.feed(data)
            reply = parser.gets()
            if reply is _UNFINISHED:
                self._wait(stream, None)
        return reply

    def _read_awake(self, stream: socket.socket) -> None:
        """Take in what comes within LONGEST_S. A connection that the server has closed is left to the next read."""
        until = SYSTEM.monotonic() + LONGEST_S
        while True:
            try:
                self._parser.feed(stream.recv(_READ_BYTES, socket.MSG_DONTWAIT))
            except BlockingIOError:
                if SYSTEM.monotonic() < until:
                    continue
            return

    def _wait(self, stream: socket.socket, event: Any) -> None:
        """Wait for an event of the socket, if one is given, while there is time left. Counts the time of signals."""
        now = SYSTEM.monotonic()
        self._until = self._until or now + self._allowed_s
        left_s = self._until - now
        if left_s <= 0:
            raise _timed_out()
        if not self._in_kernel:
            self._limit(stream, left_s)
        elif event is not None:
            event.poll(1000 * left_s)

    def _connect(self) -> None:
        """Connect within what is allowed, the handshake included; what is left of it is for the reply."""
        import hiredis
        from redis.exceptions import InvalidResponse

        timeout_s = self._allowed_s
        until = SYSTEM.monotonic() + timeout_s
        connection = self._connection
        connection.socket_connect_timeout = min(CONNECT_TIMEOUT_S, timeout_s)
        connection.socket_timeout = timeout_s
        connection.connect()
        stream = self._stream = connection._sock
        self._current_s = timeout_s
        # TLS keeps a buffer of its own: its time-outs are Python's.
        self._in_kernel = type(stream) is socket.socket
        if self._in_kernel:
            stream.settimeout(None)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _FIRST_WAIT)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _FIRST_WAIT)
        # An application that is forgotten without being closed is collected as a whole, in any order: its sockets first
        # would mean a ResourceWarning each.
        self._forgotten = weakref.finalize(self, stream.close)
        self._forgotten.atexit = False
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._parser = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_UNFINISHED
        )
        self._until = until
        self._allowed_s = max(_SHORTEST_S, until - SYSTEM.monotonic())

    def _begin_time(self, stream: socket.socket) -> None:
        """Begin the time of an exchange where time-outs are Python's: each call would have all of it."""
        self._until = self._until or SYSTEM.monotonic() + self._allowed_s
        self._limit(stream, self._allowed_s)

    def _limit(self, stream: socket.socket, timeout_s: float) -> None:
        if timeout_s != self._current_s:
            self._current_s = timeout_s
            stream.settimeout(timeout_s)


def _timed_out() -> Exception:
    from redis.exceptions import TimeoutError as NoAnswer

    return NoAnswer("no answer in time")
