"""The words of an exception, safe and short whatever its class does: name, message, traceback."""

from __future__ import annotations

import traceback
from types import TracebackType

from dtq.errors import TaskCancelled, TaskReleased, TaskTimeout

MESSAGE_BYTES = 2000
"""How much of an error message is kept."""

_INTERRUPTIONS = (TaskTimeout, TaskCancelled, TaskReleased)
_CALLERS = frozenset({"dtq.executor", "dtq.worker.async_runner", "dtq.worker.traced"})
"""Modules that call handlers; the core, which calls most of them, has no frames."""


def class_name(error: BaseException) -> str:
    """The class of an exception, with its module unless it is a built-in or one of dtq's."""
    kind = type(error)
    module, name = kind.__module__, kind.__qualname__
    plain = module in ("builtins", "dtq.errors")
    return clean(name if plain else f"{module}.{name}", 300)


def message_of(error: BaseException) -> str:
    """What the exception says, even where its own `__str__` raises, recurses or returns something else."""
    try:
        text = str(error)
    except _INTERRUPTIONS:
        raise
    except BaseException as second:
        return f"(no message: str() of the exception raised {class_name(second)})"
    return clean(text, MESSAGE_BYTES)


def traceback_of(error: BaseException, most_bytes: int) -> str:
    """The end of the traceback, from the handler's own frame on, in at most `most_bytes` bytes of UTF-8."""
    if most_bytes <= 0:
        return ""
    try:
        text = "".join(traceback.format_exception(type(error), error, _own_frames(error), limit=-30))
    except _INTERRUPTIONS:
        raise
    except BaseException as second:
        return f"(no traceback: formatting it raised {class_name(second)})"[:most_bytes]
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    mark = b"... "
    return (mark + data[len(data) - max(0, most_bytes - len(mark)) :]).decode("utf-8", "ignore")[:most_bytes]


def _own_frames(error: BaseException) -> TracebackType | None:
    """Without the frames that led to the handler, which say nothing to its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in _CALLERS:
        trace = trace.tb_next
    return trace or error.__traceback__


def clean(text: str, most_bytes: int) -> str:
    """Valid UTF-8 (lone surrogates replaced) of at most `most_bytes` bytes."""
    data = str.encode(text, "utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    return data[: most_bytes - 3].decode("utf-8", "ignore") + "..."
