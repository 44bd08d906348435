"""One environment for each peer, with pinned versions, below `bench/peers/environments` (which git ignores).

An adapter says what it needs in literals that are read without importing it: `REQUIREMENTS` (for pip) and `PYTHON` (the
oldest that will do), or `PROGRAM`, a directory of `programs/` with a go.mod or a package-lock.json.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ADAPTERS = HERE / "adapters"
PROGRAMS = HERE / "programs"
ENVIRONMENTS = Path(os.environ.get("BENCH_PEERS_ENVIRONMENTS", HERE / "environments"))
INSTALL_TIMEOUT_S = 600.0


class Unavailable(Exception):
    """Why a peer cannot be measured on this machine."""


@dataclass(frozen=True)
class Adapter:
    """What an adapter's file says about itself. name: of the file; tuning: its docstring."""

    name: str
    tuning: str
    entrants: dict[str, dict[str, int]]
    requirements: tuple[str, ...] = ()
    python: str = "3.11"
    recovery: str = ""
    """What brings the tasks of a dead worker back."""
    program: str = ""
    chunk: int = 1000
    """Tasks in one bulk call."""


def load_adapters() -> dict[str, Adapter]:
    """Every adapter by name, none imported."""
    return {path.stem: _read(path) for path in sorted(ADAPTERS.glob("*.py")) if path.stem != "__init__"}


def prepare(adapter: Adapter) -> tuple[str, ...]:
    """Make the adapter's environment unless it stands already, and return its driver's command; raises Unavailable."""
    if adapter.program:
        directory = PROGRAMS / adapter.program
        if (directory / "go.mod").exists():
            return (str(_built_with_go(adapter.name, directory)),)
        return ("node", str(_installed_with_npm(adapter.name, directory)))
    python = sys.executable if not adapter.requirements else str(_installed_with_pip(adapter))
    return (python, "-m", "bench.peers.driver", adapter.name)


def chart_python() -> Path:
    """The interpreter that has matplotlib; raises Unavailable."""
    return _installed_with_pip(Adapter("chart", "", {}, ("matplotlib==3.11.0",)))


def _read(path: Path) -> Adapter:
    tree = ast.parse(path.read_text())
    literals: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name):
            try:
                literals[name.id] = ast.literal_eval(statement.value)
            except ValueError:
                continue  # not a literal, and so no word to the runner
    return Adapter(
        path.stem,
        ast.get_docstring(tree) or "",
        literals["ENTRANTS"],
        literals.get("REQUIREMENTS", ()),
        literals.get("PYTHON", "3.11"),
        literals["RECOVERY"],
        literals.get("PROGRAM", ""),
        literals.get("CHUNK", 1000),
    )


def _installed_with_pip(adapter: Adapter) -> Path:
    interpreter = _interpreter(adapter.python)
    directory = ENVIRONMENTS / adapter.name
    python = directory / "bin" / "python"
    if _stale(directory, interpreter, *adapter.requirements):
        shutil.rmtree(directory, ignore_errors=True)
        if interpreter == sys.executable:
            venv.create(directory, with_pip=True, symlinks=True)
        else:
            _run([interpreter, "-m", "venv", str(directory)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *adapter.requirements])
        _stamp(directory, interpreter, *adapter.requirements)
    return python


def _built_with_go(name: str, source: Path) -> Path:
    directory = ENVIRONMENTS / name
    program = directory / name
    texts = [path.read_text() for path in sorted(source.iterdir()) if path.is_file()]
    if _stale(directory, *texts):
        _require("go")
        directory.mkdir(parents=True, exist_ok=True)
        _run(["go", "build", "-o", str(program), "."], source)
        _stamp(directory, *texts)
    return program


def _installed_with_npm(name: str, source: Path) -> Path:
    directory = ENVIRONMENTS / name
    script = directory / f"{name}.js"
    texts = [path.read_text() for path in sorted(source.iterdir()) if path.is_file()]
    if _stale(directory, *texts):
        _require("npm")
        _require("node")
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(source, directory)
        _run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], directory)
        _stamp(directory, *texts)
    return script


def _interpreter(oldest: str) -> str:
    """This Python if it is new enough, so that most peers run on the same one; else the oldest that is."""
    wanted = tuple(map(int, oldest.split(".")))
    if sys.version_info[:2] >= wanted:
        return os.path.realpath(sys.executable)
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(wanted[1], wanted[1] + 5):
        name = f"python3.{minor}"
        for candidate in [name, *map(str, sorted(home.glob(f"3.{minor}.*/bin/{name}")))]:
            # One that is found may be a shim that does not run; a free-threaded one is another kind.
            probe = (
                "import sys, venv, ensurepip, sysconfig; sys.exit(bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
            )
            path = shutil.which(candidate)
            if path and subprocess.run([path, "-c", probe], capture_output=True).returncode == 0:
                return os.path.realpath(path) if path.startswith(str(home)) else path
    raise Unavailable(f"no Python {oldest} or newer was found")


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(f"{program} was not found")


def _run(command: list[str], directory: Path = ROOT) -> None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"`{' '.join(command)}` took more than {INSTALL_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise Unavailable(f"`{' '.join(command)}` failed: {' / '.join(lines[-3:])}")


def _stale(directory: Path, *parts: str) -> bool:
    try:
        return (directory / "stamp").read_text() != _digest(directory, *parts)
    except OSError:
        return True


def _stamp(directory: Path, *parts: str) -> None:
    (directory / "stamp").write_text(_digest(directory, *parts))


def _digest(directory: Path, *parts: str) -> str:
    """Of what the environment was made from and where: one that was moved names old paths."""
    return hashlib.sha256("\0".join([str(directory), *parts]).encode()).hexdigest()
