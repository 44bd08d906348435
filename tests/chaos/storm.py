"""What goes wrong during a run: seeded kills, stops, cuts and refusals, each noted with its time and its victims."""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.handlers import QUEUES
from tests.chaos.sabotage import DOUBLE, LOSE
from tests.chaos.stage import LEASE_S, Connections, Place, Stage, now, send

STALL_S = 0.25
"""The machine counts as stalled when a thread that wants to run every 20 ms could not for so long."""
_WORDS = (
    ("CONFIG", "SET", "requirepass", "another"),
    ("ACL", "SETUSER", "default", "resetpass", ">another"),
    ("ACL", "SETUSER", "default", "off"),
)
"""Ways to lock everybody out."""


@dataclass(slots=True)
class Event:
    """One act. pids: who was hit (for a worker: its supervisor's pid stands for all). until: when it was over."""

    at: float
    what: str
    pids: tuple[int, ...] = ()
    until: float = 0.0

    def covers(self, start: float, end: float, slack: float = 0.0) -> bool:
        """Whether it went on within a span of time."""
        return self.at <= end and max(self.at, self.until) + slack >= start


class Storm:
    """Draws acts from a seeded source and does them, until told to stop; then everything is put right again.

    only: words; acts whose name has none of them are left out, and the two that are sabotage are only done where they
    are named so. pace: stretches the pauses between acts.
    """

    def __init__(self, stage: Stage, seed: int, tell: Callable[[str], None], only: str = "", pace: float = 1.0) -> None:
        self._stage = stage
        self._dice = random.Random(seed)
        self._tell = tell
        self._pace = pace
        self.events: list[Event] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopped: set[int] = set()
        self._server_busy = False
        self._disturbed: set[str] = set()
        self._watching = True
        self._acts: list[tuple[float, Callable[[], None]]] = [
            (14, self._kill_child), (4, self._stop_child), (5, self._kill_template), (6, self._kill_supervisor),
            (4, self._kill_worker), (7, self._drain), (2, self._drain_twice), (4, self._stop_worker),
            (3, self._stop_supervisor), (3, self._kill_server), (3, self._freeze_server), (4, self._cut_connections),
            (8, self._lose_replies), (4, self._flush_scripts), (6, self._destroy_group), (1.5, self._refuse_writes),
            (1.5, self._fill_memory), (1.5, self._forbid), (1.5, self._limit_connections), (1, self._keep_busy),
            (1.5, self._fail_snapshots), (1.5, self._change_password), (3, self._hold_connections),
            (3, self._black_hole), (3, self._cut_some_connections), (3, self._kill_producer),
            (1.5, self._kill_operator), (0, self._lose_a_task), (0, self._double_a_task),
        ]  # fmt: skip
        words = [word for word in only.split(",") if word]
        if words:
            named = (act for act in self._acts if any(word in act[1].__name__ for word in words))
            self._acts = [(weight or 1, act) for weight, act in named]

    def run(self, seconds: float) -> None:
        """Rage for so long."""
        watcher = threading.Thread(target=self._watch_the_machine, daemon=True)
        watcher.start()
        until = now() + seconds
        while now() < until:
            self._do_later()
            self._dice.choices([act for _, act in self._acts], [weight for weight, _ in self._acts])[0]()
            pause_until = now() + self._pace * self._dice.choice([0, 0.02, 0.1, 0.2, 0.4])
            while now() < pause_until:
                self._do_later()
                time.sleep(0.01)

    def calm(self) -> None:
        """Undo what is still to be undone: everybody runs again."""
        while self._later:
            heapq.heappop(self._later)[2]()
            time.sleep(0.01)
        for place in self._stage.places:
            place.start()

    def end(self) -> None:
        """Stop watching the machine."""
        self._watching = False

    # --- keeping account -----------------------------------------------------------------------------------------

    def _note(self, what: str, *pids: int) -> Event:
        event = Event(now(), what, pids)
        self.events.append(event)
        self._tell(f"{what} {' '.join(map(str, pids))}")
        return event

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._later, (now() + seconds, next(self._order), action))

    def _do_later(self) -> None:
        while self._later and self._later[0][0] <= now():
            heapq.heappop(self._later)[2]()
        for place in self._stage.places:  # a worker that has ended by itself is followed by another one as well
            if place.worker is not None and place.worker.process.poll() is not None and not self._awaited(place):
                said = place.worker.log.rstrip().rpartition("\n")[2]
                self._note(f"worker {place.number} has ended with {place.worker.process.returncode}: {said[:200]}")
                place.start()

    def _awaited(self, place: Place) -> bool:
        return place.number in self._stopped

    def _watch_the_machine(self) -> None:
        while self._watching:
            before = now()
            time.sleep(0.02)
            if (late := now() - before - 0.02) > STALL_S:
                self.events.append(Event(before, "stall of the machine", (), before + 0.02 + late))

    # --- acts on workers -----------------------------------------------------------------------------------------

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

    # --- acts on producers and operator --------------------------------------------------------------------------

    def _kill_producer(self) -> None:
        self._kill_client("producer")

    def _kill_operator(self) -> None:
        self._kill_client("operator")

    def _kill_client(self, module: str) -> None:
        client = self._dice.choice([client for client in self._stage.clients if client.module == module])
        self._note(f"kill {module}", client.follow())

    # --- acts on connections -------------------------------------------------------------------------------------

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

    # --- acts on the server --------------------------------------------------------------------------------------

    def _for_a_while(self, what: str, seconds: float, undo: Callable[[], None]) -> None:
        """One trouble of the server at a time."""
        self._server_busy = True
        event = self._note(f"{what} for {seconds:g} s")

        def end() -> None:
            undo()
            event.until = now()
            self._server_busy = False
            self._tell(f"over: {what}")

        self._after(seconds, end)

    def _kill_server(self) -> None:
        if not self._server_busy:
            self._stage.server.kill()
            self._for_a_while("kill server", self._length(), self._stage.server.start)

    def _freeze_server(self) -> None:
        if not self._server_busy:
            self._stage.server.freeze()
            self._for_a_while("freeze server", self._length(), self._stage.server.thaw)

    def _refuse(self, what: str, command: tuple[object, ...], undo: tuple[object, ...]) -> None:
        """The server answers, and refuses, for a while."""
        if not self._server_busy:
            self._stage.say(*command)
            self._for_a_while(what, self._length(), lambda: self._insist(*undo))

    def _refuse_writes(self) -> None:
        self._refuse("READONLY", ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"))

    def _fill_memory(self) -> None:
        self._refuse("OOM", ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"))

    def _fail_snapshots(self) -> None:
        """MISCONF: the last snapshot failed (its place is taken), and the server writes nothing until one succeeds."""
        if not self._server_busy:
            self._stage.say("CONFIG", "SET", "save", "3600 100000000")
            self._stage.say("BGSAVE")
            self._for_a_while("MISCONF", self._length(), lambda: self._insist("CONFIG", "SET", "save", ""))

    def _change_password(self) -> None:
        """Every connection has to log in anew, and nobody knows the word."""
        if not self._server_busy:
            self._stage.say(*self._dice.choice(_WORDS))
            self._stage.say("CLIENT", "KILL", "TYPE", "normal")
            undo = ("ACL", "SETUSER", "default", "on", "resetpass", "nopass")
            self._for_a_while("wrong password", self._length(), lambda: self._insist(*undo))

    def _forbid(self) -> None:
        self._refuse("NOPERM", ("ACL", "SETUSER", "default", "-@scripting"), ("ACL", "SETUSER", "default", "+@all"))

    def _limit_connections(self) -> None:
        self._refuse(
            "no new connections", ("CONFIG", "SET", "maxclients", "1"), ("CONFIG", "SET", "maxclients", "10000")
        )
        self._stage.say("CLIENT", "KILL", "TYPE", "normal")

    def _keep_busy(self) -> None:
        """BUSY: a script of somebody else runs on and on, until it is killed."""
        if not self._server_busy:
            self._stage.say("CONFIG", "SET", "busy-reply-threshold", "50")
            self._stage.say("EVAL", "while true do end", 0)  # the reply is not waited for
            self._for_a_while("BUSY", self._length(), lambda: self._insist("SCRIPT", "KILL"))

    def _insist(self, *command: object) -> None:
        while self._stage.say(*command) is None:
            time.sleep(0.02)

    def _length(self) -> float:
        """How long a trouble of the server lasts: mostly less than a lease."""
        return self._dice.choices([0, 0.2, 0.7 * LEASE_S, 2 * LEASE_S, 7], [4, 6, 3, 2, 0.4])[0]

    def _lose_replies(self) -> None:
        """Commands are applied, and nobody hears of it."""
        if not self._server_busy:
            self._note("lose replies")
            self._stage.say_while_frozen(self._dice.choice([0.02, 0.05, 0.1]), "CLIENT", "KILL", "TYPE", "normal")

    def _cut_connections(self) -> None:
        if not self._server_busy:
            self._note("cut connections")
            self._stage.say("CLIENT", "KILL", "TYPE", "normal")

    def _flush_scripts(self) -> None:
        if not self._server_busy:
            self._note("flush scripts")
            self._stage.say("SCRIPT", "FLUSH")

    def _destroy_group(self) -> None:
        if not self._server_busy:
            band, queue = self._dice.choice([5, 5, 5, 9, 1]), self._dice.choice(QUEUES)
            self._note(f"destroy group of band {band} of {queue}")
            self._stage.say("XGROUP", "DESTROY", f"dtq:stream:{{{queue}}}:p{band}", "workers")

    # --- sabotage ------------------------------------------------------------------------------------------------

    def _lose_a_task(self) -> None:
        self._sabotage("lose", LOSE)

    def _double_a_task(self) -> None:
        self._sabotage("double", DOUBLE)

    def _sabotage(self, what: str, script: str) -> None:
        queue = self._dice.choice(QUEUES)
        keys = (f"dtq:live:{{{queue}}}", f"dtq:stream:{{{queue}}}:p", f"dtq:queue:{{{queue}}}:meta")
        if found := self._stage.say("EVAL", script, len(keys), *keys):
            self._note(f"{what} task of {queue}: {found.decode()}")
