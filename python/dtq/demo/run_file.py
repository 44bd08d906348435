"""What the census remembers between two starts: the run that is open, and its files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from dtq import _core
from dtq.clock import SYSTEM

_NAME = "census-run.json"


@dataclass(frozen=True, slots=True)
class Run:
    """One census: `identifier` is part of every task id, so that a second start finds the tasks of the first.

    files: absolute paths. resumed: taken up from an earlier start. finished: every task has ended.
    """

    identifier: str
    files: tuple[str, ...]
    resumed: bool = False
    finished: bool = False

    def task_id(self, path: str) -> str:
        """Return the id of the task for one file: the same at each start of this run."""
        return f"{self.identifier}.{sha256(os.fsencode(path)).hexdigest()[:16]}"


def new_run(files: list[str]) -> Run:
    """Return a run of `files` under an identifier of its own."""
    return Run(_core.new_ids(SYSTEM.now_ms(), os.urandom(10), 1)[0], tuple(files))


def load_run(directory: Path) -> Run | None:
    """Return the run that was left open in `directory`, or None: none there, finished, or not readable as one."""
    try:
        value = cast("dict[str, Any]", json.loads((directory / _NAME).read_bytes()))
        run = Run(str(value["identifier"]), tuple(str(path) for path in value["files"]), True, bool(value["finished"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if run.finished else run


def save_run(directory: Path, run: Run) -> None:
    """Write the run, replacing the one before in a single step, so that a crash leaves the old or the new one."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = directory / _NAME
    draft = target.with_suffix(f".{os.getpid()}.new")
    draft.write_text(json.dumps(asdict(run)))
    draft.replace(target)


def finish_run(directory: Path, run: Run) -> None:
    """Mark the run as finished: the next start begins a new one."""
    save_run(directory, replace(run, finished=True))
