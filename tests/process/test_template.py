"""The template by itself, with the test in its supervisor's place: a real one kills it as soon as it has spoken."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dtq._core import Slots
from dtq.settings import Settings
from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.template_process import TemplateProcess
from tests.conftest import WaitUntil
from tests.process.harness import APP, ROOT, family
from tests.process.test_starting import UNUSABLE


@dataclass
class Template:
    """A running template, and the supervisor's end of its channel."""

    process: subprocess.Popen[bytes]
    channel: Channel
    mark: str
    children: list[Channel] = field(default_factory=list[Channel])

    def hear(self) -> Message:
        """What it says next."""
        message = self.channel.receive(wait=True)
        assert message is not None
        return message

    def leave(self) -> int:
        """The supervisor is gone; how the template ends."""
        self.channel.close()
        return self.process.wait(20)

    def fork(self) -> Channel:
        """Ask for a child; the supervisor's end of its channel."""
        ours, theirs = Channel.pair()
        self.channel.send({"say": "fork", "number": 0, "incarnation": 1}, (theirs.fileno(),))
        theirs.close()
        self.children.append(ours)
        return ours

    def forked(self) -> list[int]:
        """Pids of the children that live."""
        found: list[int] = []
        for pid in family(self.mark):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "dtq-child":
                    found.append(pid)
        return found


@contextlib.contextmanager
def template(app: str, directory: Path, *, preload: bool = True) -> Iterator[Template]:
    """Start a template for this app."""
    ours, theirs = Channel.pair()
    descriptor = os.memfd_create("slots")
    Slots(descriptor, 1, 2, create=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dtq.worker.template", str(theirs.fileno()), str(descriptor)],
        pass_fds=(theirs.fileno(), descriptor),
        cwd=ROOT,
        env={**os.environ, "MARK": str(directory)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    started = Template(process, ours, str(directory))
    try:
        ours.send(
            {
                "say": "boot", "supervisor": os.getpid(), "app": app, "path": sys.path, "preload": preload,
                "log_level": 20,
            }
        )  # fmt: skip
        yield started
    finally:
        for pid in [process.pid, *started.forked()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for channel in (ours, *started.children):
            channel.close()
        os.close(descriptor)


@pytest.mark.parametrize("app", [app for app in UNUSABLE if "that_dies" not in app])
def test_it_says_why_an_app_cannot_be_used_and_ends(tmp_path: Path, app: str) -> None:
    """One message in one line, then exit code 2, without waiting for its supervisor to end it."""
    with template(app, tmp_path) as started:
        said = started.hear()
        assert said["say"] == "failed"
        assert UNUSABLE[app] in said["why"]
        assert "\n" not in said["why"]
        assert started.process.wait(20) == 2
        with pytest.raises(ChannelClosed):
            started.hear()


@pytest.mark.parametrize("app", ["tests.process.app_that_dies:app", "tests.process.app_that_raises:app"])
def test_without_preloading_it_says_so_for_its_probe(tmp_path: Path, app: str) -> None:
    """Also of a probe that could not speak any more; it ends in good order when its supervisor is gone."""
    with template(app, tmp_path, preload=False) as started:
        said = started.hear()
        assert said["say"] == "failed"
        assert UNUSABLE[app] in said["why"]
        assert started.leave() == 0


def test_a_child_whose_supervisor_is_gone_before_its_hello_ends(tmp_path: Path, wait_until: WaitUntil) -> None:
    """It waits to become the supervisor's own child, and never will; as this test is no subreaper, it never does."""
    with template(APP, tmp_path) as started:
        assert started.hear()["say"] == "manifest"
        settings = Settings()
        started.channel.send(
            {
                "say": "configure", "worker_id": "w-1", "queues": ["default"], "children": 1, "places": 2,
                "settings": {name: getattr(settings, name) for name in settings.__dataclass_fields__},
            }
        )  # fmt: skip
        child = started.fork()
        wait_until(started.forked, 20, "a child")
        child.close()
        wait_until(lambda: not started.forked(), 5, "its end")
        assert started.leave() == 0


def test_a_template_that_is_killed_before_it_hears_anything_does_not_take_its_supervisor_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker's start and its replacing of a dead template both come here; its pidfd tells them of this one."""
    opened = os.pidfd_open

    def opened_too_late(pid: int) -> int:
        descriptor = opened(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([descriptor], [], [], 20)[0]
        return descriptor

    monkeypatch.setattr(os, "pidfd_open", opened_too_late)
    descriptor = os.memfd_create("slots")
    killed = TemplateProcess(APP, descriptor, preload=True, log_level=30)
    assert killed.receive() is None
    assert killed.end() == "signal SIGKILL"
    os.close(descriptor)
