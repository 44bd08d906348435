"""Which files the census reads: the standard library of the running Python, and a few that do not parse."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__"}
_BROKEN = Path(__file__).parent / "broken"


def standard_library() -> Path:
    """Return the directory of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(limit: int | None = None) -> list[str]:
    """Return the absolute paths of every `.py` file of the standard library, sorted, then the broken ones.

    Its tests are among them where this Python has them; installed packages are not. limit: keep only so many of the
    standard library's files, spread evenly over it; default all of them.
    """
    found: list[str] = []
    for folder, folders, files in os.walk(standard_library()):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        found.extend(os.path.join(folder, name) for name in files if name.endswith(".py"))
    found.sort()
    if limit is not None and limit < len(found):
        found = [found[index * len(found) // limit] for index in range(limit)]
    return found + broken_files()


def broken_files() -> list[str]:
    """Return the absolute paths of the shipped files that do not parse."""
    return sorted(str(path) for path in _BROKEN.iterdir() if path.name.endswith(".py.txt"))


def short_name(path: str) -> str:
    """Return a path as people want to see it: relative to the standard library, or `broken/<name>`."""
    library = str(standard_library()) + os.sep
    if path.startswith(library):
        return path[len(library) :]
    broken = str(_BROKEN.parent) + os.sep
    return path.removeprefix(broken)
