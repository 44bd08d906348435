"""What a run left outside Redis: the ledger of producers and operator, and the lines of the handlers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATE_S = 12.0
"""A call without an answer may still be applied so much later: its caller was killed, or its bytes were held back."""


@dataclass(slots=True)
class Promise:
    """One enqueue as the producer saw it. answer: accepted, duplicate, conflict, refused or unknown."""

    n: int
    kind: str
    queue: str
    id: str | None
    answer: str
    expect: list[str]
    kept: bool
    max_attempts: int
    asked: float
    answered: float


@dataclass(slots=True)
class Act:
    """One act on tasks or queues: cancel, cancel_matching, pause, resume, purge, requeue, requeue_all, discard.

    id: of one task, '' for the act on a queue. kind: the task type meant, '' for any. answer: `unknown` where its
    caller heard none. mended: a requeue with another payload, which lets the task succeed.
    """

    what: str
    queue: str
    asked: float
    answered: float
    answer: str
    id: str = ""
    kind: str = ""
    mended: bool = False

    def may_hit(self, promise: Promise) -> bool:
        """Whether an act on a whole queue, or a type of it, may have met this task."""
        return (
            not self.id
            and self.queue == promise.queue
            and self.kind in ("", promise.kind)
            and promise.asked <= self.answered
        )


@dataclass(slots=True)
class Ledger:
    """Everything that producers and operator wrote."""

    promises: list[Promise] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)

    @property
    def accepted(self) -> dict[str, Promise]:
        """By id, as first accepted."""
        found: dict[str, Promise] = {}
        for promise in self.promises:
            if promise.answer == "accepted" and promise.id is not None:
                found.setdefault(promise.id, promise)
        return found

    def on_task(self, what: str) -> dict[str, list[Act]]:
        """The acts of one kind on single tasks, by id."""
        found: dict[str, list[Act]] = {}
        for act in self.acts:
            if act.what == what and act.id:
                found.setdefault(act.id, []).append(act)
        return found

    def on_queues(self, what: str) -> list[Act]:
        """The acts of one kind on whole queues."""
        return [act for act in self.acts if act.what == what and not act.id]

    def queue_of(self, runs: dict[str, list[Run]]) -> dict[str, str]:
        """The queue of every task that was accepted or has run."""
        by_n = {promise.n: promise.queue for promise in self.promises}
        queues = {task_id: by_n[mine[0].n] for task_id, mine in runs.items() if mine[0].n in by_n}
        return queues | {task_id: promise.queue for task_id, promise in self.accepted.items()}

    def pauses(self) -> Iterator[tuple[str, str, float, float]]:
        """Queue, task type ('' for the whole queue), from when, until when: spans in which it was paused for sure."""
        switches = sorted((act for act in self.acts if act.what in ("pause", "resume")), key=lambda act: act.asked)
        for at, act in enumerate(switches):
            if act.what == "pause" and act.answer == "done":
                later = (s for s in switches[at + 1 :] if (s.what, s.queue, s.kind) == ("resume", act.queue, act.kind))
                yield act.queue, act.kind, act.answered, next((s.asked for s in later), act.answered)

    def counts(self) -> Counter[str]:
        """How many acts of each kind were done."""
        return Counter(act.what for act in self.acts if act.answer not in ("unknown", "refused"))


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
    """The ledger. Each call has a line from before it was made and, unless its caller was killed, one of its answer."""
    calls: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        calls.setdefault(facts.pop("call"), {}).update(facts)
    ledger = Ledger()
    for facts in calls.values():
        facts.pop("why", None)
        facts.setdefault("answer", "unknown")
        if facts["answer"] == "unknown":  # it may still be on its way
            facts["answered"] = max(facts.get("answered", 0.0), facts["asked"]) + LATE_S
        if "what" in facts:
            ledger.acts.append(Act(**facts))
        else:
            ledger.promises.append(Promise(**facts))
    return ledger


def read_effects(path: Path) -> Counter[str]:
    """How often the side effect of each task was done."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(line.split()[1] for line in lines if line.startswith("effect "))


def read_runs(path: Path) -> dict[str, list[Run]]:
    """The executions of each task, by start."""
    runs: dict[str, list[Run]] = {}
    if not path.exists():
        return runs
    for line in path.read_text().splitlines():
        word, task_id, attempt, n, kind, pid, parent, worker_id, at = line.split()
        mine = runs.setdefault(task_id, [])
        if word == "effect":
            continue
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
