"""Connections of every kind: black holes, odd users and passwords, TLS, a server that is full from the start."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import dtq
from dtq._core import pack_command
from tests.conftest import WaitUntil
from tests.process.harness import Stage, WorkerProcess
from tests.servers import PrivateServer, free_port

SECRET = "SECRET-1234"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "workers.md"


class BlackHole:
    """Forwards connections to a port; after `swallow()` those that stand stay open, and nothing passes through them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._generation, self._swallowed = 0, -1
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._swallowed = self._generation
        self._generation += 1

    def close(self) -> None:
        for opened in self._sockets:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ends = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._target))
                self._sockets += ends
                for source, sink in (ends, ends[::-1]):
                    threading.Thread(target=self._pass_on, args=(source, sink, self._generation), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, generation: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if generation > self._swallowed:
                    sink.sendall(data)
            if generation > self._swallowed:
                sink.shutdown(socket.SHUT_RDWR)


def test_a_black_holed_connection_is_given_up(tmp_path: Path, wait_until: WaitUntil) -> None:
    """Nothing tells an idle reader, or a busy child, that its connection is dead: it finds out by itself (S023)."""
    with PrivateServer(tcp=True) as server, dtq.App(server.url) as direct:
        hole = BlackHole(server.port)
        stage = Stage(hole.url, tmp_path, wait_until)
        try:
            worker = stage.worker()
            handle = stage.app.enqueue("sleep", {"name": "t", "seconds": 2})
            stage.started("t")
            hole.swallow()
            begun = time.monotonic()
            handles = [direct.enqueue("mark", {"name": f"h{i}"}) for i in range(5)]
            assert [one.result(timeout=40) for one in handles] == [f"h{i}" for i in range(5)]
            assert time.monotonic() - begun < 35
            assert direct.handle(handle.id).result(timeout=20) == "t"
            assert worker.process.poll() is None
            assert {e.attempt for e in stage.effects("start")} == {1}
        finally:
            stage.close()
            hole.close()


USERS = {"svc:1": "p@ss:/?#%25", "u": "a b", "ü": "pä$$", "default": "x" * 500, "a/b": "+%2B"}


def test_odd_users_and_passwords_work(tmp_path: Path, wait_until: WaitUntil) -> None:
    """Percent-encoded in the URL; never shown, also where they are wrong (S041, S123)."""
    with PrivateServer(tcp=True) as server, server.client() as client, contextlib.ExitStack() as stages:
        place = f"127.0.0.1:{server.port}"
        workers: dict[str, tuple[Stage, WorkerProcess, WorkerProcess]] = {}
        for number, (user, password) in enumerate(USERS.items()):
            rights = ("reset", "on", f">{password}", "allkeys", "allchannels", "+@all")
            client.execute_command("ACL", "SETUSER", user, *rights)
            right, wrong = (
                f"redis://{quote(user, safe='')}:{quote(p, safe='')}@{place}/0" for p in (password, "S3CRET")
            )
            folder = tmp_path / str(number)
            folder.mkdir()
            stage = Stage(right, folder, wait_until)
            stages.callback(stage.close)
            queue = f"q{number}"
            works = stage.worker(children=1, ready=False, queues=[queue])
            refused = stage.worker(children=1, ready=False, overrides={"redis_url": wrong})
            workers[queue] = stage, works, refused
        for (queue, (stage, works, refused)), password in zip(workers.items(), USERS.values(), strict=True):
            assert stage.ended(stage.app.enqueue("noop", queue=queue), 30).status == "succeeded"
            assert refused.wait(30) == 3
            assert "refused the user or password" in refused.log.splitlines()[-1]
            assert place in refused.log
            assert password not in works.log + refused.log
            assert "S3CRET" not in refused.log


def test_a_server_that_is_full_from_the_start_is_waited_for(tmp_path: Path, wait_until: WaitUntil) -> None:
    """No crash loop and no flood of lines; when there is room, all runs (S031)."""
    with PrivateServer(tcp=True) as server:
        stage = Stage(server.url, tmp_path, wait_until)
        try:
            handles = [stage.app.enqueue("mark", {"name": f"m{i}"}) for i in range(50)]
            with server.client() as client:
                client.config_set("maxmemory", 1)
                worker = stage.worker(children=1, ready=False)
                wait_until(lambda: "maxmemory" in worker.log, 10, "its word")
                time.sleep(1)  # in which it neither ends nor repeats itself
                assert worker.process.poll() is None
                assert worker.log.count("maxmemory") <= 2
                client.config_set("maxmemory", 0)
            assert {stage.ended(handle).attempt for handle in handles} == {1}
        finally:
            stage.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate that signed itself, for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=somebody.else",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    return folder


@pytest.fixture(scope="module")
def tls_server(certificate: Path) -> Iterator[tuple[PrivateServer, int]]:
    port = free_port()
    config = {"tls-port": str(port), "tls-cert-file": str(certificate / "cert.pem"),
              "tls-key-file": str(certificate / "key.pem"), "tls-auth-clients": "no"}  # fmt: skip
    try:
        server = PrivateServer(config=config)
        server.start()
    except RuntimeError:
        pytest.skip("this server was built without TLS")
    yield server, port
    server.close()


@pytest.mark.parametrize(
    ("host", "query", "word"),
    [
        ("127.0.0.1", "", "certificate"),
        ("127.0.0.1", "?ssl_ca_certs={cert}", ""),
        ("localhost", "?ssl_ca_certs={cert}", "certificate"),
        ("127.0.0.1", "?ssl_cert_reqs=none&ssl_check_hostname=false", ""),
    ],
)
def test_tls_verifies_unless_told_otherwise(
    tls_server: tuple[PrivateServer, int], certificate: Path, host: str, query: str, word: str
) -> None:
    """A certificate that nobody vouches for, or of another name, is refused and named (S040)."""
    _, port = tls_server
    url = f"rediss://{host}:{port}/0{query.format(cert=certificate / 'cert.pem')}"
    with dtq.App(url, enqueue_deadline_s=2) as app:
        if word:
            with pytest.raises(dtq.BrokerUnavailable, match=word):
                app.enqueue("noop")
        else:
            assert app.enqueue("noop").status() == "queued"


@pytest.mark.parametrize("scheme", ["unix", "rediss"])
def test_many_replies_share_one_time_out(tls_server: tuple[PrivateServer, int], certificate: Path, scheme: str) -> None:
    """Where each of them comes by itself, and in time."""
    server, port = tls_server
    url = server.url if scheme == "unix" else f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate / 'cert.pem'}"
    with dtq.App(url, enqueue_deadline_s=1) as app:
        app.enqueue("noop")
        begun = time.monotonic()
        with pytest.raises(dtq.BrokerUnavailable, match="did not answer in time"):
            app.broker.transport.call_many(10 * pack_command(["BLPOP", "nothing", "0.3"]), 10)
        assert time.monotonic() - begun < 1.4


@pytest.mark.parametrize("children", [1, 3])
def test_how_many_connections_a_worker_holds(stage: Stage, clean_server: PrivateServer, children: int) -> None:
    """docs/guide/workers.md: 2 + 2 for each child; maxclients is chosen by it."""
    assert "**Connections**: a worker holds 2 + 2 × children." in GUIDE.read_text()
    stage.app.broker.queues()
    with clean_server.client() as client:
        mine = {each["id"] for each in client.client_list()}

        def commands() -> list[str]:
            return sorted(each["cmd"] for each in client.client_list() if each["id"] not in mine)

        worker = stage.worker(children=children, ready=False)
        stage.wait_until(lambda: commands().count("xreadgroup") == children, 20, "the children wait")
        stage.wait_until(lambda: "psubscribe" in commands(), 10, "the listener listens")
        held = commands()
    assert len(held) == 2 + 2 * children, (held, worker.log)


@pytest.mark.parametrize("level", [10, 20])
def test_what_tasks_carry_is_in_no_log(stage: Stage, level: int) -> None:
    """Payloads, results, keys, metadata; success, failure, retry, time-out, dead letter (S122)."""
    worker = stage.worker(app="tests.process.oddities:app", children=1, log_level=level, ready=False)
    app = stage.app
    keyed = {"idempotency_key": SECRET, "unique": SECRET, "metadata": {"a": SECRET}, "headers": {"b": SECRET}}
    for handle in (
        app.enqueue("mark", {"name": SECRET}, **keyed),
        app.enqueue("mark", {SECRET: 1}),
        app.enqueue("sleep", {"name": SECRET, "seconds": 5}, timeout=0.2, max_attempts=1),
        app.enqueue("second_time", {"name": SECRET}),
        app.enqueue("throw", {"name": SECRET, "what": "things"}, max_attempts=1),
        app.enqueue("give", {"name": SECRET, "what": "set"}),
    ):
        stage.ended(handle)
    assert SECRET not in worker.log
