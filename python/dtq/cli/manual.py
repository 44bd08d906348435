"""What the manual says of each command beside its options: examples, exit codes, and the fields of its JSON.

`--help` shows the first two, docs/cli.md (docs/generate.py) all of it; tests hold the JSON of readers to its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec

import typer

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Manual:
    """Of one command. fields: name -> meaning, of its JSON; a name with a dot is a field of the one before it."""

    examples: Sequence[str]
    exits: Mapping[int, str]
    fields: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def epilog(self) -> str:
        """The end of its help, in the paragraphs that Typer makes lines of."""
        codes = ", ".join(f"{code} {meaning}" for code, meaning in self.exits.items())
        return "\n\n".join(["Examples:", *(f"  {example}" for example in self.examples), f"Exit codes: {codes}"])


COMMANDS: dict[str, tuple[Callable[..., int], Manual]] = {}
"""Every command: its words behind `dtq`, its function, and what the manual says of it."""


def exits(
    done: str,
    *,
    failed: str = "",
    usage: str = "wrong words or settings",
    unavailable: str = "Redis unavailable",
    not_found: str = "",
    refused: str = "",
    interrupted: str = "interrupted",
) -> dict[int, str]:
    """Exit codes with what each means here; an empty text leaves a code out."""
    texts = {0: done, 1: failed, 2: usage, 3: unavailable, 4: not_found, 5: refused, 130: interrupted}
    return {code: text for code, text in texts.items() if text}


def command(group: typer.Typer, words: str, manual: Manual) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Registers a function as the command of these words, the last of which is its name in the group."""

    def register(function: Callable[P, int]) -> Callable[P, int]:
        COMMANDS[words] = (function, manual)
        group.command(words.rpartition(" ")[2], epilog=manual.epilog)(function)
        return function

    return register


TASK_FIELDS = {
    "task_id": "its id",
    "queue": "its queue",
    "status": "pending, queued, running, retrying, succeeded, failed, dead_lettered, cancelled or expired",
    "task_type": "its type; empty where the envelope cannot be read",
    "payload": "its arguments; null where the envelope cannot be read",
    "attempt": "number of the attempt, from 1",
    "max_attempts": "how often it is tried",
    "priority": "its band, 0 to 9",
    "released": "attempts that were given up without a charge",
    "created_at": "time of its enqueue",
    "started_at": "start of the last attempt, or null",
    "ended_at": "its end, or null",
    "due_at": "when it falls due, while pending or retrying",
    "worker_id": "the worker of the last attempt, or null",
    "cancel_requested": "true while it runs and its worker was told to cancel it",
    "result": "what the handler returned, once succeeded",
    "cause": "why it ended otherwise: error, timeout, ttl, a signal",
    "error_class": "class of the last error, or null",
    "error": "its message, or null",
    "traceback": "the kept part of its traceback, or null",
    "dead_letter_id": "entry of its dead letter, or null",
    "timeout_seconds": "seconds that one attempt may take",
    "retention_seconds": "seconds that its record is kept; null: for ever",
    "ttl_seconds": "seconds within which it must start, or null",
    "deadline": "time after which no attempt starts, or null",
    "batch_id": "its batch, or null",
    "headers": "texts for tracing",
    "metadata": "what was given as metadata, and what dtq adds",
    "history": "earlier attempts: attempt, cause, started_at, ended_at, worker_id, error_class, error",
}
COUNT_FIELDS = {
    "queue": "name",
    "waiting": "tasks that are queued",
    "running": "tasks that are running",
    "scheduled": "tasks that wait for their time: pending and retrying",
    "retrying": "those of them that are retrying",
    "dead": "dead letters that stand",
    "oldest_age_seconds": "how long the oldest queued task has waited; null where none waits",
    "paused": "true where the whole queue is paused",
    "paused_types": "task types that are paused",
    "next_due_seconds": "time until the next task falls due; null where none waits for its time",
    "totals": "counters since the queue exists, by name",
}
WORKER_FIELDS = {
    "id": "its id, new at every start",
    "host": "where it runs",
    "pid": "its process there",
    "started_at": "when, by the clock of its host",
    "version": "of dtq",
    "queues": "what it works on, in order",
    "leader": "true where it promotes due tasks and takes over from dead workers",
    "children": "number, pid, consumer, private_bytes (or null), tasks: task_id, queue, task_type, attempt, since",
    "restarts": "the last 20 replaced children, newest first: at, cause, number",
    "draining": "true where it takes no new tasks and leaves",
    "app": "the application it was started with",
    "python": "version of Python",
    "lease_seconds": "until its lease runs out, unless it is renewed",
}


SHARED_FIELDS: Mapping[str, Mapping[str, str]] = {
    "a task": TASK_FIELDS,
    "a queue": COUNT_FIELDS,
    "a worker": WORKER_FIELDS,
}
"""What many commands print, by the heading under which the manual shows it."""


def within(name: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Fields of the objects in the list or object `name`."""
    return {f"{name}.{field}": meaning for field, meaning in fields.items()}
