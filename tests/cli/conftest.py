"""The command called within this process: what it prints and its exit code, on a server of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.cli.commands import Finished
from tests.servers import PrivateServer

from dtq.app import App
from dtq.cli import main


class Tty(io.StringIO):
    """Standard input of somebody who types."""

    def isatty(self) -> bool:
        """A terminal, as far as the command can tell."""
        return True


@pytest.fixture
def app(clean_server: PrivateServer) -> Iterator[App]:
    """An app on the server that `cli` uses, with the default queue made."""
    with App(clean_server.url) as app:
        app.broker.prepare_queue("default")
        yield app


@pytest.fixture
def cli(
    clean_server: PrivateServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """Call `dtq` with these words. typed: what somebody types; without it standard input is no terminal."""
    monkeypatch.setenv("DTQ_REDIS_URL", clean_server.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")

    def call(*words: str, typed: str | None = None) -> Finished:
        monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Tty(typed))
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return Finished(code, out, err)

    return call
