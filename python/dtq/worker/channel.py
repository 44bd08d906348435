"""Messages between the supervisor, the template and the children: JSON objects over a socket pair, fds included."""

from __future__ import annotations

import array
import os
import socket
from typing import Any

import orjson

Message = dict[str, Any]

_PIECE = 65_536
_MORE, _LAST = b"+", b"."


class Channel:
    """One end of a packet socket: messages arrive whole, in order, or not at all.

    A message longer than a packet travels in pieces. `send` blocks until the other end has room; both `send` and
    `receive` raise `ChannelClosed` when the other end is gone.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._pieces: list[bytes] = []
        self._descriptors: list[int] = []

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends; neither survives an exec unless it is passed on."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        """The end that was handed over as an open descriptor."""
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        data = orjson.dumps(message)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)] or [b""]
        try:
            for index, piece in enumerate(pieces):
                mark = _LAST if index == len(pieces) - 1 else _MORE
                self._socket.sendmsg([mark, piece], ancillary if mark == _LAST else [], socket.MSG_NOSIGNAL)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, *, wait: bool = False) -> Message | None:
        """The next message; None if there is none yet. Descriptors that came with it stand under `descriptors`."""
        flags = 0 if wait else socket.MSG_DONTWAIT
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_PIECE + 1, socket.CMSG_SPACE(16), flags)
            except BlockingIOError:
                return None
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not data:
                raise ChannelClosed("the other end is closed")
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(content[: len(content) - len(content) % received.itemsize])
                    self._descriptors.extend(received)
            self._pieces.append(data[1:])
            if data[:1] == _LAST:
                break
        message: Message = orjson.loads(b"".join(self._pieces))
        if self._descriptors:
            for descriptor in self._descriptors:
                os.set_inheritable(descriptor, False)
            message["descriptors"] = self._descriptors
        self._pieces, self._descriptors = [], []
        return message

    def close(self) -> None:
        self._socket.close()


class ChannelClosed(Exception):
    """The process at the other end is gone, or has closed its end."""
