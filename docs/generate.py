"""Writes what the documents say about the code from the code: settings, errors, metrics, command line, key table.

And from the recorded runs in bench/results what docs/performance.md says of them.

    .venv/bin/python docs/generate.py

tests/test_documents.py fails while a file differs from what this writes.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

if __package__ in (None, "") and __name__ == "__main__":  # run as a script: find `bench` and `docs`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import page
from docs.command_line import command_line_page

import dtq
from dtq import errors, metrics
from dtq.cli.exit_codes import code_of
from dtq.keys import Keys
from dtq.settings import SettingRow, settings_table

ROOT = Path(__file__).resolve().parent.parent
KEYS_BEGIN, KEYS_END = "<!-- keys: written by docs/generate.py -->", "<!-- end of keys -->"
MEASURED = "<!-- measured: written by docs/generate.py from bench/results -->", "<!-- end of measured -->"
GROWTH = "<!-- growth: written by docs/generate.py from bench/results -->", "<!-- end of growth -->"
METRICS = "<!-- metrics: written by docs/generate.py -->", "<!-- end of metrics -->"
TIMINGS = "<!-- timings: written by docs/generate.py -->", "<!-- end of timings -->"
NO_KEYS = {"of_queue"}
"""Methods of Keys that build no single key."""

_SETTINGS = """\
# Settings

<!-- Written by docs/generate.py from python/dtq/settings.py; edit that instead. -->

A setting is a keyword of `dtq.App(...)` and an environment variable. A keyword wins over its variable, the variable
over the default; an option of `dtq worker` wins over all three. Everything that is wrong is listed in one
`InvalidSettings` error. Switches are `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off`. An empty variable counts
as unset. A variable that is no setting and looks like a misspelled one is refused; others are left alone.

| keyword | variable | type | default | bounds | meaning |
|---|---|---|---|---|---|
{rows}

Two rules join settings: `backoff_max_s` is at least `backoff_base_s`, and `renew_s` is less than half of `lease_s`.

Producers and workers read their own copies. What a task is enqueued with (attempts, time limit, retention, dead
letters) is decided by the producer and travels with the task; backoff, leases and all that is about processes are
the worker's.
"""

_ERRORS = """\
# Errors

<!-- Written by docs/generate.py from python/dtq/errors.py; edit that instead. -->

All errors of dtq derive from `dtq.DtqError`. Each has a `code` and an `http_status`, for programs that answer others.
Messages name the field, what is wrong with it, and the way out; no message holds a password. The last column is
the exit code of a `dtq` command that ends with the error.

| error | code | status | meaning | exit |
|---|---|---|---|---|
{errors}

`StoreError` is a `BrokerUnavailable`, `ResultTimeout` also a `TimeoutError`. Those that are no name in `dtq` are met
inside a worker only.

## Raised by handlers

| exception | effect |
|---|---|
{raised_by}

## Raised in handlers

These derive from `BaseException`, so that a broad `except Exception` does not swallow them. Clean up and let them pass.
A sync handler gets them as they are; an async one is cancelled and sees `asyncio.CancelledError`.

| exception | raised in a handler whose |
|---|---|
{raised_in}
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    return _SETTINGS.format(rows="\n".join(_setting(row) for row in settings_table()))


def _setting(row: SettingRow) -> str:
    kind = f"{row.kind}, {row.unit}" if row.unit else row.kind
    default = "unset" if row.default is None else f"`{row.default}`"
    if row.name == "children":
        default = "CPUs + 1"  # of the machine that runs this: the page must not depend on it
    if row.choices:
        bounds = ", ".join(f"`{choice}`" for choice in row.choices)
    elif row.pattern is not None:
        bounds = f"`{row.pattern}`"
    elif row.low is not None and row.high is not None:
        bounds = f"{_number(row.low)} to {_number(row.high)}"
    else:
        bounds = ""
    return _row(f"`{row.name}`", f"`{row.env}`", kind, default, bounds, row.meaning)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def metric_tables() -> tuple[str, str]:
    """Return the tables of docs/metrics.md: by queue, and by queue and task type."""
    rows = [
        _row(f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.meaning)
        for metric in metrics.QUEUE_METRICS
    ]
    rows.append(_row(f"`{metrics.WORKERS[0]}`", "gauge", "no `queue` either", metrics.WORKERS[1]))
    timings = [_row(f"`{name}`", "histogram", "", meaning) for name, (meaning, _) in metrics.HISTOGRAMS.items()]
    timings.append(_row(f"`{metrics.OUTCOMES[0]}`", "counter", "`result`", metrics.OUTCOMES[1]))
    head = ["| metric | kind | further labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]), "\n".join([*head, *timings])


def with_metric_tables(text: str) -> str:
    """Return the text of docs/metrics.md with its tables renewed."""
    by_queue, by_type = metric_tables()
    return _renewed(_renewed(text, *METRICS, by_queue), *TIMINGS, by_type)


def errors_page() -> str:
    """Return docs/errors.md."""
    kinds = list(_classes())
    return _ERRORS.format(
        errors="\n".join(
            _row(_name(kind), f"`{kind.code}`", str(kind.http_status), _meaning(kind), str(code_of(kind.__new__(kind))))
            for kind in kinds
            if issubclass(kind, errors.DtqError)
        ),
        raised_by="\n".join(
            _row(f"`dtq.{kind.__name__}({_parameters(kind)})`", _meaning(kind))
            for kind in kinds
            if kind.__base__ is Exception and kind is not errors.DtqError
        ),
        raised_in="\n".join(
            _row(f"`dtq.{kind.__name__}`", _meaning(kind)) for kind in kinds if kind.__base__ is BaseException
        ),
    )


def _classes() -> Iterator[type[BaseException]]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__:
            yield kind


def _name(kind: type[BaseException]) -> str:
    return f"`dtq.{kind.__name__}`" if hasattr(dtq, kind.__name__) else f"`{kind.__name__}`"


def _meaning(kind: type[BaseException]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split())
    return re.sub(r"^Raised (by a handler: |in a handler whose )", "", text)


def _parameters(kind: type[BaseException]) -> str:
    if "__init__" not in vars(kind):
        return "message"
    return ", ".join(inspect.signature(kind).parameters)


def key_table() -> str:
    """Return the table of every key for ARCHITECTURE.md, made of the docstrings in python/dtq/keys.py."""
    lines = ["| key | `Keys.` | type and content | bound, or when it goes |", "|---|---|---|---|"]
    for name, build in vars(Keys).items():
        if name.startswith("_") or name in NO_KEYS:
            continue
        parts = ["q" if item == "queue" else _placeholder(item) for item in inspect.signature(build).parameters]
        content, bound = _divided(" ".join((inspect.getdoc(build) or "").split()))
        lines.append(_row(f"`{build(Keys(), *parts[1:])}`", f"`{name}`", content, bound))
    return "\n".join(lines)


def _placeholder(parameter: str) -> str:
    return f"<{parameter.replace('_', ' ')}>"


def _divided(text: str) -> tuple[str, str]:
    """Split a docstring where it begins to speak of a bound."""
    found = re.search(r" ((?:Bound|Ttl): .*|Removed .*)$", text)
    if found is None:
        return text.rstrip("."), ""
    bound = found[1].rstrip(".").replace("Bound: ", "").replace("Ttl: ", "ttl: ")
    return text[: found.start()].rstrip("."), bound[:1].lower() + bound[1:] if bound.startswith("Rem") else bound


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _renewed(text: str, begin: str, end: str, between: str) -> str:
    """Return a text with what stands between two marks replaced. Raises ValueError where a mark is missing."""
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"no text between {begin} and {end}")
    return f"{before}{begin}\n\n{between.strip()}\n\n{end}{after}"


def with_key_table(text: str) -> str:
    """Return the text of ARCHITECTURE.md with the table between its marks renewed."""
    return _renewed(text, KEYS_BEGIN, KEYS_END, key_table())


def with_recorded_runs(text: str) -> str:
    """Return the text of docs/performance.md with the figures of the recorded runs."""
    runs = page.recorded()
    return _renewed(_renewed(text, *MEASURED, page.measured(runs)), *GROWTH, page.growth(runs))


def pages() -> dict[Path, str]:
    """Return every written file with the text it should have."""
    architecture = ROOT / "ARCHITECTURE.md"
    performance = ROOT / "docs" / "performance.md"
    measured = ROOT / "docs" / "metrics.md"
    return {
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "docs" / "errors.md": errors_page(),
        measured: with_metric_tables(measured.read_text()),
        ROOT / "docs" / "cli.md": command_line_page(),
        architecture: with_key_table(architecture.read_text()),
        performance: with_recorded_runs(performance.read_text()),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
