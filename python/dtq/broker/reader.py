"""The blocking read of a waiting child, and the adoption behind it, on a connection of their own."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dtq._core import Claim, pack_command, parse_claims, parse_delivery
from dtq.errors import BrokerUnavailable, DtqError, GroupLost
from dtq.keys import GROUP, Keys
from dtq.scripts import script
from dtq.transport import Transport, translate

if TYPE_CHECKING:
    import hiredis

_READ_BYTES = 65536
_UNFINISHED = object()


class Delivery(NamedTuple):
    """What a read brought.

    claims: what the adoption behind it adopted; there are no entries then.
    entries: else, (queue, band, entry, id) each; empty when its time ran out.
    adopting: an adoption was sent; where there are entries, the next turn has to recover.
    """

    entries: Sequence[tuple[str, int, bytes, bytes]]
    adopting: bool
    claims: Sequence[Claim] = ()


class Reader:
    """One blocking read at a time, on a connection that a child can poll beside other things.

    redis-py connects (TLS, users, time-outs); the replies are parsed here. After a pause all code and data are cold,
    each step takes several times what it does in a loop: a delivery as most are, all in one, is one call of the core.
    A read that is abandoned may still deliver an entry to this consumer: the next turn must recover.
    """

    def __init__(self, transport: Transport, keys: Keys, consumer: str) -> None:
        self._transport = transport
        self._keys = keys
        self._consumer = consumer
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._parser: hiredis.Reader | None = None
        self._streams: dict[bytes, tuple[str, int]] = {}
        self._command = b""
        self._asked: tuple[tuple[tuple[str, int], ...], int] | None = None
        self._adopting = False

    def start(self, streams: Sequence[tuple[str, int]], block_ms: int, adoption: bytes | None = None) -> None:
        """Send the read: one entry a stream, blocking at most `block_ms`.

        Args:
            streams: (queue, band) of those to read, in the order in which what they got is answered.
            block_ms: how long to block.
            adoption: a command of Working.adoption(), sent behind it.
        """
        asked = (tuple(streams), block_ms)
        if asked != self._asked:
            self._asked = asked
            self._streams = {self._keys.stream(queue, band).encode(): (queue, band) for queue, band in streams}
            self._command = pack_command([
                "XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1, "BLOCK", block_ms, "STREAMS",
                *self._streams, *(">" for _ in self._streams),
            ])  # fmt: skip
        self._adopting = adoption is not None
        try:
            self._connect().sendall(self._command + (adoption or b""))
        except DtqError:
            raise
        except Exception as error:
            self.abandon()
            raise translate(error, self._transport.place()) from error

    def _connect(self) -> socket.socket:
        if self._socket is None:
            import hiredis

            self._connection = self._transport.connection()
            self._connection.connect()
            self._socket = self._connection._sock
            self._parser = hiredis.Reader(notEnoughData=_UNFINISHED)
        if self._socket is None:
            raise BrokerUnavailable(f"Redis at {self._transport.place()} closed the connection")
        return self._socket

    def fileno(self) -> int:
        """The socket to poll after start()."""
        if self._socket is None:
            raise BrokerUnavailable("no read is under way")
        return self._socket.fileno()

    def receive(self) -> Delivery:
        """What the read, and the adoption behind it, answered.

        Raises:
            GroupLost: the consumer group is gone; prepare the queue and read again.
            BrokerUnavailable: the connection is lost, or the server refused; an entry may have been delivered.
        """
        try:
            data = self._receive()
            if self._adopting and (claim := parse_delivery(data)) is not None:
                return Delivery((), True, (claim,))
            replies = self._replies(data, 2 if self._adopting else 1)
        except Exception as error:
            self.abandon()
            raise translate(error, self._transport.place()) from error
        except BaseException:
            self.abandon()
            raise
        if isinstance(replies[0], Exception):
            refusal = translate(replies[0], self._transport.place())
            if not isinstance(refusal, GroupLost):
                self.abandon()  # after a fail-over the server's name may lead to another one
            raise refusal
        entries: list[tuple[str, int, bytes, bytes]] = []
        for stream, delivered in replies[0] or ():
            queue, band = self._streams[stream]
            entries += [(queue, band, entry, fields[0]) for entry, fields in delivered if fields]
        claims = self._adopted(replies[1]) if self._adopting and entries else ()
        return Delivery(() if claims else entries, self._adopting, claims)

    def _adopted(self, reply: Any) -> Sequence[Claim]:
        if not isinstance(reply, Exception):
            return parse_claims(reply).claims
        if "NOSCRIPT" in str(reply):
            self._transport.call(pack_command(["SCRIPT", "LOAD", script("adopt").text]))
        return ()

    def _receive(self) -> bytes:
        if self._socket is None:
            raise ConnectionError("no read is under way")
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def _replies(self, data: bytes, count: int) -> list[Any]:
        """The replies that `data` begins with."""
        parser = self._parser
        if parser is None:
            raise ConnectionError("no read is under way")
        parser.feed(data)
        replies: list[Any] = []
        while len(replies) < count:
            reply = parser.gets()
            if reply is _UNFINISHED:
                parser.feed(self._receive())
            else:
                replies.append(reply)
        return replies

    def abandon(self) -> None:
        """Close the connection, with or without a read under way."""
        self._socket = self._parser = None
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
