"""The quickstart of the README runs: its files, its worker command, its program, against a private server."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import environment
from tests.servers import PrivateServer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
QUICKSTART = README.partition("## Quickstart")[2].partition("\n## ")[0]


def named_files() -> dict[str, str]:
    """The Python files that the quickstart shows, by the name that stands before each."""
    return dict(re.findall(r"`([\w.]+\.py)`:\n\n```python\n(.*?)```", QUICKSTART, re.DOTALL))


def commands() -> list[str]:
    """The shell commands of the quickstart, one a line."""
    shown = re.findall(r"^```(\w*)\n(.*?)^```", QUICKSTART, re.MULTILINE | re.DOTALL)
    return [line for language, block in shown if not language for line in block.splitlines()]


def test_the_quickstart_is_short() -> None:
    lines = [line for text in named_files().values() for line in text.splitlines() if line.strip()]
    assert len(lines) + len(commands()) <= 15


@pytest.mark.parametrize("store", ["server", "embedded"])
def test_the_quickstart_runs(store: str, tmp_path: Path, clean_server: PrivateServer) -> None:
    """On a server that DTQ_REDIS_URL names, and with nothing but a data directory."""
    for name, text in named_files().items():
        (tmp_path / name).write_text(text)
    where = {"DTQ_REDIS_URL": clean_server.url} if store == "server" else {"DTQ_DATA_DIR": str(tmp_path / "data")}
    background, program = commands()
    assert background.endswith(" &")
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            _here(background.removesuffix(" &")), cwd=tmp_path, env=environment(**where), stdout=log, stderr=log
        )
        try:
            done = subprocess.run(
                _here(program),
                cwd=tmp_path,
                env=environment(**where),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            code = worker.wait(30)
    assert (done.returncode, done.stdout) == (0, "Hello Ada\n"), done.stderr + (tmp_path / "worker.log").read_text()
    assert code == 0, (tmp_path / "worker.log").read_text()


def _here(command: str) -> list[str]:
    """The command as this interpreter runs it."""
    program, *words = shlex.split(command)
    return {"dtq": [sys.executable, "-m", "dtq"], "python": [sys.executable]}[program] + words


def test_the_pictures_are_there() -> None:
    recording, *screens = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert "tasks/s" in (ROOT / recording).read_text().replace("&#160;", " ")
    assert len(screens) == 2
    for screen in screens:
        assert (ROOT / screen).read_bytes().startswith(b"\x89PNG")


def test_every_guarantee_is_proved_by_a_test_that_runs() -> None:
    """Each row links to tests by file and name; they exist there and are not left out of an ordinary run."""
    table = README.partition("## Guarantees")[2].partition("\n## ")[0]
    rows = [
        line.split(" | ") for line in table.splitlines() if line.startswith("| ") and not line.startswith("| promise")
    ]
    assert len(rows) > 20
    wrong: list[str] = []
    for row in rows:
        proofs = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", row[-1])
        for name, file in proofs:
            test = re.search(
                rf"((?:^@.*\n(?:^[ )].*\n)*)*)^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE
            )
            if test is None or "mark.slow" in test[1] or "mark.skip" in test[1]:
                wrong.append(f"{file}::{name}")
        if not proofs:
            wrong.append(row[0])
    assert wrong == []
