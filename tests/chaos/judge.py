"""Judges a run: every promise kept, every execution beyond a task's first explained by what was done to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from dtq.models import Task
from tests.chaos.accounts import Act, Ledger, Promise, Run
from tests.chaos.events import Event
from tests.chaos.handlers import CANCELLED_IN_BULK
from tests.chaos.litter import Expected
from tests.chaos.stage import LEASE_S

KILLS = ("kill child", "kill supervisor", "kill worker", "second SIGTERM")
KILLERS = ("poison", "deaf")
"""Kinds whose child dies with them: what else ran in it is redelivered."""
CUT_OFF = ("stop supervisor", "stop worker", "hold connections", "black hole")
"""The worker lives and cannot renew its lease."""
LASTING = ("stop", "hold", "black hole")
PAUSE_SEEN_S = 1.5
"""So long after a pause all workers know of it: a second, and what a busy machine adds."""
SLACK_S = 0.05
"""A signal is noted a moment before or after the kernel acts on it."""
PLANNED = {
    "ValueError": ("flaky", "flaky_nap", "hopeless", "charge"),
    "BrokerUnavailable": ("charge",),
    "TaskTimeout": ("endless", "deaf"),
    "CancelledError": ("endless_nap",),
}


@dataclass
class Verdict:
    """figures: what happened how often. faults: (task id or '', what is wrong). noted: allowed, and worth a line."""

    figures: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    longest_overlap_s: float = 0.0
    expected: dict[str, Expected] = field(default_factory=dict)


class Judge:
    """lost_leases: worker ids that were told to be dead. tasks: what Redis says of each task at the end. effects: how
    often each task has done what it must do once."""

    def __init__(
        self,
        ledger: Ledger,
        runs: dict[str, list[Run]],
        events: list[Event],
        lost_leases: set[str],
        tasks: dict[str, Task | None],
        effects: Counter[str] | None = None,
    ) -> None:
        self.verdict = Verdict()
        self._ledger = ledger
        self._runs = runs
        self._events = events
        self._lost_leases = lost_leases
        self._tasks = tasks
        self._effects = effects or Counter()
        self._by_pid: dict[int, list[Event]] = {}
        for event in events:
            for pid in event.pids:
                self._by_pid.setdefault(pid, []).append(event)
        self._in_pid: dict[int, list[Run]] = {}
        for mine in runs.values():
            for run in mine:
                self._in_pid.setdefault(run.pid, []).append(run)
        self._requeues = ledger.on_task("requeue")
        self._unfinished_requeues = [act for act in ledger.on_queues("requeue_all") if act.answer == "unknown"]
        self._cancels = ledger.on_task("cancel")
        self._bulk_cancels = ledger.on_queues("cancel_matching")
        self._purges = ledger.on_queues("purge")
        self._repeated: set[str] = set()
        self._pauses = [pause for pause in ledger.pauses() if pause[3] - pause[2] > PAUSE_SEEN_S]
        self._groups_lost = [event for event in events if event.what.startswith("destroy group")]

    def judge(self) -> Verdict:
        """Look at everything once."""
        figures = self.verdict.figures
        accepted = self._ledger.accepted
        for promise in self._ledger.promises:
            figures[f"answer {promise.answer}"] += 1
            if promise.answer == "unknown":
                self._expected(promise.queue).spare += 1
        figures["accepted"] = len(accepted)
        self._judge_answers()
        by_n = {promise.n: promise for promise in self._ledger.promises}
        for task_id in {**accepted, **self._runs}:
            mine = self._runs.get(task_id, [])
            known = accepted.get(task_id) or by_n.get(mine[0].n)
            figures["executions"] += len(mine)
            if known is None:
                self._fault(task_id, f"ran and was never enqueued (n={mine[0].n})")
                continue
            if task_id not in accepted:
                figures["ran unacknowledged"] += 1
                if known.answer == "refused" and not known.kept and mine[0].start < known.answered:
                    self.verdict.noted.append(f"{task_id}: retention 0, ran and was gone before its repeat was refused")
                elif known.answer not in ("unknown", "duplicate"):
                    self._fault(task_id, f"ran although the producer was told: {known.answer}")
            lives = self._lives(task_id, mine, known)
            self._judge_end(task_id, known, lives[-1], len(lives) > 1)
            for life in lives:
                self._judge_runs(task_id, life, known)
            self._judge_pauses(task_id, mine, known)
            if self._effects[task_id] > 1:
                self._fault(task_id, f"its side effect was done {self._effects[task_id]} times")
        figures["side effects"] = self._effects.total()
        return self.verdict

    def _expected(self, queue: str) -> Expected:
        return self.verdict.expected.setdefault(queue, Expected())

    def _lives(self, task_id: str, mine: list[Run], promise: Promise) -> list[list[Run]]:
        """The executions before and after each requeue of the dead letter. The last life may have none yet."""
        waiting = sorted(self._requeues.get(task_id, ()), key=lambda act: act.asked)
        unsure = [act for act in self._unfinished_requeues if act.queue == promise.queue]
        lives: list[list[Run]] = [[]]
        for run in mine:
            back = bool(lives[-1]) and run.attempt <= lives[-1][-1].attempt
            while waiting and waiting[0].asked <= run.start:
                act = waiting.pop(0)
                if act.answer == "done" or (act.answer == "unknown" and back):
                    self.verdict.figures["again: requeue"] += 1
                    lives.append([])
                    back = False
            if back and any(act.asked <= run.start <= act.answered for act in unsure):
                self.verdict.figures["again: requeue"] += 1
                lives.append([])
            lives[-1].append(run)
        lives += [[] for act in waiting if act.answer == "done"]
        return lives

    def _fault(self, task_id: str, what: str) -> None:
        self.verdict.faults.append((task_id, what))

    # --- promises ------------------------------------------------------------------------------------------------

    def _judge_answers(self) -> None:
        """A key, an id stands for one task only."""
        ids: dict[int, set[str]] = {}
        for promise in self._ledger.promises:
            if promise.id is not None and promise.answer in ("accepted", "duplicate"):
                ids.setdefault(promise.n, set()).add(promise.id)
            if promise.n < 0 and promise.answer == "accepted":
                self._fault(promise.id or "", "a given id was accepted twice, for two payloads")
        for n, named in ids.items():
            if len(named) > 1:
                self._fault(min(named), f"one idempotency key (n={n}) stands for several tasks: {sorted(named)}")

    def _judge_end(self, task_id: str, promise: Promise, mine: list[Run], again: bool) -> None:
        """mine: the executions of its last life."""
        task = self._tasks.get(task_id)
        if task is None:
            self._judge_gone(task_id, promise, mine)
            return
        status = task.status.value
        self.verdict.figures[f"ended {status}"] += 1
        if not task.status.terminal:
            self._fault(task_id, f"stuck: {status}, attempt {task.attempt}")
            return
        allowed = self._allowed(task_id, promise)
        if status not in allowed:
            self._fault(
                task_id, f"{promise.kind} ended {status} ({task.cause}: {task.error}), not {' or '.join(allowed)}"
            )
        charged = task.attempt - task.released
        if charged > promise.max_attempts:
            self._fault(task_id, f"{charged} charged attempts, max_attempts is {promise.max_attempts}")
        if mine and max(run.attempt for run in mine) > task.attempt and not self._maybe_requeued(task_id, promise):
            self._fault(task_id, f"an execution has a higher attempt than the record ({task.attempt})")
        if status == "dead_lettered" and (not task.cause or task.cause == "message lost"):
            self._fault(task_id, f"dead-lettered with cause {task.cause!r}")
        if status == "dead_lettered" and promise.kind != "wrong" and charged != promise.max_attempts:
            self._fault(task_id, f"dead-lettered after {charged} charged attempts of {promise.max_attempts}")
        if status == "succeeded":
            result = task.result or {}
            if result.get("attempt") != task.attempt:
                self._fault(task_id, f"its result is of attempt {result.get('attempt')}, its record of {task.attempt}")
            if not any(run.word == "ok" and run.attempt == task.attempt for run in mine):
                self._fault(task_id, f"succeeded, and no execution of attempt {task.attempt} ended well")
        started = len({run.attempt for run in mine})
        self.verdict.figures["charged without a start"] += max(0, charged - started) if started else 0

    def _judge_gone(self, task_id: str, promise: Promise, mine: list[Run]) -> None:
        """Nothing is left of a task that succeeded with retention 0, and of one that a purge has met."""
        expected = self._expected(promise.queue)
        last = max((run.start for run in mine), default=0.0)
        purged = any(act.may_hit(promise) and last <= act.answered for act in self._purges)
        well = any(run.word == "ok" for run in mine)
        if well and not promise.kept and "succeeded" in self._allowed(task_id, promise):
            self.verdict.figures["ended succeeded"] += 1
            expected.gone += 1
            expected.spare += purged  # it was perhaps queued again, and met, before it was settled
        elif purged:
            self.verdict.figures["ended purged"] += 1
            expected.purged += 1
        elif promise.kept or "succeeded" not in promise.expect:
            self._fault(task_id, "lost: Redis knows nothing of it")
        else:
            self._fault(task_id, "lost: nothing is left of it, and no execution of it ended well")

    def _allowed(self, task_id: str, promise: Promise) -> list[str]:
        """How it may have ended, by what its payload says and by what was done to it."""
        cancels = {act.answer for act in self._cancels.get(task_id, ())}
        if cancels & {"cancelled", "requested"}:
            return ["cancelled"]
        allowed = list(promise.expect)
        in_bulk = any(act.may_hit(promise) for act in self._bulk_cancels) and promise.kind in CANCELLED_IN_BULK
        if in_bulk or "unknown" in cancels:
            allowed.append("cancelled")
        if any(act.mended and act.answer in ("done", "unknown") for act in self._requeues.get(task_id, ())):
            allowed.append("succeeded")
        return allowed

    def _maybe_requeued(self, task_id: str, promise: Promise) -> bool:
        """Whether a requeue without an answer may have given it another life, in which nothing has started."""
        acts: list[Act] = [*self._requeues.get(task_id, ()), *self._unfinished_requeues]
        return any(act.answer == "unknown" and act.queue == promise.queue for act in acts)

    # --- executions ----------------------------------------------------------------------------------------------

    def _judge_runs(self, task_id: str, mine: list[Run], promise: Promise | None) -> None:
        seen: dict[int, Run] = {}
        for earlier, run in pairwise(mine):
            seen[earlier.attempt] = earlier
            twin = seen.get(run.attempt)
            if twin is not None:
                self._judge_twin(task_id, twin, run, promise)
            elif run.attempt < earlier.attempt:
                self._fault(task_id, f"attempt {run.attempt} started after attempt {earlier.attempt}")
            why = self._why(earlier, run)
            if twin is not None and twin.id in self._repeated:
                why = "repeat of a lost enqueue"
            if not why:
                self._fault(task_id, f"attempt {run.attempt} is explained by nothing")
                why = "nothing"
            self.verdict.figures[f"again: {why}"] += 1
            self._judge_overlap(task_id, earlier, run, why)

    def _judge_twin(self, task_id: str, twin: Run, run: Run, promise: Promise | None) -> None:
        """One attempt number, two starts: only after a lost group or a lost answer to the enqueue (protocol 11, 13)."""
        if promise is not None and not promise.kept and twin.start < promise.answered and twin.word == "ok":
            self.verdict.noted.append(f"{task_id}: retention 0, ran and was gone before its enqueue was repeated")
            self._repeated.add(task_id)
            self._expected(promise.queue).spare += 1
        elif any(twin.start - 1 <= event.at <= run.start for event in self._groups_lost):
            self.verdict.noted.append(f"{task_id}: attempt {run.attempt} started twice around the loss of its group")
        else:
            self._fault(task_id, f"attempt {run.attempt} started twice")

    def _why(self, earlier: Run, run: Run) -> str:
        """What explains that a task was started again."""
        if earlier.kind in PLANNED.get(earlier.word, ()):
            return "retry by plan"
        if earlier.word in ("TaskReleased", "CancelledError") and self._hit(earlier.parent, ("drain",), earlier, run):
            return "drain"
        if self._hit(earlier.pid, KILLS, earlier, run) or self._hit(earlier.parent, KILLS, earlier, run):
            return "kill"
        if self._hit(earlier.parent, ("stop supervisor", "stop worker"), earlier, run):
            return "stopped worker"
        if self._hit(earlier.parent, CUT_OFF, earlier, run):
            return "worker cut off"
        if self._hit(earlier.parent, ("drain",), earlier, run):
            return "drain"
        if any(
            other.kind in KILLERS and not other.end and other.start <= run.start
            for other in self._in_pid.get(earlier.pid, ())
        ):
            return "deadly task" if earlier.kind in KILLERS else "deadly sibling"
        # A stopped child hears of no limit and no cancel of a task beside this one, and is killed for it.
        if not earlier.word and self._hit(earlier.pid, ("stop child",), earlier, run):
            return "stopped child"
        if earlier.worker_id in self._lost_leases:
            return self._why_lost(earlier, run)
        return ""

    def _why_lost(self, earlier: Run, run: Run) -> str:
        """A lease is lost for no other reason only when the machine or the server left nobody the time to renew it."""
        for event in self._events:
            if event.what == "stall of the machine" and event.covers(earlier.start - LEASE_S, run.start, 2 * LEASE_S):
                return "lease lost by a stall of the machine"
        return ""

    def _hit(self, pid: int, kinds: tuple[str, ...], earlier: Run, run: Run) -> bool:
        for event in self._by_pid.get(pid, ()):
            if not event.what.startswith(kinds):
                continue
            if event.what.startswith(LASTING):  # the lease runs out later, also when the stop is over by then
                if event.covers(earlier.start, run.start + SLACK_S, 2 * LEASE_S):
                    return True
            elif event.what == "drain":
                if event.at <= run.start:
                    return True
            elif earlier.start - SLACK_S <= event.at <= run.start + SLACK_S:
                return True
        return False

    def _judge_overlap(self, task_id: str, earlier: Run, run: Run, why: str) -> None:
        if not earlier.end or earlier.end <= run.start:
            return
        overlap = earlier.end - run.start
        self.verdict.figures["overlaps"] += 1
        self.verdict.longest_overlap_s = max(self.verdict.longest_overlap_s, overlap)
        # A worker without a lease is allowed to find out late; nobody else is.
        stopped = self._hit(earlier.parent, CUT_OFF, earlier, run)
        if not stopped and why != "lease lost by a stall of the machine":
            self._fault(
                task_id, f"attempts {earlier.attempt} and {run.attempt} ran beside each other for {overlap:.3f} s"
            )

    def _judge_pauses(self, task_id: str, mine: list[Run], promise: Promise) -> None:
        """Nothing starts in a paused queue, or of a paused type, but where its worker could not know of the pause."""
        for queue, kind, since, until in self._pauses:
            if queue != promise.queue or kind not in ("", promise.kind):
                continue
            for run in mine:
                if since + PAUSE_SEEN_S < run.start < until and not self._disturbed(run, since):
                    self._fault(task_id, f"attempt {run.attempt} started {run.start - since:.3f} s after a pause")

    def _disturbed(self, run: Run, since: float) -> bool:
        """Whether its worker, the server or the machine stood still at some time between a pause and a start."""
        return any(
            event.covers(since - 1, run.start, 2.0)
            and (event.until or event.what.startswith("stall"))
            and (not event.pids or {run.pid, run.parent} & set(event.pids))
            for event in self._events
        )


def story(
    task_id: str, ledger: Ledger, runs: dict[str, list[Run]], events: list[Event], task: Task | None, start: float
) -> str:
    """What happened to one task and around it, by time since the start of the run."""
    lines: list[tuple[float, str]] = []
    mine = runs.get(task_id, [])
    for promise in ledger.promises:
        if promise.id == task_id or (mine and promise.n == mine[0].n):
            lines.append((promise.asked, f"enqueue asked: {promise.kind}, n={promise.n}, max {promise.max_attempts}"))
            lines.append((promise.answered, f"enqueue answered: {promise.answer}, kept: {promise.kept}"))
    for run in mine:
        who = f"attempt {run.attempt} pid {run.pid} of {run.worker_id} (supervisor {run.parent})"
        lines.append((run.start, f"start {who}"))
        if run.word:
            lines.append((run.end, f"end   {who}: {run.word}"))
    times = [at for at, _ in lines] or [start]
    pids = {pid for run in mine for pid in (run.pid, run.parent)}
    for act in ledger.acts:
        if act.id == task_id or (not act.id and any(abs(act.asked - at) < 1.0 for at, _ in lines)):
            lines.append(
                (act.asked, f"   {act.what} {act.queue} {act.kind}: {act.answer} at {act.answered - start:.3f}")
            )
    for event in events:
        near = any(abs(event.at - at) < 1.0 or event.covers(at, at) for at in times)
        if near or pids & set(event.pids):
            mark = " <-" if pids & set(event.pids) else ""
            over = f" (over at {event.until - start:.3f})" if event.until else ""
            lines.append((event.at, f"   {event.what} {' '.join(map(str, event.pids))}{over}{mark}"))
    text = "\n".join(f"  {at - start:9.3f} {what}" for at, what in sorted(lines))
    if task is not None:
        text += f"\n  Redis: {task.status} attempt {task.attempt} released {task.released} cause {task.cause}"
        for line in task.history:
            text += f"\n    history: {line.attempt} {line.cause} {line.started_at} {line.ended_at} {line.worker_id}"
    return text
