"""The whole state machine: children and producers, and beside them supervisors, the leader, accidents, and the end."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import invariant, precondition, rule

from dtq.errors import WorkerDeclaredDead
from dtq.keys import BANDS, GROUP, PARKED, SHELF
from tests.broker.driver import QUEUE, check_invariants
from tests.model.actors import Death, Ended, Given, SimulatedChild, SimulatedWorker
from tests.model.checking import check_figures
from tests.model.children import PICK
from tests.model.lifecycle import Moves
from tests.model.operators import Operators

CAUSES = st.sampled_from(["signal SIGKILL", "signal SIGKILL", "out of memory", "released"])


class LifecycleMachine(Operators):
    """All rules; the test gives the server's url."""

    # --- supervisors

    @precondition(lambda self: any(child.holds for child in self.children))
    @rule(pick=PICK, later=st.booleans())
    def revoke(self, pick: int, later: bool) -> None:
        """Take claims that have not begun from a busy child, and hand them back (later: by another rule)."""
        busy = [child for child in self.children if child.holds]
        child = busy[pick % len(busy)]
        self.given.append(Given(child.consumer, child.holds[0].seq, child.holds[-1].seq + 1))
        child.holds.clear()
        if not later:
            self._hand_back(self.given.pop())

    @precondition(lambda self: self.given or self.given_before)
    @rule(pick=PICK, again=st.booleans())
    def hand_back(self, pick: int, again: bool) -> None:
        """A hand-back that was on its way arrives, or one that had arrived does so again."""
        if again and self.given_before:
            self._hand_back(self.given_before[pick % len(self.given_before)])
        elif self.given:
            self._hand_back(self.given.pop(pick % len(self.given)))

    def _hand_back(self, given: Given) -> None:
        moves = Moves({given.consumer}, first=given.start, beyond=given.end)
        self.broker.hand_back(QUEUE, given.consumer, given.start, given.end)
        self._look("hand_back", moves=moves)
        self.given_before.append(given)

    @rule(pick=PICK, cause=CAUSES, later=st.booleans(), turn=st.booleans())
    def kill_child(self, pick: int, cause: str, later: bool, turn: bool) -> None:
        """A child dies (turn: with a turn written and not read by Redis); its supervisor hands over, perhaps later."""
        self.children.sort(key=lambda child: -len(child.runs) - len(child.holds) - len(child.ended) - len(child.read))
        child = self.children.pop(pick % 3 % len(self.children))
        if turn:
            self.late.append(
                child.pack(self.broker, 2 if child.may_start and not child.holds else 0, child.lost, child.read)
            )
        self.children.append(SimulatedChild.of(child.worker))
        if child.worker.lease == "dead":
            return
        self.dead.append(child.die(cause))
        if not later:
            self._hand_over(self.dead.pop())

    @precondition(lambda self: self.dead)
    @rule(pick=PICK)
    def hand_over(self, pick: int) -> None:
        """A supervisor gets to a dead child."""
        self._hand_over(self.dead.pop(pick % len(self.dead)))

    def _hand_over(self, death: Death) -> None:
        for given in [given for given in self.given if given.consumer == death.consumer]:
            self.given.remove(given)  # a supervisor works in order
            self._hand_back(given)
        executing = [claim.seq for claim in death.executing]
        charged = set(executing) if death.cause != "released" else set()
        idle = not executing and death.cause != "released"
        moves = Moves({death.consumer}, begun_below=death.watermark, executing=charged, idle=idle)
        self.broker.hand_over(QUEUE, death.consumer, death.watermark, executing, death.cause)
        self._look("hand_over", moves=moves)

    @rule()
    def sweep(self) -> None:
        """At a renewal: consumers of live workers that are no live child, and have been handed over (protocol 4)."""
        spared = {child.consumer for child in self.children} | {death.consumer for death in self.dead} | {SHELF, PARKED}
        valid = {worker.id for worker in self.workers if worker.lease == "valid"}
        for consumer in sorted(self.broker.consumers(QUEUE)):
            if consumer not in spared and consumer.rsplit(".", 2)[0] in valid:
                self.broker.hand_over(QUEUE, consumer, 0, [], "lost claim", ended=True)
                self._look("hand_over", moves=Moves({consumer}))

    @precondition(lambda self: any(worker.lease == "valid" for worker in self.workers))
    @rule(pick=PICK)
    def lease_runs_out(self, pick: int) -> None:
        """A worker is paused, or cut off: its lease is gone, its children may still settle."""
        valid = [worker for worker in self.workers if worker.lease == "valid"]
        worker = valid[pick % len(valid)]
        worker.lease = "expired"
        self.client.delete(self.broker.keys.worker(worker.id))

    @precondition(lambda self: any(worker.lease != "valid" for worker in self.workers))
    @rule(stale=st.booleans())
    def renew(self, stale: bool) -> None:
        """A worker renews: an expired lease comes back, a dead one never does. stale: its old children linger."""
        number = next(i for i, worker in enumerate(self.workers) if worker.lease != "valid")
        worker = self.workers[number]
        if worker.lease != "dead":
            self.broker.renew(worker.id, {})
            worker.lease = "valid"
            return
        try:
            self.broker.renew(worker.id, {})
        except WorkerDeclaredDead:
            pass
        else:
            raise AssertionError("a dead worker renewed its lease")
        self.workers[number] = SimulatedWorker(self.broker)
        if not stale:
            self.children = [child for child in self.children if child.worker is not worker]
        self.children.append(SimulatedChild.of(self.workers[number]))

    # --- the leader

    @precondition(lambda self: {"valid"} < {worker.lease for worker in self.workers})
    @rule()
    def reap(self) -> None:
        """Declare workers without a lease dead, and take over what they hold."""
        self._reap()

    def _reap(self) -> None:
        for worker_id, consumers in self.broker.ownerless(QUEUE).items():
            assert self.broker.declare_dead(worker_id)
            for consumer in consumers:
                runs = [
                    live
                    for task_id, live in self.seen.live.items()
                    if live.kind == "r" and live.consumer == consumer and self.seen.holder(task_id) == consumer
                    and not self.seen.waits(task_id)
                ]  # fmt: skip
                known = len(runs) == 1 and "w;" not in runs[0].tail
                moves = Moves({consumer}, executing={runs[0].seq} if known else set(), reaps=True)
                self.broker.reap_consumer(QUEUE, consumer)
                self._look("reap", moves=moves)
            for worker in self.workers:
                if worker.id == worker_id:
                    worker.lease = "dead"
                    self.dead = [death for death in self.dead if death.worker is not worker]
                    self.given = [given for given in self.given if not given.consumer.startswith(worker_id)]

    @precondition(lambda self: self.seen.schedule)
    @rule(all_due=st.booleans(), pick=PICK)
    def promote(self, all_due: bool, pick: int) -> None:
        """Times come, and the leader promotes."""
        waiting = sorted(self.seen.schedule)
        for task_id in waiting if all_due else waiting[: pick + 1 if waiting else 0]:
            self.client.zadd(self.broker.keys.schedule(QUEUE), {task_id: 1}, xx=True)
        self.broker.promote(QUEUE)
        self._look("promote")

    # --- accidents and operators

    @rule(what=st.sampled_from(["groups", "scripts", "unique", "key", "ttl", "ttl"]), pick=PICK)
    def accident(self, what: str, pick: int) -> None:
        """The groups or scripts are gone; a lock, an idempotency record or a waiting task runs out."""
        if what == "groups":
            self._lose_groups(prepared=pick > 2)
        elif what == "scripts":
            self.client.script_flush()
        elif what == "ttl":
            self.producer.expire(pick, self.seen)
        else:
            self.producer.unlock(what == "unique", pick)
        self._look("nothing")

    def _lose_groups(self, prepared: bool) -> None:
        for band in BANDS:
            self.client.xgroup_destroy(self.broker.keys.stream(QUEUE, band), GROUP)
        for life in self.model.lives.values():
            life.regrouped = True
        self.grouped = False
        self.regrouped = True
        if prepared:
            self._prepare()

    # --- after every step

    @invariant()
    def holds(self) -> None:
        """What the tests of the broker check at their ends, here after every step (where the group is whole)."""
        if self.grouped and all(
            live.kind == "q" or self.seen.holder(task_id) for task_id, live in self.seen.live.items()
        ):
            check_invariants(self.broker)
        check_figures(self.model, self.seen, self.broker, self.paused)

    def teardown(self) -> None:
        """Drain: everything ends, and nothing is left."""
        try:
            self._drain()
        finally:
            self.client.close()
            self.broker.close()
            self.producer.capped.close()

    def _drain(self) -> None:
        self._prepare()
        self._resume_all()
        self._look("nothing")
        for death in list(self.dead):
            self._hand_over(death)
        self.dead.clear()
        for worker in self.workers:
            if worker.lease == "valid":
                self.client.delete(self.broker.keys.worker(worker.id))
        self.children.clear()
        worker = SimulatedWorker(self.broker)
        self.workers.append(worker)
        cleaner = SimulatedChild.of(worker)
        self.children.append(cleaner)
        for _ in range(200):
            self._reap()
            self.promote(True, 0)
            if not self.seen.live:  # bells wake blocked readers: no turn looks for them in a band that was never used
                cleaner.read = self._deliver(cleaner.consumer)
            self._turn(cleaner, 5, True)
            while cleaner.holds:
                self._start(cleaner)
                cleaner.ended.append(Ended(cleaner.runs.pop(), "S"))
            if not (cleaner.ended or self.seen.live or self.seen.schedule or self.seen.entries or self.seen.pending):
                break
        self.holds()
        changed = {key for key, value in self._everything_beside().items() if self.beside.get(key) != value}
        assert not changed, f"the queue beside this one has changed: {changed}"
        left = {task_id: life.status for task_id, life in self.model.lives.items() if not life.ended}
        assert not left, f"these never end: {left}"
        assert not self.seen.entries, f"left in the streams: {self.seen.entries}"
        assert not self.seen.pending, f"left in pending lists: {self.seen.pending}"
        assert not self.seen.unique
        self._reap()
        # A lost group forgets its consumers, and with them that a dead one had a send number (see README).
        assert self.regrouped or self.seen.sends.keys() <= {cleaner.consumer}, (
            f"send numbers of dead consumers: {self.seen.sends}"
        )
        assert self.broker.consumers(QUEUE).keys() <= {cleaner.consumer, SHELF, PARKED}
