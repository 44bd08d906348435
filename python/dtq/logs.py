"""How dtq's programs write their logs: one physical line a record, as text or as JSON, whatever it contains.

`DTQ_LOG_JSON` (a switch) chooses JSON; see docs/logs.md for its fields.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from dtq.errors import InvalidSettings

LONGEST_LINE: Final = 8192
"""Longer lines are cut, in characters."""
TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(process)d %(message)s"
FIELDS: Final = "dtq_fields"
"""Attribute of a record that holds further fields of its JSON object."""

# Control characters, line and paragraph separators, and what turns the direction of text around.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_CUT = " … (cut)"
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


class LineFormatter(logging.Formatter):
    """Text: time, level, pid, message."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


class JsonFormatter(logging.Formatter):
    """JSON: ts (ms since 1970), level, pid, message, further fields of the record, and a traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "ts": int(record.created * 1000),
            "level": record.levelname,
            "pid": record.process,
            "message": one_line(record.getMessage()),
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
