"""What supervisors and the leader do: hand-backs, leases, deaths of whole workers, sweeps, reaping, promoting."""

from __future__ import annotations

from tests.protocol.children import bury
from tests.protocol.claiming import hand_back, hand_over, reap
from tests.protocol.entering import promote
from tests.protocol.rules import Config
from tests.protocol.state import State, fresh, waits, worker_id
from tests.protocol.stepping import Steps


def _watched(s: State) -> list[int]:
    """Workers whose supervisor lives and is not stopped."""
    return [worker for worker in s.supervised if s.supervised[worker] and not s.stopped[worker]]


def hand_back_steps(c: Config, s: State, steps: Steps) -> None:
    """The script of a hand-back that was decided, its lost reply, or its end with the supervisor."""
    if not s.hand_back:
        return
    number, who, claims, repeated = s.hand_back

    def apply(n: State, lost: int = 0) -> None:
        hand_back(c, n, who, claims)
        n.hand_back = (number, who, claims, 1) if lost else None
        n.loss -= lost

    def forget(n: State) -> None:
        n.hand_back = None

    if c.children[number] not in _watched(s):
        steps.add("hand-back dies with its supervisor", forget)
        return
    steps.add(f"redis applies hand-back of c{number}", apply)
    if s.loss and not repeated:
        steps.add(f"redis applies hand-back of c{number}, reply lost", lambda n: apply(n, 1), fault=True)


def worker_steps(c: Config, s: State, worker: int, steps: Steps) -> None:
    """Deaths, stops, the lease and the sweeps of one worker."""
    me = worker_id(c, s, worker)
    mine = [number for number in s.children if c.children[number] == worker]
    up = worker in _watched(s)
    if s.supervised[worker] and s.crash:

        def kill_supervisor(n: State) -> None:
            n.crash -= 1
            n.supervised[worker] = 0

        def kill_all(n: State) -> None:
            kill_supervisor(n)
            for number in mine:
                if n.children[number].alive:
                    bury(c, n, number)

        steps.add(f"worker w{worker} is killed whole", kill_all, fault=True)
        steps.add(f"supervisor w{worker} is killed", kill_supervisor, fault=True)
    if s.supervised[worker] and s.pause and not s.stopped[worker]:
        for how, what in ((1, "worker"), (2, "supervisor")):

            def stop(n: State, how: int = how) -> None:
                n.pause -= 1
                n.stopped[worker] = how

            steps.add(f"SIGSTOP {what} w{worker}", stop, fault=True)
    if s.stopped[worker]:
        steps.add(f"SIGCONT w{worker}", lambda n: n.stopped.__setitem__(worker, 0))
    for old, state in s.lease.items():
        if old[0] == worker and state == "V" and (old != me or not s.supervised[worker] or s.stopped[worker]):
            steps.add(f"lease of {old} expires", lambda n, old=old: n.lease.__setitem__(old, "E"))
    if up and s.lease.get(me) != "V":

        def renew(n: State) -> None:
            if n.lease[me] == "D":  # declared dead: end the children, start under a new id
                for number in mine:
                    bury(c, n, number)
                    n.children[number] = fresh(n.children[number].incarnation + 1)
                n.incarnations[worker] += 1
            n.lease[worker_id(c, n, worker)] = "V"

        steps.add(f"w{worker} renews its lease", renew)
    if not s.supervised[worker] and not any(s.children[number].alive for number in mine):

        def restart(n: State) -> None:
            n.incarnations[worker] += 1
            n.supervised[worker], n.stopped[worker] = 1, 0
            n.lease[worker_id(c, n, worker)] = "V"
            for number in mine:
                n.children[number] = fresh(n.children[number].incarnation + 1)

        steps.add(f"w{worker} starts again", restart)
    if up and c.rules.sweep:
        for who, mark in s.graves:
            if who[:2] == me and who in s.pending.values():
                steps.add(f"w{worker} sweeps {who}", lambda n, who=who, mark=mark: hand_over(c, n, who, mark))


def leader_steps(c: Config, s: State, steps: Steps) -> None:
    """Reaper and scheduler: any live supervisor may be the leader, so that two at once are included."""
    if not _watched(s):
        return
    for old, state in s.lease.items():
        if state == "E" and c.rules.dead_is_final:
            steps.add(f"reaper declares {old} dead", lambda n, old=old: n.lease.__setitem__(old, "D"))
        holds = any(owner[:2] == old for owner in s.pending.values())
        if state == ("D" if c.rules.dead_is_final else "E") and (holds or not c.rules.sweep):

            def take(n: State, old: tuple[int, int] = old) -> None:
                reap(c, n, old)
                if not c.rules.sweep:
                    n.lease[old] = "G"  # only once

            steps.add(f"reaper takes the entries of {old}", take)
    for task in s.records:
        if waits(s, task):
            steps.add(f"promote t{task}", lambda n, task=task: promote(c, n, task))
