"""Whom handles and acts ask: the client, as they see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dtq.clock import Clock
from dtq.settings import Settings

if TYPE_CHECKING:
    from dtq.broker import Broker


class Source(Protocol):
    """The connection to the server, the settings and the clock."""

    settings: Settings
    clock: Clock

    @property
    def broker(self) -> Broker:
        """The verbs on the server."""
        ...

    async def abroker(self) -> Broker:
        """The same for the running loop."""
        ...
