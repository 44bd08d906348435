"""Kills of producers and operators, and trouble on the way between them, or a worker, and the server."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

from tests.chaos.events import Acts, Chronicle
from tests.chaos.outside import Connections
from tests.chaos.stage import LEASE_S, Place, Stage, now


class ClientActs(Acts):
    """Acts on producers, operators and connections."""

    def __init__(self, stage: Stage, dice: random.Random, chronicle: Chronicle) -> None:
        super().__init__(stage, dice, chronicle)
        self._disturbed: set[str] = set()
        self.weighted = [
            (3, self._kill_producer), (1.5, self._kill_operator), (3, self._hold_connections), (3, self._black_hole),
            (3, self._cut_some_connections),
        ]  # fmt: skip

    def _kill_producer(self) -> None:
        self._kill_client("producer")

    def _kill_operator(self) -> None:
        self._kill_client("operator")

    def _kill_client(self, module: str) -> None:
        client = self._dice.choice([client for client in self._stage.clients if client.module == module])
        self._note(f"kill {module}", client.follow())

    def _way(self) -> tuple[Connections, Place | None]:
        """Whose connections are hit: those of one worker, or those of all clients."""
        place = self._dice.choice([*self._stage.places, None])
        return (self._stage.client_connections, None) if place is None else (place.connections, place)

    def _disturb(self, what: str, do: Callable[[Connections], None], undo: Callable[[Connections], None]) -> None:
        """For a while, one trouble at a time on each way."""
        way, place = self._way()
        if way.name in self._disturbed:
            return
        self._disturbed.add(way.name)
        event = self._note(f"{what} of {way.name}", *(place.everyone() if place else ()))
        do(way)

        def end() -> None:
            undo(way)
            event.until = now()
            if place is not None:  # the worker may be another one by now
                event.pids = tuple({*event.pids, *place.everyone()})
            self._disturbed.discard(way.name)
            self._tell(f"over: {event.what}")

        self._after(self._dice.choices([0.1, 0.3, LEASE_S, 3 * LEASE_S, 6], [4, 4, 3, 1, 0.5])[0], end)

    def _hold_connections(self) -> None:
        """What is sent stays on its way, and arrives late, when its sender has long turned to something else."""
        self._disturb(
            "hold connections", lambda way: way.signal(signal.SIGSTOP), lambda way: way.signal(signal.SIGCONT)
        )

    def _black_hole(self) -> None:
        """What is sent vanishes; afterwards the connections of then are cut, or stay silent for ever."""
        which = self._dice.choice(["requests", "replies", "both"])
        cut = self._dice.random() < 0.5

        def undo(way: Connections) -> None:
            way.tell("pass")
            if cut:
                way.tell("cut")

        self._disturb(f"black hole for {which}", lambda way: way.tell(f"hole {which}"), undo)

    def _cut_some_connections(self) -> None:
        way, _ = self._way()
        if way.name not in self._disturbed:
            self._note(f"cut connections of {way.name}")
            way.tell("cut")
