"""The guard: a small process between the store's users and its server: starts it, and ends it after the last user.

Run as `python -I -S guard.py DIRECTORY LOCK_DESCRIPTOR LINGER_S FACTS -- SERVER ARGUMENT...` by launch.py; standard
library only, so that it starts fast and stays small. FACTS is the text of server.json up to the process id.

The main thread waits for the server and ends with it. A second thread waits for the users file to become free, lets
`linger` pass, takes the file for itself and ends the server; whoever opens the store meanwhile waits until both are
gone. On Linux the server gets SIGTERM when the guard dies first. Other systems have no such signal: there the server
of a killed guard stays up, and keeps its data, until it is ended by hand (the design for it, not built: a third lock
held by the guard, and an opener that finds it free starts a guard that adopts the server by server.json).
"""

from __future__ import annotations

import _thread
import fcntl
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
STOP_TIMEOUT_S = 10.0


def main(arguments: list[str]) -> None:
    """Leave the opener's process tree, start the server, and wait for its end."""
    directory, lock_text, linger_text, facts = arguments[:4]
    command = arguments[5:]
    if os.fork():
        # The opener waits for this process only; the guard proper is nobody's child and leaves no zombie to it.
        os._exit(0)
    lock = int(lock_text)
    # Opened once: if the directory is deleted and made anew, these are still the users of this server.
    users = os.open(os.path.join(directory, "users"), os.O_RDWR | os.O_CREAT, 0o600)
    guard = os.getpid()
    server = os.fork()
    if server == 0:
        become_server(guard, directory, lock, facts, command)
    lock_file = os.fstat(lock)
    os.close(lock)  # Now only the server holds it, and the kernel gives it back when the server ends.

    def end_server(*_: object) -> None:
        os.kill(server, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end_server)

    def wait_for_users() -> None:
        try:
            take_users(users, float(linger_text))
        finally:
            stop(server, os.path.join(directory, "lock"), lock_file)

    _thread.start_new_thread(wait_for_users, ())
    os.waitpid(server, 0)
    os._exit(0)


def become_server(guard: int, directory: str, lock: int, facts: str, command: list[str]) -> None:
    """In the child: write server.json, so that it is there before the server can answer, and turn into the server."""
    try:
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)
        target = os.path.join(directory, "server.json")
        with open(target + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{facts}{os.getpid()}}}\n")
        os.replace(target + ".new", target)
        os.set_inheritable(lock, True)
        os.execv(command[0], command)  # noqa: S606 (a shell would be a process in between)
    except BaseException as error:
        # Standard error is server.log, whose end is shown when no server comes up.
        os.write(2, f"dtq: cannot start {command[0]}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(1)


def take_users(users: int, linger_s: float) -> None:
    """Return, holding the users file alone, once nobody has used the store for `linger_s` seconds."""
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(linger_s)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass


def stop(server: int, lock_path: str, lock_file: os.stat_result) -> None:
    """End the server in good order; the main thread sees it go and ends this process."""
    try:
        directory_is_ours = os.path.samestat(os.stat(lock_path), lock_file)
    except OSError:
        directory_is_ours = False
    if directory_is_ours:
        os.kill(server, signal.SIGTERM)
        time.sleep(STOP_TIMEOUT_S)
    # Past its time (all acknowledged writes have left the process by then); or the directory was deleted, and maybe
    # made anew: a server that ends in good order would remove the socket of the next one.
    os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
