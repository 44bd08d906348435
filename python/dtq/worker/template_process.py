"""The supervisor's side of the template process: start it, hear what it says, start it again when it dies."""

from __future__ import annotations

import os
import subprocess
import sys

from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.journal import LOGGER
from dtq.worker.processes import cause_of_death, kill_group


class TemplateProcess:
    """One running template. `pidfd` becomes readable when it is dead; `channel` when it says something."""

    def __init__(self, app_path: str, slots_descriptor: int, preload: bool, log_level: int) -> None:
        self.channel, theirs = Channel.pair()
        # The main thread starts it: the parent-death signal belongs to the thread that forks.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dtq.worker.template", str(theirs.fileno()), str(slots_descriptor)],
            pass_fds=(theirs.fileno(), slots_descriptor),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.pidfd = os.pidfd_open(self._process.pid)
        LOGGER.debug("template started (pid %d)", self._process.pid)
        self.ready = False
        self._tell(
            {
                "say": "boot",
                "supervisor": os.getpid(),
                "app": app_path,
                "path": sys.path,
                "preload": preload,
                "log_level": log_level,
            }
        )

    def configure(self, message: Message) -> None:
        """Tell it what its children need; from then on it may be asked for some."""
        self.ready = self._tell(message)

    def _tell(self, message: Message) -> bool:
        """Say something; False if it is dead already, of which its pidfd tells in a moment."""
        try:
            return self.channel.send(message)
        except ChannelClosed:
            return False

    @property
    def pid(self) -> int:
        return self._process.pid

    def receive(self) -> Message | None:
        """What it has said; None if nothing stands, or if it is gone (the pidfd tells)."""
        try:
            return self.channel.receive()
        except ChannelClosed:
            return None

    def end(self) -> str:
        """Kill it if it still runs, and forget it; how it ended."""
        kill_group(self._process.pid)
        code = self._process.wait()
        self.channel.close()
        os.close(self.pidfd)
        return cause_of_death(-code if code < 0 else code << 8)
