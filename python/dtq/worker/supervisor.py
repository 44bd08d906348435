"""The supervisor: starts, watches and replaces children, enforces limits, stops in good order. Waits for no Redis.

It imports no user code and runs no handler, so nothing a task does can keep it from its work.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable
from typing import Any

from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import WorkerDeclaredDead
from dtq.settings import Settings
from dtq.worker.canceller import CancelInbox
from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.drain import Drain
from dtq.worker.errands import Errands
from dtq.worker.exits import CLEAN, NO_CHILDREN, RELEASED
from dtq.worker.facts import Facts
from dtq.worker.journal import LOGGER
from dtq.worker.limits import Limits
from dtq.worker.pool import START_S, ChildProcess, bury
from dtq.worker.processes import OutOfMemoryCounter, child_pids, reap_orphans
from dtq.worker.signals import Signals
from dtq.worker.template_process import TemplateProcess

_BUSY_TICK_S = 0.02
_IDLE_TICK_S = 0.05
_START_FAILURES = 10
"""So many children in a row that never became ready end the worker."""
_QUICK_DEATH_S = 1.0
_QUICK_DEATHS = 10
"""So many children may die within a second of their start, one after the other, before the next one has to wait."""
_LAST_WORDS_S = 5.0


class Supervisor:
    """One worker. Everything it needs is handed in ready; `run` returns the exit code."""

    def __init__(
        self,
        signals: Signals,
        template: TemplateProcess,
        start_template: Callable[[], TemplateProcess],
        slots: Slots,
        broker: Broker,
        settings: Settings,
        queues: list[str],
        new_worker_id: Callable[[], str],
        facts: dict[str, Any],
        burst: bool,
    ) -> None:
        self._signals = signals
        self._template: TemplateProcess | None = template
        self._start_template = start_template
        self._slots = slots
        self._settings = settings
        self._queues = queues
        self._new_worker_id = new_worker_id
        self._worker_id = new_worker_id()
        self._cancels = CancelInbox(signals.ring)
        self._facts = Facts(facts, lambda: list(self._children.values()), lambda: self._drain.active)
        self._errands = Errands(
            broker,
            settings,
            queues,
            slots,
            self._facts.tell,
            self._live_consumers,
            self._cancels,
            self._note_declared_dead,
            self._note_empty if burst else None,
        )
        self._limits = Limits(slots, settings, self._errands.hand_back)
        self._out_of_memory = OutOfMemoryCounter()
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, ChildProcess] = {}
        self._wanted: dict[int, float] = {}
        self._incarnation = 0
        self._start_failures = 0
        self._quick_deaths = 0
        self._declared_dead = False
        self._empty = False
        self._drain = Drain(settings, slots)
        self._gave_up = ""
        self._template_at = 0.0
        self._foreign = set(child_pids())

    # --- life ----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until stopped, until the burst is done, or until no child can be started."""
        self._take_first_lease()
        self._selector.register(self._signals, selectors.EVENT_READ, None)
        if self._template is not None:
            self._watch_template(self._template)
            self._configure(self._template)
        self._wanted = dict.fromkeys(range(self._settings.children), 0.0)
        LOGGER.info(
            "worker %s: %d children on %s; its tasks go elsewhere %g s after it was last heard of (lease_s)",
            self._worker_id,
            self._settings.children,
            ", ".join(self._queues),
            self._settings.lease_s,
        )
        busy = True
        while not self._finished():
            self._wait(_BUSY_TICK_S if busy else _IDLE_TICK_S)
            busy = self._tick(SYSTEM.monotonic())
        return self._stop()

    def _take_first_lease(self) -> None:
        """Begin to serve. A worker that stood still between its first lease and the answer may be dead by then."""
        while True:
            try:
                return self._errands.begin(self._worker_id)
            except WorkerDeclaredDead as error:
                LOGGER.warning("%s; it starts under another id", error)
                self._worker_id = self._new_worker_id()

    def _finished(self) -> bool:
        return (self._drain.active or bool(self._gave_up)) and not self._children

    def _stop(self) -> int:
        """Leave: last hand-overs, then the lease."""
        told = self._errands.leave(_LAST_WORDS_S)
        if not told:
            LOGGER.warning("Redis did not answer at the end; the lease of %s runs out by itself", self._worker_id)
        self._end_template()
        self._selector.close()
        if self._gave_up:
            LOGGER.error("no child can be started: %s", self._gave_up)
            return NO_CHILDREN
        LOGGER.info("worker %s has left", self._worker_id)
        if self._drain.forced_by:
            return 128 + self._drain.forced_by
        return CLEAN if told and not self._drain.released else RELEASED

    def _live_consumers(self) -> set[str]:
        """Called by the steward's thread."""
        return {child.consumer for child in list(self._children.values())}

    # --- events --------------------------------------------------------------------------------------------------

    def _note_declared_dead(self) -> None:
        self._declared_dead = True
        self._signals.ring()

    def _note_empty(self) -> None:
        self._empty = True
        self._signals.ring()

    def _wait(self, seconds: float) -> None:
        due = list(self._wanted.values()) if self._template is not None and self._template.ready else []
        if due:
            seconds = max(0.0, min(seconds, min(due) - SYSTEM.monotonic()))
        for key, _ in self._selector.select(seconds):
            handle: Callable[[], None] | None = key.data
            if handle is None:
                self._signals.clear()
            elif self._selector.get_map().get(key.fd) is key:  # an earlier event may have unregistered it
                handle()

    def _tick(self, now: float) -> bool:
        """Everything that goes by time or by flags; True while there is something to watch closely."""
        while self._signals.stops:
            self._stop_asked(self._signals.stops.pop(0), now)
        # While a child has yet to say hello its pid is unknown, and its end must not be taken: orphans wait for that.
        if self._signals.child_ended and all(child.pid for child in self._children.values()):
            self._signals.child_ended = False
            self._reap_orphans()
        if self._declared_dead:
            self._start_over()
        if self._empty and not self._drain.active:
            self._begin_drain("nothing is left to do", now)
        self._cancels.deliver(self._children.values(), now)
        busy = False
        for child in list(self._children.values()):
            if child.ready:
                busy |= self._limits.watch(child, now)
            elif now - child.asked_at > START_S:
                child.kill("start took too long")
                if not child.pid:
                    self._start_failed(child, f"it said nothing for {START_S:g} s")
        if self._drain.active:
            self._drain.press(list(self._children.values()), now)
            return True
        if self._template is None and now >= self._template_at:
            self._replace_template()
        self._fork_wanted(now)
        return busy or bool(self._wanted)

    # --- stopping ------------------------------------------------------------------------------------------------

    def _stop_asked(self, number: int, now: float) -> None:
        name = signal.Signals(number).name
        if not self._drain.active:
            grace = self._settings.shutdown_grace_s
            LOGGER.info("%s: no new tasks; running ones get %g s. Send it again to stop now", name, grace)
            self._begin_drain(name, now)
        elif not self._drain.forced_by:
            LOGGER.warning("%s again: stopping now, running tasks are released", name)
            self._drain.force(number, now)

    def _begin_drain(self, why: str, now: float) -> None:
        self._drain.begin(now)
        self._errands.tell_soon()
        self._wanted.clear()
        for child in list(self._children.values()):
            if child.ready:
                child.leave(f"drain: {why}")
                self._limits.revoke(child)
            else:
                self._give_up_unready(child)

    def _give_up_unready(self, child: ChildProcess) -> None:
        """A child that is not ready holds nothing: closing its channel ends it."""
        if child.pid:
            child.kill("drain")
        else:
            self._forget(child)

    # --- children ------------------------------------------------------------------------------------------------

    def _fork_wanted(self, now: float) -> None:
        template = self._template
        if template is None or not template.ready:
            return
        for number in [number for number, at in self._wanted.items() if now >= at]:
            del self._wanted[number]
            self._incarnation += 1
            ours, theirs = Channel.pair()
            child = ChildProcess(number, self._incarnation, f"{self._worker_id}.{number}.{self._incarnation}", ours)
            try:
                template.channel.send(
                    {"say": "fork", "number": number, "incarnation": child.incarnation}, (theirs.fileno(),)
                )
            except ChannelClosed:  # it is dead; its pidfd tells in a moment
                ours.close()
                self._wanted[number] = now
                return
            finally:
                theirs.close()
            self._children[number] = child
            self._selector.register(ours, selectors.EVENT_READ, lambda child=child: self._hear(child))

    def _hear(self, child: ChildProcess) -> None:
        try:
            while (message := child.hear()) is not None:
                self._heard(child, message)
        except ChannelClosed:
            if child.pid:
                self._selector.unregister(child.channel)  # its death follows through the pidfd
            else:
                self._start_failed(child, "it ended before it could say hello")

    def _heard(self, child: ChildProcess, message: Message) -> None:
        say = message["say"]
        if say == "hello":
            child.pid = message["pid"]
            try:
                child.pidfd = os.pidfd_open(child.pid)
            except ProcessLookupError:
                child.pid = 0
                raise ChannelClosed("it is dead already") from None
            self._slots.reset(child.number)
            self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._died(child))
            child.answer({"say": "go"})
        elif say == "ready":
            child.ready = True
            self._start_failures = 0
            self._errands.tell_soon()
            LOGGER.debug("child %s is ready (pid %d)", child.consumer, child.pid)
            if self._drain.active:
                child.leave("drain")
        elif say == "failed":
            child.failed = message["why"]
        elif say == "bye":
            child.bye = message["why"]

    def _died(self, child: ChildProcess) -> None:
        """A child has ended: hand over what it held, and replace it."""
        with contextlib.suppress(ChannelClosed):
            while (message := child.hear()) is not None:
                self._heard(child, message)
        self._unregister(child)
        death = bury(child, self._slots, self._out_of_memory)
        if child.ready:
            self._errands.hand_over(death)  # before it is forgotten: a sweep must not take it for a stray
        del self._children[child.number]
        if child.ready:
            if death.clean:
                LOGGER.debug("child %s has left: %s", child.consumer, child.bye)
            else:
                LOGGER.warning(
                    "child %s (pid %d) died: %s; %d running task(s) go elsewhere",
                    child.consumer,
                    child.pid,
                    death.cause,
                    len(death.executing),
                )
            why = child.bye if death.clean and child.bye else death.cause
            self._replace(child.number, self._pause_after(child, death.clean), why)
        else:
            self._count_start_failure(child, child.failed or death.cause)

    def _pause_after(self, child: ChildProcess, clean: bool) -> float:
        """Seconds until a child that was ready is replaced: none, unless such deaths follow each other quickly."""
        if clean or SYSTEM.monotonic() - child.asked_at > _QUICK_DEATH_S:
            self._quick_deaths = 0
            return 0.0
        self._quick_deaths += 1
        return (
            min(1.0, 0.05 * 2.0 ** (self._quick_deaths - _QUICK_DEATHS)) if self._quick_deaths > _QUICK_DEATHS else 0.0
        )

    def _replace(self, number: int, delay_s: float, why: str) -> None:
        if not self._drain.active and not self._gave_up and number < self._settings.children:
            self._wanted[number] = SYSTEM.monotonic() + delay_s
            self._facts.note_restart(number, why)

    def _start_failed(self, child: ChildProcess, why: str) -> None:
        self._forget(child)
        self._count_start_failure(child, why)

    def _count_start_failure(self, child: ChildProcess, why: str) -> None:
        if self._drain.active:
            return
        self._start_failures += 1
        delay_s = min(5.0, 0.1 * 2.0 ** (self._start_failures - 1))
        LOGGER.warning("child %s could not start: %s; next try in %.1f s", child.consumer, why, delay_s)
        if self._start_failures >= _START_FAILURES and not any(other.ready for other in self._children.values()):
            self._gave_up = why
            self._begin_drain("no child can be started", SYSTEM.monotonic())
            return
        self._replace(child.number, delay_s, why)

    def _forget(self, child: ChildProcess) -> None:
        self._unregister(child)
        child.close()
        del self._children[child.number]

    def _unregister(self, child: ChildProcess) -> None:
        for watched in (child.channel, child.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(watched)

    def _reap_orphans(self) -> None:
        """Zombies of processes that tasks have started and left behind: nobody else can reap them."""
        known = {child.pid for child in self._children.values()} | self._foreign
        if self._template is not None:
            known.add(self._template.pid)
        reap_orphans(known)

    # --- a new life ----------------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        """The id is dead, others take over what it held: end all children, and begin again under a new id."""
        self._declared_dead = False
        self._slots.set_safe_until(0)
        for child in list(self._children.values()):
            if not child.pid:
                self._forget(child)
                continue
            child.kill("declared dead")
            os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
            self._unregister(child)
            bury(child, self._slots, self._out_of_memory)
            del self._children[child.number]
            self._facts.note_restart(child.number, "declared dead")
        self._worker_id = self._new_worker_id()
        if self._template is not None and self._template.ready:
            self._configure(self._template)
        self._errands.serve(self._worker_id)
        LOGGER.info("worker %s starts in its place", self._worker_id)
        if not self._drain.active:
            self._wanted = dict.fromkeys(range(self._settings.children), 0.0)

    # --- the template --------------------------------------------------------------------------------------------

    def _watch_template(self, template: TemplateProcess) -> None:
        self._selector.register(template.channel, selectors.EVENT_READ, lambda: self._hear_template(template))
        self._selector.register(template.pidfd, selectors.EVENT_READ, self._template_died)

    def _hear_template(self, template: TemplateProcess) -> None:
        message = template.receive()
        if message is None:
            return
        if message["say"] == "manifest":
            self._configure(template)
        elif message["say"] == "failed":
            LOGGER.error("the app cannot be imported any more: %s", message["why"])

    def _configure(self, template: TemplateProcess) -> None:
        settings = {name: getattr(self._settings, name) for name in self._settings.__dataclass_fields__}
        template.configure(
            {
                "say": "configure",
                "worker_id": self._worker_id,
                "queues": self._queues,
                "settings": settings,
                "children": self._slots.children,
                "places": self._slots.places,
            }
        )

    def _template_died(self) -> None:
        """Children that live go on; those it was asked for are asked for again."""
        cause = self._end_template()
        if self._drain.active:
            return
        LOGGER.warning("the template died: %s; starting another one", cause)
        self._template_at = SYSTEM.monotonic() + (0.0 if self._start_failures == 0 else 1.0)
        self._start_failures += 1  # set back by the next child that becomes ready
        for child in [child for child in self._children.values() if not child.pid]:
            self._forget(child)
            self._wanted[child.number] = 0.0
        if self._start_failures >= _START_FAILURES and not any(child.ready for child in self._children.values()):
            self._gave_up = f"the template died again and again: {cause}"
            self._begin_drain("no child can be started", SYSTEM.monotonic())

    def _end_template(self) -> str:
        template, self._template = self._template, None
        if template is None:
            return ""
        for watched in (template.channel, template.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(watched)
        return template.end()

    def _replace_template(self) -> None:
        self._template = self._start_template()
        self._watch_template(self._template)
