"""`dtq api` and `dtq dashboard`: what they hand to the server, and what they say where the extra is missing."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from tests.cli.commands import Finished, dtq, start_dtq
from tests.conftest import WaitUntil
from tests.servers import PrivateServer, free_port

Cli = Callable[..., Finished]
APPLICATION = "import dtq\n\napp = dtq.App(queue='shop')\n"


@pytest.mark.parametrize(("command", "needed"), [("api", "fastapi"), ("dashboard", "nicegui")])
def test_a_missing_extra_says_how_to_install_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, needed: str
) -> None:
    """One line with the command to type."""
    for name in [name for name in sys.modules if name.split(".")[:2] == ["dtq", command]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, f"dtq.{command}", None)
    missing = cli(command)
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.endswith(f"pip install 'dtq[{command}]'\n")


@pytest.mark.parametrize(("command", "function"), [("api", "serve"), ("dashboard", "serve_dashboard")])
def test_what_was_said_reaches_the_server(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, command: str, function: str
) -> None:
    """Address, port, application; what is not said is left to the settings."""
    called: list[tuple[Any, dict[str, Any]]] = []
    stand_in = ModuleType(f"dtq.{command}")
    setattr(stand_in, function, lambda app, **options: called.append((app, options)))
    monkeypatch.setitem(sys.modules, f"dtq.{command}", stand_in)
    (tmp_path / f"shop_{command}.py").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert cli(command).code == 0
    assert cli(command, f"shop_{command}:app", "--host", "192.0.2.1", "--port", "0", "--insecure").code == 0
    (none, plain), (app, said) = called
    assert (none, plain) == (None, {"host": None, "port": None, "insecure": False})
    assert (app.settings.queue, said) == ("shop", {"host": "192.0.2.1", "port": 0, "insecure": True})
    assert cli(command, "nowhere:app").code == 2
    assert cli(command, "--port", "99999").code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_api_serves_until_it_is_stopped(
    clean_server: PrivateServer, wait_until: WaitUntil, number: signal.Signals
) -> None:
    """Both are its normal end; a second server at the same address says so, and ends with a code of its own."""
    port = free_port()
    words = ["api", "--port", str(port)]
    process = start_dtq(*words, variables={"DTQ_REDIS_URL": clean_server.url})
    try:
        wait_until(lambda: answers(port) or process.poll() is not None, 30, "the API answers")
        taken = dtq(*words, url=clean_server.url)
        assert taken.code == 1
        assert "address already in use" in taken.err
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, b"Traceback" in err) == (0, False), err
    finally:
        process.kill()
        process.communicate()


def answers(port: int) -> bool:
    """Whether the API is up."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_the_command_imports_neither_before_it_is_asked_to() -> None:
    """`dtq status` pays nothing for what it does not serve."""
    program = (
        "import sys\nfrom dtq.cli import main\nmain(['--help'])\n"
        "print(sorted({'fastapi', 'uvicorn', 'nicegui', 'prometheus_client'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert dtq("api", "--help").code == 0
