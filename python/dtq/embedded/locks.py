"""The two lock files of the embedded store. A lock is a file descriptor: closing it is the only way it is given back.

Never unlock (LOCK_UN): a forked child shares the lock with its parent, and unlocking would take it from both.
Descriptors are not inherited over exec (Python's default), so a program started by a task does not keep the store up.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

USERS = "users"
LOCK = "lock"
_RETRY_S = 0.005


def share_users(directory: Path, deadline: float) -> int | None:
    """Return a descriptor with a shared lock on the users file; None if it cannot be had until `deadline` (monotonic).

    It has to be waited for only while a guard ends the server. Raises OSError when the file cannot be opened.
    """
    while True:
        descriptor = _lock(directory / USERS, fcntl.LOCK_SH)
        if descriptor is not None:
            return descriptor
        if time.monotonic() >= deadline:
            return None
        time.sleep(_RETRY_S)


def take_server_lock(directory: Path) -> int | None:
    """Return a descriptor with the exclusive lock of the server; None while a server (or its starter) holds it."""
    return _lock(directory / LOCK, fcntl.LOCK_EX)


def still_there(descriptor: int, path: Path) -> bool:
    """Whether the path still names the file that the descriptor has open (a directory can be deleted under us)."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _lock(path: Path, operation: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        held = still_there(descriptor, path)
    except BlockingIOError:
        held = False
    except BaseException:
        os.close(descriptor)
        raise
    if held:
        return descriptor
    os.close(descriptor)
    return None
