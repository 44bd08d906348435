"""Exit codes of a worker."""

from typing import Final

CLEAN: Final = 0
"""Drained, or the burst is done."""
NO_CHILDREN: Final = 1
"""Children cannot be started; the last line says why."""
USAGE: Final = 2
"""The app cannot be loaded, has no tasks, or a setting is wrong."""
UNAVAILABLE: Final = 3
"""Redis cannot be reached, or is of an unsupported kind, at the start."""
RELEASED: Final = 6
"""The grace was over at a drain: running tasks were interrupted and go on elsewhere, uncharged."""
# 130, 143: stopped at once by a second SIGINT, SIGTERM (128 + the signal's number); running tasks were released.
