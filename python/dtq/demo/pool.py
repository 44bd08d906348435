"""The worker that the census starts for itself, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dtq.demo.census import QUEUE

APPLICATION = "dtq.demo.census:app"
STOP_TIMEOUT_S = 40.0
"""Longer than a drain may take (25 s of grace and 2 s for a kill)."""


class Pool:
    """One `dtq worker` on the census queue; `start` and `stop` are a pair.

    children: processes that run handlers. environment: that of the worker (where the tasks are kept is told by it,
    not by the command line, which every user of the machine can read). log: file that takes what the worker says.
    """

    def __init__(self, children: int, environment: Mapping[str, str], log: Path) -> None:
        self._children = children
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker. It leaves by itself when nothing is queued, running or retrying any more."""
        # -P: a file in the current directory must not stand in for a module of Python's.
        command = [sys.executable, "-P", "-m", "dtq", "worker", APPLICATION, "--queues", QUEUE, "--burst"]
        command += ["--children", str(self._children)]
        with open(self._log, "ab") as log:
            # A session of its own: Ctrl-C reaches the census alone, which then asks the worker to drain, once.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """Return how the worker ended (negative: by that signal), or None while it runs or before its start."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        """Return the process id of the worker's supervisor, or None before the start."""
        return None if self._process is None else self._process.pid

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the worker to leave; True when it has (or was never started)."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Ask the worker to drain and wait for it; a second Ctrl-C ends the grace, and in the end it is killed."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            self.wait(STOP_TIMEOUT_S)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is stopping: a third one could only break that off
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            self.wait(5.0)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def last_words(self) -> str:
        """Return the last line that the worker wrote, or "" when it wrote none."""
        try:
            with open(self._log, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""
