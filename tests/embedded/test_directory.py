"""Where the data directory and the socket are put."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtq.embedded.directory import choose_socket_path, default_directory
from dtq.errors import StoreError

LONG = Path("/") / ("long" * 30)


def test_the_default_directory_follows_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_directory() == Path("/data/dtq/default")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", ignored)
        assert default_directory() == Path("/home/someone/.local/share/dtq/default")


def test_a_socket_path_of_a_hundred_bytes_stays_in_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    exact = Path("/" + "a" * 97)
    assert choose_socket_path(exact) == f"{exact}/s"
    assert choose_socket_path(Path("/" + "ä" * 49)).startswith("/tmp/")


def test_the_short_place_is_private_or_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    socket_path = Path(choose_socket_path(LONG))
    assert socket_path.name == "s"
    assert socket_path.parent.stat().st_mode & 0o777 == 0o700
    assert choose_socket_path(LONG) == str(socket_path)
    socket_path.parent.chmod(0o777)
    with pytest.raises(StoreError, match="is not a private directory of this user"):
        choose_socket_path(LONG)
    monkeypatch.setattr("tempfile.tempdir", str(LONG))
    with pytest.raises(StoreError, match="too long for a unix socket; set DTQ_DATA_DIR to a shorter one"):
        choose_socket_path(LONG)
