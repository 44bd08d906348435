"""A line for each outcome: noted when an attempt ends, written when its settle was answered, a batch at a time.

Standard logging makes a record for each line, which takes as long as the whole task (10 us). So the lines of a batch
are made in one go and written at once, unless the application has logging of its own, which gets records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from dtq._core import Claim
from dtq.clock import SYSTEM
from dtq.logs import FIELDS, LONGEST_LINE, JsonFormatter, encoded, needs_care, one_line
from dtq.models import Outcome
from dtq.worker.journal import LOGGER, WorkerHandler

OUTCOMES: Final = logging.getLogger(f"{LOGGER.name}.outcomes")
"""Takes the lines; a child of dtq's logger with a level that may be set apart."""

_PIECE: Final = 4096
"""No more bytes in one write: what several processes write into one pipe stays whole up to here."""
_EVENTS: Final = {
    "S": ("TASK_SUCCEEDED", "succeeded"),
    "R": ("TASK_RETRY_SCHEDULED", "retrying"),
    "F": ("TASK_FAILED", "failed"),
    "D": ("TASK_DEAD_LETTERED", "dead_lettered"),
    "C": ("TASK_CANCELLED", "cancelled"),
    "L": ("TASK_RELEASED", "released"),
}
_REFUSED: Final = {ord("s"): "refused: another claim holds it", ord("g"): "refused: the task is gone"}
_CANCELLED: Final = ord("c")


Note = tuple[int, Claim, Outcome | None, int]
"""An ended attempt: place of its outcome in the turn, claim, outcome (None: a success), ns it took."""


class OutcomeLog:
    """The lines of one child. Like the outcomes themselves, guarded by the lock of the turns."""

    def __init__(self, queues: Sequence[str], worker_id: str) -> None:
        self._queues = tuple(queues)
        self._worker_id = worker_id
        self.noted: list[list[Note]] = [[] for _ in queues]
        """By queue, what was settled by the next turn, in order; whoever collects outcomes appends to it."""
        self.successes = OUTCOMES.isEnabledFor(logging.INFO)
        """Whether successes are to be noted; everything else always is."""

    def write(self, index: int, codes: bytes) -> None:
        """Write the lines of a turn's outcomes; codes: what the turn answered of each, then maybe a mark."""
        if not self.noted[index]:
            return
        count = len(codes) - codes.endswith((b"p", b"w", b"y"))
        noted = [note for note in self.noted[index] if note[0] < count]
        self.noted[index] = [(note[0] - count, *note[1:]) for note in self.noted[index][len(noted) :]]
        handler = next((handler for handler in LOGGER.handlers if isinstance(handler, WorkerHandler)), None)
        written_at, pid = _Stamp(), os.getpid()
        lines: list[str] = []
        plain = codes.startswith(len(noted) * b"d") and not any(outcome for _, _, outcome, _ in noted)
        if plain and handler is not None:
            lines = self._successes(index, noted, written_at, pid, isinstance(handler.formatter, JsonFormatter))
        for note in () if lines else noted:
            fields, level = self._fields(index, note, codes[note[0]])
            if not OUTCOMES.isEnabledFor(level):
                continue
            if handler is None:
                OUTCOMES.log(level, "%s", _text(fields), extra={FIELDS: fields})
            elif isinstance(handler.formatter, JsonFormatter):
                named = {"ts": written_at.ms, "level": logging.getLevelName(level), "pid": pid}
                lines.append(encoded({**named, "message": _text(fields), **fields}))
            else:
                lines.append(f"{written_at.text} {logging.getLevelName(level)} {pid} {_text(fields)}")
        if handler is not None and lines:
            _write(handler, lines)

    def _successes(self, index: int, noted: list[Note], at: _Stamp, pid: int, as_json: bool) -> list[str]:
        """What `_fields` and those behind it make of successes, in a tenth of the time; nothing where it takes care."""
        queue = self._queues[index]
        if as_json:
            made = [
                f'{{"ts":{at.ms},"level":"INFO","pid":{pid},"message":"task {claim.id} ({claim.task_type}) attempt '
                f'{claim.attempt} succeeded [queue {queue}, {took_ns / 1e6:.3f} ms]","type":"TASK_SUCCEEDED",'
                f'"task_id":"{claim.id}","queue":"{queue}","task_type":"{claim.task_type}","attempt":{claim.attempt},'
                f'"worker_id":"{self._worker_id}","status":"succeeded","took_ms":{took_ns / 1e6:.3f}}}'
                for _, claim, _, took_ns in noted
            ]
            quotes = 40 * len(made)
        else:
            head = f"{at.text} INFO {pid} task "
            made = [
                f"{head}{claim.id} ({claim.task_type}) attempt {claim.attempt} succeeded "
                f"[queue {queue}, {took_ns / 1e6:.3f} ms]"
                for _, claim, _, took_ns in noted
            ]
            quotes = 0
        text = "".join(made)
        careful = len(text) > LONGEST_LINE * len(made) or (as_json and (text.count('"') > quotes or "\\" in text))
        return [] if careful or needs_care(text) else made

    def _fields(self, index: int, note: Note, code: int) -> tuple[dict[str, Any], int]:
        _, claim, outcome, took_ns = note
        letter = "S" if outcome is None else outcome.letter
        refused = _REFUSED.get(code)
        event, status = _EVENTS["C" if code == _CANCELLED else letter]
        fields: dict[str, Any] = {
            "type": event,
            "task_id": one_line(claim.id),
            "queue": self._queues[index],
            "task_type": one_line(claim.task_type) or "unknown type",
            "attempt": claim.attempt,
            "worker_id": self._worker_id,
            "status": status,
        }
        if took_ns >= 0:
            fields["took_ms"] = round(took_ns / 1e6, 3)
        if outcome is not None:
            fields["cause"] = one_line(outcome.cause)
            if outcome.error_class:
                fields["error_class"] = one_line(outcome.error_class)
        if refused is not None:
            fields["refused"] = refused
        return fields, logging.WARNING if letter in "DF" or refused is not None else logging.INFO


def _text(fields: dict[str, Any]) -> str:
    """An outcome for people."""
    parts = [f"task {fields['task_id']} ({fields['task_type']}) attempt {fields['attempt']} {fields['status']}"]
    if "cause" in fields:
        parts.append(f": {fields['cause']}")
    if "error_class" in fields:
        parts.append(f" ({fields['error_class']})")
    if "refused" in fields:
        parts.append(f", {fields['refused']}")
    took = f", {fields['took_ms']:.3f} ms" if "took_ms" in fields else ""
    parts.append(f" [queue {fields['queue']}{took}]")
    return "".join(parts)


class _Stamp:
    """The time at which lines are written, as the log shows it."""

    def __init__(self) -> None:
        self.ms = SYSTEM.now_ms()
        seconds, rest = divmod(self.ms, 1000)
        self.text = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{rest:03}"


def _write(handler: WorkerHandler, lines: list[str]) -> None:
    """Write lines in as few pieces as stay whole. A log that takes nothing more stops no worker."""
    with contextlib.suppress(OSError, ValueError):
        handler.acquire()
        try:
            handler.flush()
            descriptor = handler.stream.fileno()
            piece = b""
            for line in lines:
                data = line.encode("utf-8", "backslashreplace") + b"\n"
                if piece and len(piece) + len(data) > _PIECE:
                    _write_all(descriptor, piece)
                    piece = b""
                piece += data
            _write_all(descriptor, piece)
        finally:
            handler.release()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
