"""The counts that noise cannot move, as bench/counts.json keeps them: what a change of the code is held against.

    make bench-counts       write all of them anew, for this tree and this machine's tools

A part of the file holds `tools` (the versions that its counts depend on; none for counts of what Redis is asked) and
`counts`, numbers for each task.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "counts.json"
SLACK = 0.05


def read(part: str) -> dict[str, Any]:
    """The recorded part: `tools` and `counts`."""
    found: dict[str, Any] = json.loads(FILE.read_text())[part]
    return found


def write(part: str, counts: dict[str, float], tools: dict[str, str]) -> None:
    """Replace one part of the file."""
    parts: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    parts[part] = {"tools": tools, "counts": {name: float(f"{value:.5g}") for name, value in counts.items()}}
    FILE.write_text(json.dumps(dict(sorted(parts.items())), indent=2) + "\n")


def differences(part: str, counts: dict[str, float], slack: float = SLACK) -> list[str]:
    """What is not as recorded, in words; nothing when every count is within `slack` of its record.

    Fewer counts too: a record that is not renewed after an improvement would hide the next loss.
    """
    recorded: dict[str, float] = read(part)["counts"]
    found = [f"{name} is counted and not recorded" for name in counts if name not in recorded]
    found += [f"{name} is recorded and not counted" for name in recorded if name not in counts]
    for name in recorded.keys() & counts.keys():
        before, now = recorded[name], counts[name]
        if abs(now - before) > slack * before:
            found.append(f"{name}: {now:,.4g} a task, recorded {before:,.4g} ({now / before - 1:+.1%})")
    return sorted(found)


def other_tools(part: str, tools: dict[str, str]) -> list[str]:
    """Which tools differ from those of the record, in words: its counts then say nothing about this tree."""
    recorded: dict[str, str] = read(part)["tools"]
    names = sorted(recorded.keys() | tools.keys())
    return [
        f"{name} is {tools.get(name, 'absent')}, recorded with {recorded.get(name, 'none')}"
        for name in names
        if recorded.get(name) != tools.get(name)
    ]
