"""The loop of one child: take a turn, run what it brought, settle it with the next one, wait when there is nothing.

Sync handlers run here, in the main thread, so that a signal can interrupt them; async handlers in the loop of
`AsyncRunner`. The supervisor watches through the slots and speaks through the channel, followed by SIGUSR1.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from types import FrameType

import orjson

from dtq._core import Claim, Slots, SyncLoop
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable, GroupLost, TaskCancelled
from dtq.executor import INTERRUPTION_KINDS, Executor
from dtq.models import Outcome
from dtq.settings import Settings
from dtq.worker.async_runner import AsyncRunner
from dtq.worker.channel import Channel, ChannelClosed, Unnested
from dtq.worker.journal import LOGGER
from dtq.worker.observing import Observer
from dtq.worker.pace import Pace
from dtq.worker.processes import Scheduling
from dtq.worker.rounds import Rounds
from dtq.worker.turns import Adopted, Identity, Turns
from dtq.worker.waiter import LONGEST_S, PAUSED_MS, Waiter

_AHEAD_NS = 50_000_000
"""Before a handler that takes less than this, the answer to that settle is not waited for: it comes meanwhile."""
_STEP_ASIDE_S = 0.1
"""How long a child reads nothing, to look again, while a task waits to be alone (protocol 19)."""

_ENOUGH = "max_tasks_per_child reached"


class Child:
    """One consumer. `run` returns why it left."""

    def __init__(
        self,
        identity: Identity,
        queues: Sequence[str],
        executor: Executor,
        settings: Settings,
        slots: Slots,
        channel: Channel,
        broker: Broker,
        scheduling: Scheduling,
    ) -> None:
        self._number = identity.number
        self._queues = tuple(queues)
        self._settings = settings
        self._slots = slots
        self._channel = channel
        self._executor = executor
        self._turns = Turns(broker, self._executor, identity, queues, settings.result_max_bytes)
        self._observer = Observer(broker, self._turns, self._queues)
        self._rounds = Rounds(broker, identity.consumer, self._queues)
        self._waiter = Waiter(broker, identity.consumer, channel, scheduling)
        self._hear_signalled = Unnested(self._hear)
        self._runner = AsyncRunner(self._executor, slots, identity.number, settings.concurrency, self._async_ended)
        kinds = {route.is_async for route in self._executor.routes.values()}
        self._has_async, self._mixed = True in kinds, len(kinds) == 2
        self._pace = Pace(settings.claim_budget_s, settings.claim_max)
        self._batches: deque[tuple[int, deque[Claim]]] = deque()
        self._adopts: dict[int, list[Adopted]] = {}
        self._alone = False
        """A claim in hand or in flight must be alone (protocol 19): none begins beside it, and no turn claims."""
        self._leaving: str | None = None
        self._clock_offset_ns = 0
        self._backoff_s = 0.0
        self._interruption: str | None = None
        self._timeout_ns = round(settings.timeout_s * 1e9)
        self._last_task = settings.max_tasks_per_child or sys.maxsize
        self._loop = SyncLoop(
            slots=slots,
            child=identity.number,
            average=self._pace.average,
            executor=executor,
            routes=executor.routes,
            loads=orjson.loads,
            boottime_ns=SYSTEM.boottime_ns,
            collect=self._collect_beside if self._mixed else self._turns.collect,
            collects=not self._mixed,  # else another thread takes part, and the lock is needed
            inlines=executor.inlines,
            timeout_ns=self._timeout_ns,
            claim_max=settings.claim_max,
            result_max_bytes=settings.result_max_bytes,
        )

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Work until the supervisor says otherwise or a limit is reached, and everything begun is settled."""
        signal.signal(signal.SIGUSR1, self._on_signal)
        while True:
            try:
                if self._step():
                    self._backoff_s = 0.0
                    continue
                return self._leaving or ""
            except BrokerUnavailable as error:
                self._forget_unbegun()
                self._back_off(error)

    def _step(self) -> bool:
        """One round; False when there is nothing left to do before leaving."""
        self._hear()
        self._collect()
        if self._leaving is not None:
            return self._leave()
        if self._batches:
            self._work()
            self._observer.tell()
            if not self._batches or self._leaving is not None or SYSTEM.boottime_ns() < self._slots.safe_until():
                return True
            self._settle()
            self._waiter.pause(0.05)  # past the lease: start nothing until it is renewed
        elif SYSTEM.boottime_ns() >= self._slots.safe_until():
            self._settle()
            self._waiter.pause(0.05)
        elif self._runner.in_flight and (self._alone or not self._runner.free_places):
            self._settle()
            self._observer.tell()
            self._waiter.pause(self._observer.wait_s(1.0))
        elif self._waiter.reading and not self._adopts:
            # A read stands at the server: what it gets must not be claimed from under it.
            self._settle()
            self._wait()
        elif not self._claim():
            self._wait()
            if self._batches and self._leaving is None:
                self._work()
        return True

    def _leave_for(self, why: str) -> None:
        """Begin nothing more; the first reason counts."""
        self._leaving = self._leaving or why
        self._loop.leaving = True

    def _leave(self) -> bool:
        """Settle what has ended and wait for what has begun. Unbegun claims are handed back by the supervisor."""
        self._batches.clear()
        if self._waiter.reading or self._adopts:
            self._waiter.abandon()
            self._adopts.clear()
            self._turns.lost()
        self._settle()
        if not (self._runner.in_flight or self._turns.waiting):
            self._observer.tell(last=True)
            return False
        if self._turns.unsure:
            self._show_unbegun()
        self._waiter.pause(1.0)
        return True

    def _show_unbegun(self) -> None:
        """Put what the abandoned read got, and other claims, into the slot: the supervisor hands it back."""
        self._slots.revoke(self._number)
        with self._turns.lock:
            for index in range(len(self._queues)):
                claims = self._turns.take(index, 0, held=partial(self._held, index), recover=True)
                if (
                    claims is None and self._batches
                ):  # what follows would not fit the open window: the hand-over finds it
                    break
                self._offer(index, claims)
        self._batches.clear()

    def _want(self) -> int:
        """How many tasks the next turn claims."""
        room = max(1, self._last_task - self._loop.done)
        if self._has_async:
            room = min(room, len(self._runner.free_places))
        return self._pace.want(room)

    def _claim(self) -> bool:
        """Turns for queues that may bring something, most important first, until one does; what a read got tells."""
        adopts, self._adopts = self._adopts, {}
        self._alone, yields = False, False
        want = self._want()
        with self._turns.lock:
            for index in sorted(adopts) if adopts else self._rounds.turns(self._turns.needed()):
                mine = adopts.get(index, ())
                beside = bool(self._runner.in_flight or self._batches)
                under_way, held = len(self._runner.in_flight), partial(self._held, index)
                claims = self._turns.take(index, want, adopts=mine, held=held, looks=under_way, beside=beside)
                yields = yields or self._turns.yields[index]
                if claims is None and self._batches:
                    break  # what follows would not fit the open window; recovery finds what was read
                self._offer(index, claims)
                if not adopts and (self._batches or yields):
                    break  # here, before the rounds look at what is less important
            if not self._turns.waiting:
                self._loop.oldest_ns = 0
        return bool(self._batches)

    def _held(self, index: int) -> list[int]:
        """Numbers of this queue's claims that are executing in the loop or about to begin."""
        held = [attempt.claim.seq for attempt in self._runner.in_flight.values() if attempt.index == index]
        return held + [claim.seq for batch_index, batch in self._batches if batch_index == index for claim in batch]

    def _offer(self, index: int, claims: Sequence[Claim] | None) -> None:
        if not claims:
            return
        if not self._slots.offer(self._number, claims[0].seq, len(claims)):
            raise RuntimeError(f"claim numbers {claims[0].seq}+{len(claims)} do not fit the slot; this is a bug in dtq")
        # Redis' clock is the one that counts; the moment of the claim ties ours to it.
        self._clock_offset_ns = claims[0].started_ms * 1_000_000 - SYSTEM.boottime_ns()
        self._pace.claimed(len(claims), self._turns.claimed_bytes)
        self._batches.append((index, deque(claims)))
        # Without async handlers nothing runs beside anything.
        self._alone = self._alone or (self._has_async and any(claim.solo for claim in claims))

    def _wait(self) -> None:
        """Block on the streams until something comes.

        An adoption stands behind the read and takes over what it got in the same round trip; with several queues, or
        async handlers under way, the next turn does. A paused queue is left out: a read would bring one task after the
        other, each only to be put on the shelf. Turns look every now and then whether it is resumed (protocol 15).
        """
        self._observer.tell()
        self._pace.emptied()
        streams, block_ms, adoption = self._rounds.nothing, 0, None
        idle = not (self._runner.in_flight or self._turns.waiting)
        if not self._waiter.reading:
            if any(self._turns.steps_aside):
                self._waiter.pause(_STEP_ASIDE_S)
                return
            streams, block_ms = self._rounds.streams(self._turns.paused)
            if not streams:
                self._waiter.pause(PAUSED_MS / 1000)
                return
            if any(self._turns.passes):
                block_ms = min(block_ms, PAUSED_MS)
            if len(self._queues) == 1 and idle:
                adoption = self._turns.adoption()
        try:
            got = self._waiter.read(streams, block_ms, adoption, self._observer.wait_s(LONGEST_S), idle=idle)
        except GroupLost:
            self._rounds.forget()
            self._turns.mend_groups()
            return
        except BrokerUnavailable as error:
            self._turns.lost()
            if error.damaged and self._turns.leave_out_damaged(error):
                return
            raise
        if got is None:
            return
        if got.claims:
            self._turns.adopted(got.claims)
            self._offer(0, got.claims)
            return
        adopts = self._rounds.hear(got.entries)
        if not got.adopting:
            self._adopts = adopts
        elif got.entries:
            self._turns.lost()

    # --- running -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Run the first batch until it is used up, revoked, or something more urgent stands."""
        index, claims = self._batches[0]
        loop, queue = self._loop, self._queues[index]
        while claims:
            if self._leaving is not None or (self._alone and not self._may_begin(takes_place=False)):
                return
            most = 1 if self._alone else self._last_task - loop.done
            # Both lists are asked for each time: a settle makes new notes.
            outcomes, noted = self._turns.outcomes[index], self._turns.noted(index)
            end = loop.run(claims, index, queue, outcomes, noted, self._clock_offset_ns, most)
            if self._interruption is not None or loop.done >= self._last_task:
                self._leave_for(self._interruption or _ENOUGH)
            if end == "settle":
                route = self._executor.routes.get(claims[0].task_type)
                self._settle(ahead=index if route is not None and 0 < route.recent_ns < _AHEAD_NS else None)
            elif end == "elsewhere":
                if not self._begin_elsewhere(index, claims[0]):
                    return
                claims.popleft()
            elif end == "revoked":
                self._batches.clear()
                return
            elif end == "stop":
                return
        self._batches.popleft()

    def _begin_elsewhere(self, index: int, claim: Claim) -> bool:
        """Begin a claim that does not run in this thread; False if it may not begin now, or not any more."""
        route = self._executor.routes.get(claim.task_type)
        runs = route is not None and claim.error is None
        if not self._may_begin(takes_place=runs):
            return False
        now = SYSTEM.boottime_ns()
        if now >= self._slots.safe_until():
            return False
        if not self._slots.begin(self._number, claim.seq):
            self._batches.clear()
            return False
        outcome: Outcome | None
        if route is None or not runs:
            outcome = self._executor.refuse(claim)
        else:
            limit = claim.limit_ns(now, self._timeout_ns, self._clock_offset_ns)
            outcome = self._runner.begin(index, claim, route, self._queues[index], now, limit)
            self._pace.average.ran(20_000)
        if outcome is not None:
            with self._turns.lock:
                self._turns.collect(index, claim, outcome, (now + self._clock_offset_ns) // 1_000_000, -1)
            self._loop.oldest_ns = self._loop.oldest_ns or now
            self._loop.done += 1
        return True

    def _may_begin(self, *, takes_place: bool) -> bool:
        """Wait for a free place, or for what must not run beside the next claim; False if that is revoked meanwhile.

        The supervisor hands it back if this takes long.
        """
        while (takes_place and not self._runner.free_places) or (self._alone and self._runner.in_flight):
            self._settle()
            self._waiter.pause(0.02)
            self._hear()
            self._collect()
            if self._leaving is not None or not self._slots.window(self._number):
                self._drop_unbegun()
                return False
        return True

    # --- outcomes ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take over async attempts that have ended."""
        if self._runner.ended:
            with self._turns.lock:
                self._collect_locked()

    def _collect_locked(self) -> None:
        ended = self._runner.ended
        while ended:
            attempt = ended.popleft()
            ended_ms = (attempt.ended_ns + self._clock_offset_ns) // 1_000_000
            self._turns.collect(attempt.index, attempt.claim, attempt.result, ended_ms, attempt.took_ns)
            self._runner.free(attempt)
            self._loop.oldest_ns = self._loop.oldest_ns or attempt.ended_ns
            self._loop.done += 1
        if self._loop.done >= self._last_task:
            self._leave_for(_ENOUGH)

    def _collect_beside(self, index: int, claim: Claim, result: object, ended_ms: int, took_ns: int) -> None:
        """As Turns.collect, where the loop's thread collects as well."""
        with self._turns.lock:
            self._turns.collect(index, claim, result, ended_ms, took_ns)

    def _settle(self, ahead: int | None = None) -> None:
        """Send every collected outcome, claiming nothing. ahead: a queue whose answer is not waited for."""
        with self._turns.lock:
            self._turns.settle() if ahead is None else self._turns.settle_ahead(ahead)
            self._loop.oldest_ns = 0

    def _async_ended(self) -> None:
        """In the loop's thread, after each async attempt: wake the main thread, or settle beside its sync handler."""
        self._waiter.ring()
        if self._mixed and len(self._runner.ended) == 1:
            # Even while no sync handler executes: the next one may begin before the main thread looks here.
            self._runner.call_later(0.01, self._settle_beside)

    def _settle_beside(self) -> None:
        """Settle async outcomes from another thread while a sync handler keeps the main one busy."""
        if not self._loop.executing:
            if self._runner.ended:  # the main thread is about to take them, or to begin a handler
                self._runner.call_later(0.01, self._settle_beside)
            return
        with self._turns.lock:
            self._collect_locked()
            try:
                self._turns.settle()
            except BrokerUnavailable:
                self._runner.call_later(1.0, self._settle_beside)

    def _forget_unbegun(self) -> None:
        """After a lost reply the claims in hand are given up; recovery returns them under new numbers (protocol 2)."""
        self._turns.lost()  # whatever the reply was of
        self._slots.revoke(self._number)
        self._drop_unbegun()
        self._adopts.clear()
        self._waiter.abandon()

    def _drop_unbegun(self) -> None:
        self._batches.clear()
        self._alone = any(attempt.claim.solo for attempt in self._runner.in_flight.values())

    def _back_off(self, error: BrokerUnavailable) -> None:
        if not self._backoff_s:
            LOGGER.warning("Redis is unavailable, outcomes are kept and sent later: %s", error)
        self._backoff_s = min(2.0, max(0.05, self._backoff_s * 2))
        until = SYSTEM.monotonic() + self._backoff_s * random.uniform(0.5, 1.0)
        while (left := until - SYSTEM.monotonic()) > 0:
            self._waiter.pause(left)
            self._hear()

    # --- the supervisor's word -----------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read what the supervisor has sent. Also called by the signal, at any moment of the main thread."""
        try:
            while (message := self._channel.receive()) is not None:
                if message["say"] == "leave":
                    self._leave_for(message["why"])
                elif message["say"] == "interrupt":
                    self._interrupt(message["place"], message["seq"], message["kind"], message["text"])
        except ChannelClosed:
            # The supervisor is gone, or has given this child up: what it holds is handed over, so leave at once.
            os._exit(1)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._waiter.ring()
        self._hear_signalled()

    def _interrupt(self, place: int, seq: int, kind: str, text: str) -> None:
        error = INTERRUPTION_KINDS[kind](text)
        if isinstance(error, TaskCancelled):
            error.by_worker = True
        self._executor.releasing = self._executor.releasing or kind == "released"
        if place:
            self._runner.interrupt(place, seq, error)
        elif self._loop.executing == seq:
            # Once only, and never after the handler has returned: the mark goes before the exception flies.
            self._loop.executing = 0
            self._loop.leaving = True  # what it has left behind ends with this child: no claim begins after it
            self._interruption = f"interrupted ({kind})"
            raise error
