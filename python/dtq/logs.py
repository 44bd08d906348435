"""How dtq's programs write their logs: one physical line a record, as text or as JSON, whatever it contains.

`DTQ_LOG_JSON` (a switch) chooses JSON; see docs/logs.md for its fields.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from copy import copy
from traceback import format_tb
from typing import Any, Final

import orjson

from dtq.errors import InvalidSettings
from dtq.failure import class_name

LONGEST_LINE: Final = 8192
"""Longer lines are cut, in characters."""
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(process)d %(message)s"
FIELDS: Final = "dtq_fields"
"""Attribute of a record that holds further fields of its JSON object."""

# Control characters, line and paragraph separators, and what turns the direction of text around.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_CUT = " … (cut)"
_FRAMES = 20
"""The innermost frames of a traceback that are shown."""
_LONGEST_CHAIN = 5
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


def one_line(text: str) -> str:
    """A text that is one line everywhere, and shows what it is: no control characters, and no more than fits."""
    if len(text) > LONGEST_LINE:
        text = text[:LONGEST_LINE] + _CUT
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode(), text)


def needs_care(text: str) -> bool:
    """Whether `one_line` would change something but a length."""
    return _CONTROL.search(text) is not None


def wants_json(environment: Mapping[str, str] | None = None) -> bool:
    """Whether DTQ_LOG_JSON asks for JSON. Raises InvalidSettings where it says neither yes nor no."""
    text = (os.environ if environment is None else environment).get("DTQ_LOG_JSON", "").strip().lower()
    if text not in _TRUE + _FALSE:
        raise InvalidSettings([f"DTQ_LOG_JSON: {text!r} is not a switch; use 1 or 0"])
    return text in _TRUE


def trace_of(error: BaseException) -> str:
    """Class and place of an exception and of those that led to it, the first one first.

    Without their texts, which may repeat what a task carries.
    """
    told: list[str] = []
    shown: BaseException | None = error
    while shown is not None and len(told) < _LONGEST_CHAIN:
        told.insert(0, "".join(format_tb(shown.__traceback__, limit=-_FRAMES)) + class_name(shown))
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return "\n".join(told)


class _Discreet(logging.Formatter):
    """Shows no text of an exception, whoever logs it."""

    def formatException(self, ei: Any) -> str:
        return "" if ei[1] is None else trace_of(ei[1])

    def message(self, record: logging.LogRecord) -> str:
        """What the record says; a class only, where that is the exception whose traceback follows."""
        if record.exc_info and isinstance(record.msg, BaseException):
            return class_name(record.msg)
        return record.getMessage()


class LineFormatter(_Discreet):
    """Text: time, level, pid, message."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)  # other handlers show it in their own way
        record.msg, record.args, record.exc_text = self.message(record), None, None
        return one_line(super().format(record))


class JsonFormatter(_Discreet):
    """JSON: ts (ms since 1970), level, pid, message, further fields of the record, and a traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "ts": int(record.created * 1000),
            "level": record.levelname,
            "pid": record.process,
            "message": one_line(self.message(record)),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            fields["exception"] = one_line(self.formatException(record.exc_info))
        return encoded(fields)


def encoded(fields: dict[str, Any]) -> str:
    """A JSON object as one line: what JSON leaves as it is, such as U+2028, is escaped, too."""
    try:
        text = orjson.dumps(fields, default=str).decode()
    except TypeError:  # a lone surrogate
        import json

        text = json.dumps(fields, default=str)
    return _CONTROL.sub(_escaped_for_json, text)


def _escaped_for_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def formatter() -> logging.Formatter:
    """The one that DTQ_LOG_JSON asks for. Raises InvalidSettings."""
    return JsonFormatter() if wants_json() else LineFormatter()
