"""Fixtures of the embedded store's tests: a short data directory whose server is gone after the test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded.processes import alive, wait_until_gone
from tests.servers import find_binary

from dtq.embedded.launch import read_running


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory that does not exist yet."""
    parent = Path(tempfile.mkdtemp(prefix="dtq-store-"))
    yield parent / "data"
    running = read_running(parent / "data")
    if running and alive(running.pid):
        os.kill(running.pid, signal.SIGKILL)
        wait_until_gone(running.pid)
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture(params=["redis", "valkey"])
def binary(request: pytest.FixtureRequest) -> str:
    """Each server program of this machine in turn."""
    found = find_binary(request.param)
    if found is None:
        pytest.skip(f"no {request.param} server on this machine")
    return found
