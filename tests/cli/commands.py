"""Running the `dtq` command as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on stdout."""
        return orjson.loads(self.out)


def environment(**changes: str) -> dict[str, str]:
    """This process's variables without dtq's own, and the changes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DTQ_")}
    return {**kept, "TERM": "dumb", "COLUMNS": "200", **changes}


def dtq(
    *words: str, url: str | None = None, text: str | bytes = "", timeout: float = 60, cwd: Path = ROOT, **changes: str
) -> Finished:
    """Run `dtq` with these words to its end. url: value of DTQ_REDIS_URL. text: standard input."""
    if url is not None:
        changes["DTQ_REDIS_URL"] = url
    done = subprocess.run(
        [sys.executable, "-m", "dtq", *words],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        timeout=timeout,
        cwd=cwd,
        env=environment(**changes),
        check=False,
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def start_dtq(*words: str, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `dtq` with these words; both streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "dtq", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(**(variables or {})),
    )
