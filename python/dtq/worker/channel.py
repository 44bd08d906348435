"""Messages between the supervisor, the template and the children: JSON objects over a socket pair, fds included."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable
from typing import Any

import orjson

Message = dict[str, Any]

_PIECE = 65_536
_MORE, _LAST = b"+", b"."


class Channel:
    """One end of a packet socket: messages arrive whole, in order, or not at all.

    A message longer than a packet travels in pieces. Both `send` and `receive` raise `ChannelClosed` when the other
    end is gone. A signal handler may receive while the code it interrupts does, if no message has more than one piece.
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

    def send(self, message: Message, descriptors: tuple[int, ...] = (), *, wait: bool = True) -> bool:
        """Send it as soon as the other end has room. wait=False: now or not at all; False where there is no room."""
        flags = socket.MSG_NOSIGNAL if wait else socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
        data = orjson.dumps(message)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)] or [b""]
        try:
            for index, piece in enumerate(pieces):
                mark = _LAST if index == len(pieces) - 1 else _MORE
                self._socket.sendmsg([mark, piece], ancillary if mark == _LAST else [], flags)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        return True

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
            if data[:1] == _LAST and not self._pieces:
                return _message(data[1:], _descriptors(ancillary))  # nothing of it is kept here in between
            self._pieces.append(data[1:])
            self._descriptors += _descriptors(ancillary)
            if data[:1] == _LAST:
                break
        message = _message(b"".join(self._pieces), self._descriptors)
        self._pieces, self._descriptors = [], []
        return message

    def close(self) -> None:
        self._socket.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The open descriptors that came with a packet."""
    found: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
            found += received
    return found


def _message(data: bytes, descriptors: list[int]) -> Message:
    message: Message = orjson.loads(data)
    if descriptors:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        message["descriptors"] = descriptors
    return message


class Unnested:
    """Does some work for every signal, but never within itself: a burst of signals must not pile up on the stack.

    A signal that comes while the work is done has it done once more. What the work raises goes to the interrupted code.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._asked = False
        self._working = False

    def __call__(self) -> None:
        """Ask for the work, and do it unless that is happening further down the stack."""
        self._asked = True
        # A signal between the last look at `_asked` and the end of `_working` finds neither: so it is looked at again.
        while self._asked and not self._working:
            self._working = True
            try:
                while self._asked:
                    self._asked = False
                    self._work()
            finally:
                self._working = False


class ChannelClosed(Exception):
    """The process at the other end is gone, or has closed its end."""
