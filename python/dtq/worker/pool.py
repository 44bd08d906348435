"""The children of a worker as its supervisor sees them: asked for, said hello, ready, leaving, dead."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field

from dtq._core import SlotRow, Slots
from dtq.clock import SYSTEM
from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.processes import OutOfMemoryCounter, cause_of_death, kill_group, private_bytes, wait_status

START_S = 30.0
"""A child that has not said hello by then is given up."""


@dataclass(slots=True, eq=False)
class ChildProcess:
    """One child. `killed_for` and `charged` are set by whoever kills it: the cause, and the claims to charge.

    interrupted: claim number -> when it is killed for not ending. cancels: number of a cancelled claim -> when it is
    forgotten, if it is not executing then.
    """

    number: int
    incarnation: int
    consumer: str
    channel: Channel
    asked_at: float = field(default_factory=SYSTEM.monotonic)
    pid: int = 0
    pidfd: int = -1
    ready: bool = False
    leaving: bool = False
    failed: str = ""
    bye: str | None = None
    killed_for: str = ""
    tainted: bool = False
    charged: list[int] | None = None
    progress: tuple[int, float] = (-1, 0.0)
    interrupted: dict[int, float] = field(default_factory=dict[int, float])
    cancels: dict[int, float] = field(default_factory=dict[int, float])
    memory_at: float = 0.0

    def hear(self) -> Message | None:
        """What it has said; None if nothing stands. Raises ChannelClosed."""
        return self.channel.receive()

    def tell(self, message: Message) -> None:
        """Say something, and knock: the signal makes it listen even while a handler runs.

        A child that has long taken nothing gets no more of it: the supervisor waits for nobody, and kills it in time.
        """
        with contextlib.suppress(ChannelClosed):
            self.channel.send(message, wait=False)
            if self.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGUSR1)

    def answer(self, message: Message) -> None:
        """Say something to a child that waits for it, without the knock."""
        with contextlib.suppress(ChannelClosed):
            self.channel.send(message)

    def leave(self, why: str) -> None:
        """Ask it to stop claiming, finish what it has begun, and go."""
        if self.ready and not self.leaving:
            self.leaving = True
            self.tell({"say": "leave", "why": why})

    def interrupt(self, row: SlotRow, kind: str, text: str) -> None:
        """Raise an exception in the handler of this row, if it still runs."""
        self.tainted = True  # what the handler has started is killed with this child
        self.tell({"say": "interrupt", "place": row.place, "seq": row.seq, "kind": kind, "text": text})

    def kill(self, cause: str, charged: list[int] | None = None) -> None:
        """SIGKILL to it and all that it has started."""
        if not self.killed_for:
            self.killed_for, self.charged = cause, charged
        if self.pid:
            kill_group(self.pid)

    def private_bytes(self) -> int:
        return private_bytes(self.pid)

    def close(self) -> None:
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


@dataclass(frozen=True, slots=True)
class Death:
    """What is known of a child that has ended."""

    child: ChildProcess
    cause: str
    clean: bool
    watermark: int
    executing: list[int]


def bury(child: ChildProcess, slots: Slots, out_of_memory: OutOfMemoryCounter) -> Death:
    """Reap a dead child, kill what it has left running in its group, and read its slot for the last time."""
    if child.bye is None or child.tainted:
        kill_group(child.pid)  # before it is reaped: until then nobody else can have its number
    status = wait_status(child.pid)
    cause = cause_of_death(status)
    if cause == "signal SIGKILL" and not child.killed_for and out_of_memory.grew():
        cause = "out of memory"
    executing = [row.seq for row in slots.rows(child.number)]
    death = Death(
        child,
        cause=child.killed_for or cause,
        clean=child.bye is not None and status == 0,
        watermark=slots.watermark(child.number),
        executing=executing if child.charged is None else child.charged,
    )
    slots.reset(child.number)
    child.close()
    return death
