"""What goes wrong during a run: seeded kills, stops, cuts and refusals, each noted with its time and its victims."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.chaos.acts_on_clients import ClientActs
from tests.chaos.acts_on_server import ServerActs
from tests.chaos.acts_on_workers import WorkerActs
from tests.chaos.events import Chronicle, Event
from tests.chaos.stage import Stage, now


class Storm:
    """Draws acts from a seeded source and does them, until told to stop; then everything is put right again.

    only: words; acts whose name has none of them are left out, and the two that are sabotage are only done where they
    are named so. pace: stretches the pauses between acts.
    """

    def __init__(self, stage: Stage, seed: int, tell: Callable[[str], None], only: str = "", pace: float = 1.0) -> None:
        self._stage = stage
        self._dice = random.Random(seed)
        self._pace = pace
        self._chronicle = Chronicle(tell)
        self._workers = WorkerActs(stage, self._dice, self._chronicle)
        families = [family(stage, self._dice, self._chronicle) for family in (ServerActs, ClientActs)]
        self._acts = [act for family in (self._workers, *families) for act in family.weighted]
        words = [word for word in only.split(",") if word]
        if words:
            named = (act for act in self._acts if any(word in act[1].__name__ for word in words))
            self._acts = [(weight or 1, act) for weight, act in named]

    @property
    def events(self) -> list[Event]:
        """What was done so far."""
        return self._chronicle.events

    def run(self, seconds: float) -> None:
        """Rage for so long."""
        self._chronicle.watch_the_machine()
        weights = [weight for weight, _ in self._acts]
        until = now() + seconds
        while now() < until:
            self._follow_up()
            self._dice.choices([act for _, act in self._acts], weights)[0]()
            pause_until = now() + self._pace * self._dice.choice([0, 0.02, 0.1, 0.2, 0.4])
            while now() < pause_until:
                self._follow_up()
                time.sleep(0.01)

    def _follow_up(self) -> None:
        self._chronicle.do_later()
        self._workers.follow_up()

    def calm(self) -> None:
        """Undo what is still to be undone: everybody runs again."""
        self._chronicle.do_the_rest()
        for place in self._stage.places:
            place.start()

    def end(self) -> None:
        """Stop watching the machine."""
        self._chronicle.stop_watching()
