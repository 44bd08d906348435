"""The census as people run it: to its end, interrupted, killed in every part, and always finished in the end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.cli.commands import ROOT, dtq, environment, start_dtq
from tests.conftest import WaitUntil

from dtq.demo.files import broken_files, source_files

LIMIT = 400
FILES = LIMIT + len(broken_files())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables for a census with a store and a log of its own; nothing of it lives on."""
    variables = {"DTQ_DATA_DIR": str(tmp_path / "data"), "DTQ_DEMO_LOG": str(tmp_path / "log"), "DTQ_LINGER_S": "0"}
    yield variables
    for pid in _processes(lambda _, variable: variables["DTQ_DATA_DIR"] in variable):
        os.kill(pid, signal.SIGKILL)


class Start(Protocol):
    """What the `start` fixture is."""

    def __call__(self, *words: str) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def start(place: dict[str, str]) -> Iterator[Start]:
    """Start `dtq` with the variables of `place`; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        started.append(start_dtq(*words, variables=place))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _processes(matches: Callable[[list[str], str], bool]) -> list[int]:
    """Ids of processes whose command line and environment match."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            variables = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if matches(command, variables):
            found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; zeros when the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _started(pid: int) -> int:
    return int(_stat(pid)[19])


def _supervisors(place: dict[str, str]) -> list[int]:
    data = place["DTQ_DATA_DIR"]
    return _processes(lambda command, variables: data in variables and "worker" in command and "--burst" in command)


def _forkers(place: dict[str, str]) -> list[int]:
    """The template and then its children, which share its command line: the template is there first."""
    data, supervisors = place["DTQ_DATA_DIR"], set(_supervisors(place))
    named = _processes(lambda command, variables: data in variables and "dtq.worker.template" in command)
    return sorted((pid for pid in named if _parent(pid) in supervisors), key=_started)


def _templates(place: dict[str, str]) -> list[int]:
    return _forkers(place)[:1]


def _children(place: dict[str, str]) -> list[int]:
    return _forkers(place)[1:]


def _servers(place: dict[str, str]) -> list[int]:
    try:
        return [int(json.loads((Path(place["DTQ_DATA_DIR"]) / "server.json").read_text())["pid"])]
    except (OSError, ValueError):
        return []


def _starts(place: dict[str, str]) -> Counter[str]:
    return _events(place, "start")


def _events(place: dict[str, str], event: str) -> Counter[str]:
    """How often each file's handler started or ended."""
    try:
        lines = Path(place["DTQ_DEMO_LOG"]).read_text().splitlines()
    except FileNotFoundError:
        return Counter()
    return Counter(fields[5] for line in lines if (fields := line.split(" ", 5))[1] == event)


def test_every_file_is_counted_once(place: dict[str, str]) -> None:
    done = dtq("demo", "--limit", str(LIMIT), "--children", "2", "--json", **place)
    assert done.code == 0, done.err
    report = done.json
    assert report["files"] == FILES
    assert report["succeeded"] + report["failed"] == FILES
    assert report["failed"] >= len(broken_files())
    assert report["totals"]["lines"] > 10_000
    assert {row["file"] for row in report["dead_letters"]} >= {f"broken/{Path(path).name}" for path in broken_files()}
    reasons = {row["file"]: (row["error_class"], row["error"], row["attempts"]) for row in report["dead_letters"]}
    assert reasons["broken/unclosed.py.txt"] == ("SyntaxError", "'(' was never closed (unclosed.py.txt, line 5)", 1)
    assert _starts(place) == Counter(source_files(LIMIT))
    assert _events(place, "end") == Counter(source_files(LIMIT))


def test_without_a_terminal_it_writes_lines_and_a_table(place: dict[str, str]) -> None:
    done = dtq("demo", "--limit", "50", **place)
    assert done.code == 0, done.err
    assert re.search(r"census: \d+ of \d+ done, \d+ failed, \d+ tasks/s", done.err)
    for part in ("Top files", "Dead letters", "broken/unclosed.py.txt", "throughput", "enqueue to finish", "p99"):
        assert part in done.out
    assert "\x1b" not in done.out + done.err


def test_a_finished_run_is_followed_by_a_new_one(place: dict[str, str]) -> None:
    for runs in (1, 2):
        assert dtq("demo", "--limit", "20", "--plain", **place).code == 0
        assert set(_starts(place).values()) == {runs}


def test_an_interrupted_run_is_resumed(place: dict[str, str], start: Start, wait_until: WaitUntil) -> None:
    first = start("demo", "--limit", str(LIMIT), "--children", "1", "--plain")
    wait_until(lambda: len(_starts(place)) > 20, 30, "the census is under way")
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=30)
    assert first.returncode == 130
    assert re.search(rb"dtq: interrupted at \d+ of \d+; run again to resume\n$", err)
    assert b"Traceback" not in err
    wait_until(lambda: not _supervisors(place), 5, "the worker has gone")
    assert len(_starts(place)) < FILES
    second = dtq("demo", "--limit", str(LIMIT), "--json", **place)
    assert second.code == 0, second.err
    assert second.json["resumed"] is True
    assert second.json["finished_now"] < FILES
    # A drain lets handlers end, so nothing ran twice.
    assert _starts(place) == Counter(source_files(LIMIT))


def test_another_choice_of_files_gives_the_open_run_up(
    place: dict[str, str], start: Start, wait_until: WaitUntil
) -> None:
    first = start("demo", "--limit", str(LIMIT), "--children", "1", "--plain")
    wait_until(lambda: len(_starts(place)) > 5, 30, "the census is under way")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=30)
    second = dtq("demo", "--limit", "10", "--json", **place)
    assert second.code == 0, second.err
    assert second.json["files"] == 10 + len(broken_files())
    assert second.json["resumed"] is False
    assert len(_starts(place)) < FILES


@pytest.mark.parametrize("victim", ["child", "template", "supervisor", "server"])
def test_a_kill_in_the_middle_loses_nothing(
    victim: str, place: dict[str, str], start: Start, wait_until: WaitUntil
) -> None:
    find = {"child": _children, "template": _templates, "supervisor": _supervisors, "server": _servers}[victim]
    running = start("demo", "--limit", str(LIMIT), "--children", "2", "--json")
    wait_until(lambda: len(_starts(place)) > 20, 30, "the census is under way")
    pids = find(place)
    assert pids, f"no {victim} found"
    os.kill(pids[0], signal.SIGKILL)
    out, err = running.communicate(timeout=90)
    assert running.returncode == 0, err.decode()
    assert json.loads(out)["files"] == FILES
    _assert_all_ran(place)


def test_everything_killed_at_once_is_finished_by_the_next_run(
    place: dict[str, str], start: Start, wait_until: WaitUntil
) -> None:
    running = start("demo", "--limit", str(LIMIT), "--children", "2", "--plain")
    wait_until(lambda: len(_starts(place)) > 20, 30, "the census is under way")
    for pid in [running.pid, *_servers(place), *_supervisors(place)]:
        os.kill(pid, signal.SIGKILL)
    running.communicate(timeout=30)
    again = dtq("demo", "--limit", str(LIMIT), "--json", timeout=90, **place)
    assert again.code == 0, again.err
    assert again.json["files"] == FILES
    _assert_all_ran(place)


def _assert_all_ran(place: dict[str, str]) -> None:
    """Each file at least once, to its end; a second time only where a kill cut the first one short."""
    starts, ends = _starts(place), _events(place, "end")
    assert set(ends) == set(source_files(LIMIT))
    assert set(starts) == set(ends)
    # Two children were at work, and a store may forget its last second: few files may have run again.
    assert sum(starts.values()) - FILES < FILES


def test_on_a_terminal_a_bar_moves(place: dict[str, str]) -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dtq", "demo", "--limit", "200"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=ROOT,
        env=environment(**{**place, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}),
    )
    os.close(terminal)
    shown = bytearray()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([master], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(timeout=30) == 0, shown.decode(errors="replace")
    text = shown.decode(errors="replace")
    figures = {int(number) for number in re.findall(r"(\d+) of 206 done", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))}
    assert len(figures) > 3, "the bar moved"
    assert 206 in figures
    assert "tasks/s" in text
    assert " left" in text
    assert "Dead letters" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
