"""Reports what of the package a traced run of the tests has reached, and holds tests/coverage.md to it.

`make check` runs it after the suite: `python -m tests.uncovered`. The data are those of every process of the run: the
tests, workers, templates, forked children, commands. A process that was killed by SIGKILL leaves none, and one that
was killed while it wrote leaves a file that cannot be read.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import CoverageWarning

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "dtq"
PAGE = ROOT / "tests" / "coverage.md"
ACCOUNTED = ("broker/", "worker/", "scripts.py", "executor.py")
"""Every function of these that is not reached whole stands in the page, with its reason."""
OUTSIDE = "(module)"


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its name, which stays while lines move. file: relative to the package."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class Reached:
    """One file: how many statements it has, and the lines of those that nothing has reached."""

    file: str
    statements: int
    missing: list[int]


def main() -> int:
    """Print the report; 1 if functions are less reached than the page says."""
    files = read()
    for line in summary(files):
        print(line)
    missing = by_function([file for file in files if file.file.startswith(ACCOUNTED)])
    print(f"\nNot reached in {', '.join(ACCOUNTED)}:")
    for function, lines in missing.items():
        print(f"  {function.file} {function.name}: {spans(lines)}")
    listed = page()
    if whole := [f"{function.file} {function.name}" for function in listed if function not in missing]:
        print(f"Reached whole this time, though {PAGE.relative_to(ROOT)} lists it:", ", ".join(whole))
    found = problems(missing, listed)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def read() -> list[Reached]:
    """All files of the package, after joining what the processes have left."""
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # files that a killed process has left half written
        measured.combine()
    files: list[Reached] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        _, statements, _, missing, _ = measured.analysis2(str(path))
        files.append(Reached(path.relative_to(PACKAGE).as_posix(), len(statements), missing))
    return files


def summary(files: Iterable[Reached]) -> list[str]:
    """A table of the parts of the package, one line each, and of the whole."""
    totals: dict[str, tuple[int, int]] = {}
    for file in files:
        part = file.file.partition("/")[0] if "/" in file.file else "modules"
        for name in (part, "dtq"):
            statements, missing = totals.get(name, (0, 0))
            totals[name] = statements + file.statements, missing + len(file.missing)
    lines = ["part        statements  not reached   reached"]
    for name, (statements, missing) in sorted(totals.items(), key=lambda item: (item[0] == "dtq", item[0])):
        share = 100 * (statements - missing) / statements if statements else 100.0
        lines.append(f"{name:<12}{statements:>10}{missing:>13}{share:>9.1f}%")
    return lines


def by_function(files: Iterable[Reached]) -> dict[Function, list[int]]:
    """The lines not reached, by the function that they stand in."""
    found: dict[Function, list[int]] = {}
    for file in files:
        if not file.missing:
            continue
        names = function_lines((PACKAGE / file.file).read_text())
        for line in file.missing:
            found.setdefault(Function(file.file, names.get(line, OUTSIDE)), []).append(line)
    return found


def function_lines(source: str) -> dict[int, str]:
    """The dotted name of the innermost function or class around each line; lines of the module itself are left out."""
    names: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}" if name else child.name
                assert child.end_lineno is not None
                names.update(dict.fromkeys(range(child.lineno, child.end_lineno + 1), inner))
            visit(child, inner)

    visit(ast.parse(source), "")
    return names


def page() -> dict[Function, int]:
    """What the page lists: for each function how many of its statements may stay unreached."""
    rows = re.findall(
        r"^\| `([\w/.]+\.py)` \| `([\w.]+|\(module\))` \| (\d+) \| \S.* \|$", PAGE.read_text(), re.MULTILINE
    )
    return {Function(file, name): int(statements) for file, name, statements in rows}


def problems(missing: Mapping[Function, list[int]], listed: Mapping[Function, int]) -> list[str]:
    """One line for each function that is less reached than the page allows."""
    return [
        f"{PACKAGE.relative_to(ROOT)}/{function.file}: {len(lines)} statements of {function.name} are not reached by "
        f"any test (lines {spans(lines)}), {PAGE.relative_to(ROOT)} allows {listed.get(function, 0)}: add the test, "
        "take dead code out, or give the reason there"
        for function, lines in missing.items()
        if len(lines) > listed.get(function, 0)
    ]


def spans(lines: Iterable[int]) -> str:
    """Line numbers as `3, 7-9`."""
    runs = [
        [line for _, line in run] for _, run in groupby(enumerate(sorted(lines)), key=lambda item: item[1] - item[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


if __name__ == "__main__":
    sys.exit(main())
