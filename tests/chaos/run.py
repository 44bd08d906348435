"""One chaos run from its start to its verdict."""

from __future__ import annotations

import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dtq.broker import Broker, Snapshot
from dtq.errors import BrokerUnavailable
from dtq.models import Task, read_task
from tests.chaos import litter
from tests.chaos.accounts import Ledger, Run, read_effects, read_ledger, read_runs
from tests.chaos.judge import Judge, Verdict, story
from tests.chaos.stage import CHILDREN, Stage, now
from tests.chaos.storm import Storm
from tests.process.harness import alive

DRAIN_S = 60.0
"""So long nothing may begin or end before what is left counts as stuck. All of it may take longer: producers may have
been faster than workers, and what died with a child is run alone, one after the other."""
"""How long all that stands may take to end when the chaos is over."""
TIDY_S = 15.0
"""How long the last sweeps may take after that."""
STORIES = 5
BUGS = ("this is a bug in dtq", "Traceback (most recent call last)", "RuntimeError")


@dataclass
class Report:
    """What a run has to say. faults: empty for a clean run; each is a short story."""

    seed: int
    seconds: float
    line: str = ""
    faults: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)


def chaos(
    directory: Path, seconds: float, seed: int, *, workers: int = 3, pause_s: float = 0.02,
    only: str = "", pace: float = 1.0, server: str = "redis", tell: Callable[[str], None] = lambda line: None,
) -> Report:  # fmt: skip
    """Run for `seconds`, then wait until everything has ended, and judge.

    directory: where ledger, effects and logs go. workers: of two children each. pause_s: between two enqueues.
    only: words, parted by commas, of the acts to do. pace: stretches the pauses between acts.
    server: redis or valkey.
    tell: called with a line for each act.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # some die by SIGSEGV
    report = Report(seed, seconds)
    began = now()

    def told(line: str) -> None:
        tell(f"{now() - began:8.3f} {line}")

    with Stage(directory, seed, workers, pause_s, server) as stage:
        storm = Storm(stage, seed, told, only, pace)
        stage.start_clients()
        storm.run(seconds)
        told("calm")
        storm.calm()
        report.faults += stage.stop_clients()
        told("everything has ended" if _drained(stage) else "not everything has ended")
        remains = _tidied(stage)
        ledger, runs = read_ledger(stage.ledger_path), read_runs(stage.effects_path)
        tasks = _tasks(stage.broker, ledger.queue_of(runs))
        storm.end()
        (directory / "events").write_text(
            "".join(f"{event.at:.3f} {event.until:.3f} {event.what} {event.pids}\n" for event in storm.events)
        )
        logs = [worker.log for place in stage.places for worker in place.every_worker()]
        lost = {found for log in logs for found in re.findall(r"worker (\S+): its lease was lost", log)}
        effects = read_effects(stage.effects_path)
        verdict = Judge(ledger, runs, storm.events, lost, tasks, effects).judge()
        report.faults += remains.wrong
        for queue, found in remains.queues.items():
            expected = verdict.expected.get(queue, litter.Expected())
            report.faults += [f"{queue}: {what}" for what in litter.recount(found, expected)]
        report.faults += [f"a worker's log says: {line}" for log in logs for line in _bugs(log)]
        report.faults += _leave(stage)
        for task_id, what in verdict.faults[:STORIES]:
            report.faults.append(
                f"{task_id}: {what}\n{story(task_id, ledger, runs, storm.events, tasks.get(task_id), began)}"
            )
        report.faults += [f"{task_id}: {what}" for task_id, what in verdict.faults[STORIES:]]
        report.noted = verdict.noted
        report.line = _last_line(report, verdict, remains, storm, ledger, runs)
    return report


def _drained(stage: Stage) -> bool:
    """Wait until everything has ended; False where nothing goes on any more."""
    size, deadline = 0, now() + DRAIN_S
    while not _quiet(stage):
        if (grown := stage.effects_path.stat().st_size) > size:
            size, deadline = grown, now() + DRAIN_S
        if now() > deadline:
            return False
        time.sleep(0.05)
    return True


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = now() + seconds
    while not condition():
        if now() > deadline:
            return False
        time.sleep(0.05)
    return True


def _quiet(stage: Stage) -> bool:
    try:
        return stage.quiet()
    except BrokerUnavailable:
        return False


def _tidied(stage: Stage) -> litter.Remains:
    """The remains once there is no litter, or after the time that the last sweeps may take."""
    children = CHILDREN * len(stage.places)
    deadline = now() + TIDY_S
    while True:
        remains = litter.look(stage.broker, children)
        if not remains.wrong or now() > deadline:
            return remains
        time.sleep(0.2)


def _tasks(broker: Broker, queues: dict[str, str]) -> dict[str, Task | None]:
    """What Redis says of each task; queues: where it is."""
    found: dict[str, Task | None] = {}
    for queue in set(queues.values()):
        ids = [task_id for task_id, where in queues.items() if where == queue]
        for at in range(0, len(ids), 500):
            part = ids[at : at + 500]
            for task_id, snapshot in zip(part, broker.inspect(queue, part), strict=True):
                found[task_id] = _task(queue, task_id, snapshot)
    return found


def _task(queue: str, task_id: str, snapshot: Snapshot | None) -> Task | None:
    if snapshot is None:
        return None
    return read_task(
        queue, task_id, live=snapshot.live, envelope=snapshot.envelope, record=snapshot.record, due_ms=snapshot.due_ms
    )


def _bugs(log: str) -> list[str]:
    lines = log.splitlines()
    return ["\n".join(lines[at : at + 25]) for at, line in enumerate(lines) if any(word in line for word in BUGS)][:3]


def _leave(stage: Stage) -> list[str]:
    """Stop the pool in good order: idle workers leave with 0, nothing of them is left in Redis or in the machine."""
    wrong: list[str] = []
    pids = {pid for place in stage.places for pid in place.everyone()}
    for place in stage.places:
        if place.worker is not None:
            place.worker.signal(signal.SIGTERM)
    for place in stage.places:
        if place.worker is None:
            continue
        try:
            code = place.worker.wait(15)
        except AssertionError:
            wrong.append(f"worker {place.number} did not leave; its log ends:\n{place.worker.log[-1500:]}")
            continue
        if code:
            wrong.append(f"worker {place.number} left with {code}; its log ends:\n{place.worker.log[-1500:]}")
    if not _wait(lambda: not any(map(alive, pids)), 5):
        wrong.append(f"processes are left: {[pid for pid in pids if alive(pid)]}")
    remains = litter.look(stage.broker, 0)
    wrong += [f"after the last worker has left: {line}" for line in remains.wrong]
    if remains.consumers:
        wrong.append(f"after the last worker has left: {remains.consumers} consumers")
    if workers := stage.broker.command("SCARD", stage.broker.keys.workers()):
        wrong.append(f"after the last worker has left: {workers} worker ids")
    return wrong


def _last_line(
    report: Report, verdict: Verdict, remains: litter.Remains, storm: Storm, ledger: Ledger, runs: dict[str, list[Run]]
) -> str:
    figures = verdict.figures
    ended = {name.removeprefix("ended "): count for name, count in figures.items() if name.startswith("ended ")}
    again = {name.removeprefix("again: "): count for name, count in figures.items() if name.startswith("again: ")}
    acts = Counter(re.sub(r"( SIG[KS].*| for [\d.]* s| of .*|:.*)$", "", event.what) for event in storm.events)

    def listed(counts: dict[str, int]) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))

    lost = sum(what.startswith("lost") for _, what in verdict.faults)
    stuck = sum(what.startswith("stuck") for _, what in verdict.faults)
    state = "clean" if not report.faults else f"{len(report.faults)} FAULTS"
    return (
        f"chaos {report.seconds:g} s, seed {report.seed}: {state}; {figures['accepted']} tasks accepted "
        f"({figures['answer unknown']} unknown, {figures['answer refused']} refused): {listed(ended)}; {lost} lost, "
        f"{stuck} stuck; {figures['executions']} executions, again: {listed(again) or 'none'}; "
        f"{figures['side effects']} side effects done once; "
        f"{figures['overlaps']} overlaps of workers without a lease, at most {verdict.longest_overlap_s:.2f} s; "
        f"{figures['charged without a start']} charged without a start; {len(verdict.noted)} within documented limits; "
        f"{sum(acts.values())} acts: {listed(acts)}; {listed(ledger.counts()) or 'none'} by clients; "
        f"left in Redis: {len(remains.wrong)} kinds of litter"
    )
