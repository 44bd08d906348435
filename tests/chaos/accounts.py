"""What a run left outside Redis: the producer's ledger and the lines of the handlers, read into plain values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Promise:
    """One enqueue as the producer saw it. answer: accepted, duplicate, conflict, refused or unknown."""

    n: int
    kind: str
    id: str | None
    answer: str
    expect: list[str]
    kept: bool
    max_attempts: int
    asked: float
    answered: float


@dataclass(slots=True)
class Ledger:
    """Everything the producer wrote. cancels: id -> answers."""

    promises: list[Promise] = field(default_factory=list)
    cancels: dict[str, list[str]] = field(default_factory=dict)

    @property
    def accepted(self) -> dict[str, Promise]:
        """By id, as first accepted."""
        found: dict[str, Promise] = {}
        for promise in self.promises:
            if promise.answer == "accepted" and promise.id is not None:
                found.setdefault(promise.id, promise)
        return found


@dataclass(slots=True)
class Run:
    """One execution of a handler. word: how it ended, '' where no line says so."""

    id: str
    attempt: int
    n: int
    kind: str
    pid: int
    parent: int
    worker_id: str
    start: float
    end: float = 0.0
    word: str = ""


def read_ledger(path: Path) -> Ledger:
    """The producer's ledger."""
    ledger = Ledger()
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        if "cancel" in facts:
            ledger.cancels.setdefault(facts["cancel"], []).append(facts["answer"])
        else:
            facts.pop("why", None)
            ledger.promises.append(Promise(**facts))
    return ledger


def read_runs(path: Path) -> dict[str, list[Run]]:
    """The executions of each task, by start."""
    runs: dict[str, list[Run]] = {}
    if not path.exists():
        return runs
    for line in path.read_text().splitlines():
        word, task_id, attempt, n, kind, pid, parent, worker_id, at = line.split()
        mine = runs.setdefault(task_id, [])
        if word == "start":
            mine.append(Run(task_id, int(attempt), int(n), kind, int(pid), int(parent), worker_id, float(at)))
            continue
        for run in mine:
            if run.attempt == int(attempt) and run.pid == int(pid) and not run.word:
                run.word, run.end = word, float(at)
                break
    for mine in runs.values():
        mine.sort(key=lambda run: run.start)
    return runs
