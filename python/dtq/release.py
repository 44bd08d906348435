"""Which dtq this is."""

from typing import Final

VERSION: Final = "0.1.0"
"""As in pyproject.toml; looking it up in the metadata of what is installed would take milliseconds, and fail in a tree
that is not."""
