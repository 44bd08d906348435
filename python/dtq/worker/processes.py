"""What the worker asks of Linux: subreaper, parent-death signal, causes of death, orphans, private memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphaned descendants of this process become its own children, so that it sees their ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """The kernel kills this process when the main thread of its parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Scheduling:
    """How the kernel schedules this thread: as batch work while it is busy, as usual while it is idle (decision 13).

    An answer that wakes a busy thread then does not push the server off its CPU; a task that wakes an idle one does not
    wait for a CPU behind others. Only where it is scheduled as usual at first: whoever starts a worker in another way,
    say by `chrt --idle`, has a reason. What a busy thread starts inherits that it is batch work.
    """

    def __init__(self) -> None:
        self._ours = False
        with contextlib.suppress(OSError, AttributeError):  # a sandbox forbids it, musl has none; not on Linux
            self._ours = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
        self._parameters: Any = os.sched_param(0) if self._ours else None
        self.busy()

    def busy(self) -> None:
        """It has something to do."""
        if self._ours:
            self._use(os.SCHED_BATCH)

    def idle(self) -> None:
        """It has had nothing to do for a while, and waits."""
        if self._ours:
            self._use(os.SCHED_OTHER)

    def _use(self, policy: int) -> None:
        try:
            # Somebody may have chosen another one meanwhile, for this process or for all.
            self._ours = os.sched_getscheduler(0) in {os.SCHED_OTHER, os.SCHED_BATCH}
            if self._ours:
                os.sched_setscheduler(0, policy, self._parameters)
        except OSError:  # a sandbox forbids it
            self._ours = False


def open_standard_streams() -> None:
    """Open /dev/null in the place of stdin, stdout and stderr where they are closed, here and in all that is started.

    Else sockets and shared memory take their numbers, and what handlers print is written into those.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)


def name_process(name: str) -> None:
    """The name that `ps -e -o pid,comm`, top and pgrep show for this process: 15 characters at most."""
    with contextlib.suppress(OSError):  # not on Linux
        Path("/proc/self/comm").write_text(name[:15], encoding="ascii")


def _prctl(option: int, value: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def wait_status(pid: int) -> int | None:
    """Reap this ended child and return its wait status; None if it runs on or somebody else has reaped it."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found else None


def cause_of_death(status: int | None) -> str:
    """The end of a process in words: `signal SIGKILL` or `exit 3`."""
    if status is None:
        return "unknown end"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(number).name}"
        return f"signal {number}"
    return f"exit {os.waitstatus_to_exitcode(status)}"


def kill_group(pid: int) -> None:
    """SIGKILL to a child and everything in its process group. The child must not have been reaped yet."""
    for kill in (os.killpg, os.kill):  # before its setsid the child leads no group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def child_pids() -> list[int]:
    """Children of this process's main thread, orphans that it inherited among them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def reap_orphans(known: set[int]) -> None:
    """Reap inherited processes that have ended, which nobody else can; those in `known` belong to somebody here."""
    for pid in child_pids():
        if pid not in known:
            wait_status(pid)


def private_bytes(pid: int) -> int:
    """Memory that only this process has; what it shares with its siblings since the fork is not counted. 0: unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_", "Swap:")))


class OutOfMemoryCounter:
    """Tells whether the kernel has killed something of our control group for want of memory."""

    def __init__(self) -> None:
        self._seen = self._kills()

    def grew(self) -> bool:
        """True if there were such kills since the last call."""
        before, self._seen = self._seen, self._kills()
        return self._seen > before

    def _kills(self) -> int:
        for path in _memory_event_files():
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0


def _memory_event_files() -> Iterator[Path]:
    """Where control groups of version 2, then 1, count those kills."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        group = group.lstrip("/")
        if not controllers:
            yield Path("/sys/fs/cgroup", group, "memory.events")
        elif "memory" in controllers.split(","):
            yield Path("/sys/fs/cgroup/memory", group, "memory.oom_control")
            yield Path("/sys/fs/cgroup/memory/memory.oom_control")
