"""Where the embedded store keeps its files: the data directory and the path of the server's unix socket."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from dtq.errors import StoreError

# The kernel's limit is 107 bytes on Linux and 103 on macOS; a server given more does not start.
SOCKET_PATH_MAX_BYTES = 100


def default_directory() -> Path:
    """Return `$XDG_DATA_HOME/dtq/default`, or the same below `~/.local/share`. Raises StoreError without a home."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The specification of XDG_DATA_HOME says to ignore a relative path.
    if os.path.isabs(data_home):
        return Path(data_home, "dtq", "default")
    try:
        return Path.home() / ".local" / "share" / "dtq" / "default"
    except RuntimeError as error:
        raise StoreError("this user has no home directory; set DTQ_DATA_DIR to a writable directory") from error


def prepare_directory(directory: Path) -> Path:
    """Create the directory (mode 0700) unless it is there, and return its path without links.

    Raises StoreError, one line that names the path, when it cannot be created or written to.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = directory.resolve(strict=True)
        if not os.access(resolved, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError("not readable and writable for this user")
    except (OSError, RuntimeError, ValueError) as error:
        raise unusable(directory, error) from error
    return resolved


def unusable(directory: Path, error: Exception) -> StoreError:
    """The error for a data directory that cannot be used, and why."""
    reason = str(error)
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file is in the way"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
    return StoreError(
        f"the data directory {str(directory)!r} cannot be used: {reason}; set DTQ_DATA_DIR to a writable directory"
    )


def choose_socket_path(directory: Path) -> str:
    """Return the path for the server's socket: `s` in the directory, or a short private place when that is too long.

    Raises StoreError when the short place belongs to someone else.
    """
    path = os.fspath(directory / "s")
    if _fits(path):
        return path
    name = f"dtq-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    runtime_directory = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime_directory) and os.access(runtime_directory, os.W_OK):
        path = os.path.join(runtime_directory, f"{name}.socket")
        if _fits(path):
            return path
    place = os.path.join(tempfile.gettempdir(), f"{name}-{os.getuid()}")
    path = os.path.join(place, "s")
    if not _fits(path):
        raise StoreError(
            f"the path of {str(directory)!r} is too long for a unix socket; set DTQ_DATA_DIR to a shorter one"
        )
    _make_private(place)
    return path


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES


def _make_private(place: str) -> None:
    """Create a directory in a place open to all, and make sure that it is ours alone."""
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        found = os.lstat(place)
    except OSError as error:
        raise StoreError(f"no place for the unix socket: {error}; set DTQ_DATA_DIR to a shorter path") from error
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if not private:
        raise StoreError(
            f"{place!r} is not a private directory of this user; remove it or set DTQ_DATA_DIR to a shorter path"
        )
