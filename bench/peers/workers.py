"""A peer's worker processes: started, watched in /proc, and killed with everything that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

TICKS = os.sysconf("SC_CLK_TCK")


class Workers:
    """The processes of some commands, with all their descendants."""

    def __init__(self, commands: list[list[str]], environment: dict[str, str], directory: Path, log: IO[Any]) -> None:
        self._processes = [
            subprocess.Popen(
                command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )
            for command in commands
        ]  # fmt: skip

    def check_alive(self) -> None:
        """RuntimeError when one of the commands has ended by itself."""
        for process in self._processes:
            if (code := process.poll()) is not None:
                raise RuntimeError(f"a worker ended by itself with exit code {code}")

    def pids(self) -> list[int]:
        """Of the commands and all their descendants."""
        children: dict[int, list[int]] = {}
        found: set[int] = set()
        waiting = {process.pid for process in self._processes}
        sessions = set(waiting)
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (fields := _stat(int(path.name))):
                children.setdefault(int(fields[1]), []).append(int(path.name))
                if int(fields[3]) in sessions:
                    waiting.add(int(path.name))  # an orphan of ours
        while waiting:
            found.add(pid := waiting.pop())
            waiting |= set(children.get(pid, [])) - found
        return sorted(found)

    def memory_mb(self) -> float:
        """Private memory and the processes' shares of what they share (PSS), in MB (10**6 bytes)."""
        total = 0
        for pid in self.pids():
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
        return total / 1e6

    def cpu_s(self) -> float:
        """CPU time of the living and of those that they have reaped, in seconds."""
        return sum(sum(map(int, fields[11:15])) for pid in self.pids() if (fields := _stat(pid))) / TICKS

    def kill(self) -> None:
        """SIGKILL to all of them. They are stopped first, so that none acts on the death of another."""
        seen: set[int] = set()
        while new := set(self.pids()) - seen:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            seen |= new
        for pid in seen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        deadline = time.monotonic() + 5
        while any(_stat(pid) for pid in seen) and time.monotonic() < deadline:
            time.sleep(0.005)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat behind the program's name; none for one that is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields
