"""A stage for each test: the session's Redis, emptied, and workers that are killed at the end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WaitUntil
from tests.process.gate import Gate
from tests.process.harness import Stage
from tests.process.scene import LEASE_S, RENEW_S, Scene
from tests.servers import PrivateServer

_STAGES = pytest.StashKey[list[Stage]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What fails once in hundreds of runs must tell all it can the first time."""
    report = yield
    if call.when == "call" and report.failed:
        for stage in item.stash.get(_STAGES, []):
            report.sections.extend(stage.story())
    return report


@pytest.fixture
def open_stage(
    request: pytest.FixtureRequest, clean_server: PrivateServer, tmp_path: Path, wait_until: WaitUntil
) -> Iterator[Callable[..., Stage]]:
    """Make a stage with settings of its own."""
    stages = request.node.stash[_STAGES] = []

    def opened(**settings: Any) -> Stage:
        stages.append(Stage(clean_server.url, tmp_path, wait_until, **settings))
        return stages[-1]

    yield opened
    for stage in stages:
        stage.close()


@pytest.fixture
def stage(open_stage: Callable[..., Stage]) -> Stage:
    """A stage with the default settings."""
    return open_stage()


@pytest.fixture(scope="module")
def lasting_stage(tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil) -> Iterator[Stage]:
    """A stage for all tests of a file, where one worker serves many small cases; each case has names of its own."""
    with PrivateServer() as server:
        stage = Stage(server.url, tmp_path_factory.mktemp("stage"), wait_until)
        yield stage
        stage.close()


@pytest.fixture(scope="session")
def durable_server() -> Iterator[PrivateServer]:
    """A Redis with an append-only file, shared by the session: tests kill it and start it again."""
    with PrivateServer("redis", persistence=True) as server:
        yield server


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, durable_server: PrivateServer, tmp_path: Path, wait_until: WaitUntil
) -> Iterator[Scene]:
    """An empty durable server behind a gate, with a short lease."""
    durable_server.start()
    with durable_server.client() as client:
        client.flushall()
    assert durable_server.socket_path is not None
    with Gate(durable_server.socket_path) as gate:
        stage = Stage(durable_server.url, tmp_path, wait_until, lease_s=LEASE_S, renew_s=RENEW_S)
        scene = Scene(durable_server, gate, stage, wait_until, tmp_path)
        scene.load_scripts()
        request.node.stash[_STAGES] = [stage]
        yield scene
        stage.close()
