"""A broker on an empty real server, and a stage with real workers."""

from tests.broker.conftest import broker, settings
from tests.process.conftest import open_stage, stage

__all__ = ["broker", "open_stage", "settings", "stage"]
