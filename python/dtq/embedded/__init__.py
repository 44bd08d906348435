"""The embedded store: a private Redis or Valkey server in a data directory, shared by every process that opens it.

How one server comes, is shared and goes, with two files that are only ever locked (`flock`):

    users   every process that has the store open holds a shared lock. Forked children inherit it, exec'ed ones do not,
            and the kernel gives it back when the last holder ends, however it ends.
    lock    held by the server process itself for as long as it lives: one server per directory.

    opener  shared lock on users -> takes lock? starts a guard (which starts the server) : joins the one that runs
            -> PING until it answers
    guard   waits until users is free, gives late comers a short while, ends the server, and ends with it

store.py is the way in; directory.py, locks.py, server_binary.py and launch.py are its steps; guard.py is run as a
program of its own. The directory must be on a local file system, as `flock` over a network one does not hold.
"""

from dtq.embedded.store import Store, open_store

__all__ = ["Store", "open_store"]
