"""The wheel of this machine, installed where there is no compiler and no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.timeout(400)


def run(*command: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed; a failed one fails the test with all it said."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built into target/ as `make build` does, so that cargo has nothing left to compile."""
    folder = tmp_path_factory.mktemp("wheel")
    maturin = [sys.executable, "-m", "maturin", "build", "--release", "--interpreter", sys.executable]
    run(*maturin, "--out", folder, cwd=ROOT)
    (built,) = folder.glob("dtq-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a shell in an empty environment with the wheel in it, its own data directory and no build tool."""
    place = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    ours = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "LANG", "LC_", "SSL_", "http"))
    }
    ours |= {
        "PATH": f"{place / 'venv' / 'bin'}:/usr/bin:/bin",
        "HOME": str(Path.home()),
        "DTQ_DATA_DIR": str(place / "data"),
        "TERM": "dumb",
    }
    python = place / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--only-binary", ":all:"]
    run(*install, f"{wheel}[embedded]", cwd=place, environment=ours)
    return ours


def test_wheel_is_one_for_every_python_from_3_11(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name


def test_wheel_holds_what_the_package_needs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"dtq/_core.pyi", "dtq/py.typed", "dtq/lua/turn.lua", "dtq/_core.abi3.so"} <= set(names)
    assert any(name.startswith("dtq/demo/broken/") for name in names)
    strangers = [name for name in names if not name.startswith(("dtq/", "dtq-"))]
    assert strangers == []
    assert [name for name in names if name.endswith((".rs", ".pyc"))] == []


def test_installed_wheel_imports_without_a_warning(environment: dict[str, str], tmp_path: Path) -> None:
    printed = run(
        "python", "-W", "error", "-c", "import dtq; print(dtq.__file__)", cwd=tmp_path, environment=environment
    )
    assert "site-packages" in printed


def test_installed_command_runs_the_demo(environment: dict[str, str], tmp_path: Path) -> None:
    assert "Usage" in run("dtq", "demo", "--help", cwd=tmp_path, environment=environment)
    printed = run("dtq", "demo", "--limit", "50", "--plain", cwd=tmp_path, environment=environment)
    assert "50 counted" in printed
