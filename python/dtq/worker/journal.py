"""How worker processes log: standard logging to stderr, one line an event, control characters escaped."""

from __future__ import annotations

import logging
import re
import sys

LOGGER = logging.getLogger("dtq.worker")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineFormatter(logging.Formatter):
    """Keeps every record on one line, whatever task names or error texts contain."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(_escaped, super().format(record))


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def start_logging(level: int = logging.INFO) -> None:
    """Send dtq's log to stderr, unless the application has set up logging of its own."""
    if logging.getLogger().handlers or LOGGER.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(process)d %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
