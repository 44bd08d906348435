"""Kills, stops and drains of workers and their processes."""

from __future__ import annotations

import random
import signal

from tests.chaos.events import Acts, Chronicle, Event
from tests.chaos.stage import LEASE_S, Place, Stage, now, send


class WorkerActs(Acts):
    """Acts on supervisors, templates and children."""

    def __init__(self, stage: Stage, dice: random.Random, chronicle: Chronicle) -> None:
        super().__init__(stage, dice, chronicle)
        self._stopped: set[int] = set()
        self.weighted = [
            (14, self._kill_child), (4, self._stop_child), (5, self._kill_template), (6, self._kill_supervisor),
            (4, self._kill_worker), (7, self._drain), (2, self._drain_twice), (4, self._stop_worker),
            (3, self._stop_supervisor),
        ]  # fmt: skip

    def follow_up(self) -> None:
        """A worker that has ended by itself is followed by another one as well."""
        for place in self._stage.places:
            if place.worker is not None and place.worker.process.poll() is not None and not self._awaited(place):
                said = place.worker.log.rstrip().rpartition("\n")[2]
                self._note(f"worker {place.number} has ended with {place.worker.process.returncode}: {said[:200]}")
                place.start()

    def _awaited(self, place: Place) -> bool:
        return place.number in self._stopped

    def _place(self) -> Place:
        return self._dice.choice(self._stage.places)

    def _one(self, pids: list[int]) -> int:
        return self._dice.choice(pids) if pids else 0

    def _kill_child(self) -> None:
        if pid := self._one(self._place().children()):
            number = self._dice.choice([signal.SIGKILL] * 4 + [signal.SIGSEGV, signal.SIGTERM])
            self._note(f"{'signal' if number == signal.SIGTERM else 'kill'} child {number.name}", pid)
            send(pid, number)

    def _stop_child(self) -> None:
        if pid := self._one(self._place().children()):
            event = self._note("stop child", pid)
            send(pid, signal.SIGSTOP)
            self._after(self._dice.choice([0.2, 1, 2 * LEASE_S]), lambda: self._go_on(event, [pid]))

    def _go_on(self, event: Event, pids: list[int]) -> None:
        event.until = now()
        for pid in pids:
            send(pid, signal.SIGCONT)
        self._tell(f"go on {' '.join(map(str, pids))}")

    def _kill_template(self) -> None:
        if pid := self._one(self._place().templates()):
            self._note("kill template", pid)
            send(pid, signal.SIGKILL)

    def _restart(self, place: Place, seconds: float) -> None:
        """Let the place stand empty for a while."""
        self._stopped.add(place.number)

        def start() -> None:
            if place.pid:  # a drain that takes its time
                self._after(0.1, start)
                return
            self._stopped.discard(place.number)
            place.start()

        self._after(seconds, start)

    def _kill_supervisor(self) -> None:
        place = self._place()
        if (pid := place.pid) and not self._awaited(place):
            self._note("kill supervisor", pid)
            send(pid, signal.SIGKILL)
            self._restart(place, self._dice.choice([0, 0, 0.5, 2 * LEASE_S]))

    def _kill_worker(self) -> None:
        place = self._place()
        if (pid := place.pid) and not self._awaited(place):
            everyone = place.everyone()
            self._note("kill worker", *everyone)
            for victim in self._dice.sample(everyone, len(everyone)):
                send(victim, signal.SIGKILL)
            send(pid, signal.SIGKILL)
            self._restart(place, self._dice.choice([0, 0.5, 2 * LEASE_S]))

    def _drain(self) -> None:
        place = self._place()
        if (pid := place.pid) and not self._awaited(place):
            event = self._note("drain", pid)
            event.until = event.at + 5  # it takes as long as the graces
            send(pid, signal.SIGTERM)
            self._restart(place, self._dice.choice([1, 2.5]))

    def _drain_twice(self) -> None:
        place = self._place()
        if (pid := place.pid) and not self._awaited(place):
            event = self._note("drain", pid)
            event.until = event.at + 5
            send(pid, signal.SIGTERM)
            self._after(self._dice.choice([0.0, 0.05, 0.2]), lambda: self._second_signal(pid))
            self._restart(place, 1)

    def _second_signal(self, pid: int) -> None:
        self._note("second SIGTERM", pid)
        send(pid, signal.SIGTERM)

    def _stop_worker(self) -> None:
        place = self._place()
        if place.pid and not self._awaited(place):
            everyone = place.everyone()
            event = self._note("stop worker", *everyone)
            for pid in everyone:
                send(pid, signal.SIGSTOP)
            self._after(self._dice.choice([0.3, LEASE_S, 3 * LEASE_S]), lambda: self._go_on(event, everyone))

    def _stop_supervisor(self) -> None:
        place = self._place()
        if (pid := place.pid) and not self._awaited(place):
            event = self._note("stop supervisor", pid)
            send(pid, signal.SIGSTOP)
            self._after(self._dice.choice([0.3, LEASE_S, 3 * LEASE_S]), lambda: self._go_on(event, [pid]))
