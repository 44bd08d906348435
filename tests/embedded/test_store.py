"""The embedded store with real servers and real processes: sharing, ending, crashing, coming back."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import redis
from tests.conftest import WaitUntil
from tests.embedded.processes import (
    alive,
    make_program,
    parent_of,
    run_python,
    start_python,
    wait_until,
    wait_until_gone,
)
from tests.servers import find_binary

from dtq.embedded import Store, launch, open_store
from dtq.embedded.launch import read_running
from dtq.errors import StoreError

LINGER_S = 0.1


def client_of(store: Store) -> closing[redis.Redis]:
    return closing(redis.Redis.from_url(store.url))


def test_cold_open_gives_a_private_durable_server(directory: Path, binary: str) -> None:
    with open_store(directory, binary, linger_s=LINGER_S) as store, client_of(store) as client:
        assert client.ping()
        assert store.binary == binary
        assert store.directory == directory.resolve()
        assert client.info("server")["process_id"] == store.pid
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "aof-use-rdb-preamble": "no", "save": ""}
        wanted |= {"maxmemory-policy": "noeviction", "port": "0", "databases": "1"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for name in ("s", "users", "lock", "server.json", "server.log"):
            assert stat.S_IMODE((directory / name).stat().st_mode) & 0o077 == 0, name
        # Ctrl-C reaches everything in the session of the terminal.
        assert os.getsid(store.pid) != os.getsid(0)


def test_a_locale_that_is_not_installed_does_not_matter(
    directory: Path, binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    open_store(directory, binary, linger_s=LINGER_S).close()


def test_the_server_ends_after_its_last_store(directory: Path) -> None:
    first = open_store(directory, linger_s=LINGER_S)
    second = open_store(directory, linger_s=LINGER_S)
    guard = parent_of(first.pid)
    assert first.pid == second.pid
    first.close()
    first.close()
    with pytest.raises(StoreError, match="closed"):
        first.ensure_running()
    second.ensure_running()
    assert alive(second.pid)
    second.close()
    wait_until_gone(second.pid, guard)
    assert not (directory / "s").exists()


def test_processes_share_one_server(directory: Path) -> None:
    program = """
        import sys, pathlib
        from dtq.embedded import open_store
        with open_store(pathlib.Path(sys.argv[1])) as store:
            print(store.pid)
    """
    with open_store(directory, linger_s=LINGER_S) as store:
        assert int(run_python(program, directory)) == store.pid


def test_data_is_kept_between_runs_and_across_servers(directory: Path) -> None:
    binaries = [found for name in ("redis", "valkey", "redis") if (found := find_binary(name))]
    for number, binary in enumerate(binaries):
        with open_store(directory, binary, linger_s=0) as store, client_of(store) as client:
            if number == 0:
                client.xgroup_create("stream", "workers", id="0", mkstream=True)
            client.xadd("stream", {"run": str(number)})
            client.xreadgroup("workers", "reader", {"stream": ">"}, count=1)
            assert client.xlen("stream") == number + 1
            assert client.xpending("stream", "workers")["pending"] == number + 1
        wait_until_gone(store.pid)


def test_forked_workers_keep_the_store_of_a_killed_parent(directory: Path) -> None:
    program = """
        import os, pathlib, sys, time, redis
        from dtq.embedded import open_store
        store = open_store(pathlib.Path(sys.argv[1]), linger_s=float(sys.argv[2]))
        workers = []
        for _ in range(3):
            if pid := os.fork():
                workers.append(pid)
                continue
            client = redis.Redis.from_url(store.url)
            while True:
                client.incr("count")
                time.sleep(0.01)
        print(store.pid, *workers, flush=True)
        time.sleep(60)
    """
    parent = start_python(program, directory, LINGER_S)
    assert parent.stdout is not None
    server, *workers = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    # A look at the server that takes no lease: it has to be the workers that keep it up.
    with closing(redis.Redis(unix_socket_path=str(directory / "s"))) as client:
        seen = int(client.get("count") or 0)
        wait_until(lambda: int(client.get("count") or 0) > seen + 100)
        assert alive(server)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_until_gone(server)
    with open_store(directory, linger_s=0) as store, client_of(store) as client:
        assert int(client.get("count") or 0) > seen + 100


def test_a_killed_guard_takes_the_server_along_and_both_come_back(directory: Path) -> None:
    with open_store(directory, linger_s=LINGER_S) as store, client_of(store) as client:
        client.set("kept", "yes")
        server = store.pid
        os.kill(parent_of(server), signal.SIGKILL)
        wait_until_gone(server)
        store.ensure_running()
        assert store.pid != server
        assert client.get("kept") == b"yes"


def test_a_guard_asked_to_end_ends_its_server_in_good_order(directory: Path) -> None:
    with open_store(directory, linger_s=LINGER_S) as store:
        server, guard = store.pid, parent_of(store.pid)
        os.kill(guard, signal.SIGTERM)
        wait_until_gone(server, guard)
        assert "bye bye" in (directory / "server.log").read_text()


def test_a_killed_server_comes_back_with_every_acknowledged_write(directory: Path, binary: str) -> None:
    with open_store(directory, binary, linger_s=LINGER_S) as store, client_of(store) as client:
        acknowledged = 0
        for round_number in range(3):
            for _ in range(20):
                pipeline = client.pipeline(transaction=False)
                for _ in range(100):
                    pipeline.xadd("stream", {"round": str(round_number)})
                acknowledged += len(pipeline.execute())
            server, guard = store.pid, parent_of(store.pid)
            os.kill(server, signal.SIGKILL)
            store.ensure_running()
            assert store.pid != server
            assert client.xlen("stream") == acknowledged
            wait_until_gone(guard)


def test_a_second_open_revives_the_server_too(directory: Path) -> None:
    with open_store(directory, linger_s=LINGER_S) as first:
        server = first.pid
        os.kill(server, signal.SIGKILL)
        wait_until_gone(server)
        with open_store(directory, linger_s=LINGER_S) as second:
            assert first.pid == second.pid != server


def test_racing_openers_never_run_two_servers_or_lose_a_write(directory: Path) -> None:
    program = """
        import pathlib, sys
        from dtq.embedded import open_store
        from dtq.embedded.launch import ask
        for _ in range(6):
            with open_store(pathlib.Path(sys.argv[1]), linger_s=0) as store:
                assert ask(store.socket_path, b"INCR count\\r\\n").startswith(b":")
    """
    openers = [start_python(program, directory) for _ in range(8)]
    for opener in openers:
        opener.communicate(timeout=60)
        assert opener.returncode == 0
    with open_store(directory, linger_s=0) as store, client_of(store) as client:
        assert client.get("count") == b"48"


def test_a_program_started_by_a_user_does_not_keep_the_store(directory: Path) -> None:
    store = open_store(directory, linger_s=LINGER_S)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as program:
        store.close()
        wait_until_gone(store.pid)
        assert program.poll() is None
        program.kill()


def test_a_forked_child_may_close_its_copy(directory: Path) -> None:
    with open_store(directory, linger_s=0) as store, client_of(store) as client:
        child = os.fork()
        if child == 0:
            store.ensure_running()
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        # The server would have ended by now: a guard that finds no users takes the file at once.
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["flock", "--exclusive", directory / "users", "true"], check=True, timeout=0.3)
        assert client.ping()


def test_the_careful_user_gets_fsync_always(directory: Path) -> None:
    with open_store(directory, linger_s=LINGER_S) as store, client_of(store) as client:
        open_store(directory, fsync="always").close()
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
    with pytest.raises(StoreError, match="fsync: 'sometimes'"):
        open_store(directory, fsync="sometimes")


def test_a_long_path_puts_the_socket_elsewhere_and_others_find_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = directory / ("long" * 15) / ("path" * 15)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory.parent))
    program = """
        import sys, pathlib
        from dtq.embedded import open_store
        with open_store(pathlib.Path(sys.argv[1])) as store:
            print(store.socket_path)
    """
    with open_store(deep, linger_s=0) as store, client_of(store) as client:
        assert client.ping()
        assert Path(store.socket_path).parent == directory.parent
        assert run_python(program, deep, XDG_RUNTIME_DIR=str(tmp_path)).strip() == store.socket_path
    wait_until_gone(store.pid)


def test_any_name_of_a_directory_works(directory: Path, binary: str) -> None:
    name = "with space, ümlaut, %41? 'n \"#"
    with open_store(directory / name, binary, linger_s=0) as store, client_of(store) as client:
        assert client.ping()
    wait_until_gone(store.pid)


def test_a_deleted_directory_is_made_anew(directory: Path) -> None:
    with open_store(directory, linger_s=LINGER_S) as store, client_of(store) as client:
        client.set("gone", "yes")
        first = store.pid
        shutil.rmtree(directory)
        store.ensure_running()
        assert store.pid != first
        client.close()  # It was still talking to the first server.
        assert client.get("gone") is None
        # The guard of the first server sees that the directory is no longer its own, and leaves the socket alone.
        wait_until_gone(first)
        store.ensure_running()
        assert client.ping()


def test_a_file_in_the_way_is_one_clear_line(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(StoreError) as caught:
        open_store(directory)
    assert str(caught.value) == (
        f"the data directory '{directory}' cannot be used: a file is in the way; "
        "set DTQ_DATA_DIR to a writable directory"
    )
    with pytest.raises(StoreError, match="cannot be used: a file is in the way"):
        open_store(directory / "below")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_of_someone_else_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match="'/usr/dtq' cannot be used: permission denied; set DTQ_DATA_DIR"):
        open_store(Path("/usr/dtq"))


def test_a_users_file_that_cannot_be_opened_is_one_clear_line(directory: Path) -> None:
    (directory / "users").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be used: is a directory; set DTQ_DATA_DIR"):
        open_store(directory)


def test_a_server_that_ends_at_once_shows_its_log(directory: Path) -> None:
    script = (
        'case "$1" in --version) echo "Redis server v=7.2.0 sha=0:0";; *) echo "Bad file format" >&2; exit 1;; esac'
    )
    directory.mkdir()
    server = make_program(directory / "server", script)
    with pytest.raises(StoreError) as caught:
        open_store(directory, str(server), linger_s=0)
    message = str(caught.value)
    assert message.startswith(f"the private server ended right after its start; the end of {directory}/server.log:\n")
    assert "  Bad file format" in message


def test_a_server_that_never_answers_is_not_waited_for_forever(
    directory: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 0.3)
    directory.mkdir()
    script = 'case "$1" in --version) echo "Valkey server v=8.0.0 sha=0:0";; *) exec sleep 60;; esac'
    server = make_program(directory / "server", script)
    with pytest.raises(StoreError, match=r"did not answer for 0\.3 s; .*server\.log is empty"):
        open_store(directory, str(server), linger_s=0)
    # On a busy machine the guard may not have come to start it within that time.
    running = wait_until(lambda: read_running(directory), 10, "server.json")
    assert running is not None
    wait_until_gone(running.pid)
