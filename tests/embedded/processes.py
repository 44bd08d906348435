"""What the tests of the embedded store share: waiting with a deadline, looking at processes, running programs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Return as soon as the condition holds; fail when it does not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def wait_until_gone(*pids: int) -> None:
    """Return as soon as none of the processes runs any more."""
    wait_until(lambda: not any(map(alive, pids)))


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _stat_fields(pid)[:1] not in ([], ["Z"])


def parent_of(pid: int) -> int:
    """The parent's process id: the guard's, when asked for the server's."""
    return int(_stat_fields(pid)[1])


def start_python(program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start a Python program of its own; its standard output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def run_python(program: str, *arguments: object, **environment: str) -> str:
    """Run a Python program to its end and return what it printed; fail when it failed."""
    process = start_python(program, *arguments, **environment)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return output


def make_program(path: Path, script: str) -> Path:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; none when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
