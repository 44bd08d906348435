"""How worker processes log: standard logging to stderr, one line an event; dtq.logs says how a line looks."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from dtq.logs import formatter

LOGGER = logging.getLogger("dtq.worker")


class WorkerHandler(logging.StreamHandler[TextIO]):
    """dtq's own: lines of outcomes may go past it, straight to its stream."""


def start_logging(level: int = logging.INFO) -> None:
    """Send dtq's log to stderr, unless the application has set up logging of its own. Raises InvalidSettings."""
    if logging.getLogger().handlers or LOGGER.handlers:
        return
    handler = WorkerHandler(sys.stderr)
    handler.setFormatter(formatter())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
