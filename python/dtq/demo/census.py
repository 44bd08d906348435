"""The census application: one task type that parses one file. Run by `dtq worker dtq.demo.census:app`."""

from __future__ import annotations

import os

from dtq.app import App
from dtq.clock import SYSTEM
from dtq.context import Context
from dtq.demo.counts import count_source

QUEUE = "census"
LOG_VARIABLE = "DTQ_DEMO_LOG"

app = App(queue=QUEUE)


# A file that does not parse today will not parse in a second either: such an error ends the task at once, and it goes
# to the dead letters instead of being tried again. Anything else (a file that cannot be read) is retried.
@app.task(name="census.count", queue=QUEUE, fatal=(SyntaxError, UnicodeDecodeError, ValueError))
def count(context: Context, path: str) -> dict[str, int]:
    """Return what the file at `path` holds: lines, functions, classes, imports, nesting, bytes."""
    _log("start", context, path)
    with open(path, "rb") as file:
        source = file.read()
    try:
        return count_source(source, path)
    finally:
        _log("end", context, path)


def _log(event: str, context: Context, path: str) -> None:
    """Append one line to the file that DTQ_DEMO_LOG names, if it is set: proof of what ran, and how often."""
    target = os.environ.get(LOG_VARIABLE)
    if not target:
        return
    line = f"{SYSTEM.now_ms()} {event} {context.task_id} {context.attempt} {os.getpid()} {path}\n"
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode("utf-8", "surrogateescape"))  # one write: lines of children never mix
    finally:
        os.close(descriptor)
