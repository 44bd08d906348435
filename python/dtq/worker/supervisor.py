"""The supervisor: starts, watches and replaces children, enforces limits, stops in good order. Waits for no Redis.

It imports no user code and runs no handler, so nothing a task does can keep it from its work.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import GroupLost
from dtq.settings import Settings
from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.exits import CLEAN, NO_CHILDREN, RELEASED
from dtq.worker.journal import LOGGER
from dtq.worker.lease import Lease
from dtq.worker.limits import Limits
from dtq.worker.pool import START_S, ChildProcess, Death, bury
from dtq.worker.processes import OutOfMemoryCounter, child_pids, wait_status
from dtq.worker.scheduler import BurstWatch, Leadership, Reaper, Scheduler
from dtq.worker.steward import Steward
from dtq.worker.template_process import TemplateProcess

_BUSY_TICK_S = 0.02
_IDLE_TICK_S = 0.05
_START_FAILURES = 10
"""So many children in a row that never became ready end the worker."""
_FORCED_GRACE_S = 1.0
_LAST_WORDS_S = 5.0


class Signals:
    """Turns SIGTERM, SIGINT and SIGCHLD into something a selector can wait for."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        theirs.setblocking(False)
        self._theirs = theirs
        self.stops: list[int] = []
        self.child_ended = False
        self._before: dict[int, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            self._before[number] = signal.signal(number, self._note)
        self._wakeup_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            self.child_ended = True
        else:
            self.stops.append(number)

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        """Wake the selector; safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"\0")

    def clear(self) -> None:
        """Take what woke the selector."""
        with contextlib.suppress(BlockingIOError):
            while self._ours.recv(4096):
                pass

    def restore(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ours.close()
        self._theirs.close()


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
        self._broker = broker
        self._settings = settings
        self._queues = queues
        self._new_worker_id = new_worker_id
        self._facts = facts
        self._burst = burst
        self._worker_id = new_worker_id()
        self._steward = Steward(broker, self._note_declared_dead)
        self._leadership = Leadership(broker, self._worker_id)
        self._limits = Limits(slots, settings, self._hand_back)
        self._out_of_memory = OutOfMemoryCounter()
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, ChildProcess] = {}
        self._handing_over: set[str] = set()
        self._wanted: dict[int, float] = {}
        self._incarnation = 0
        self._start_failures = 0
        self._declared_dead = False
        self._empty = False
        self._draining = False
        self._forced_by = 0
        self._drain_until = 0.0
        self._kill_at = 0.0
        self._released = False
        self._gave_up = ""
        self._template_at = 0.0
        self._foreign = set(child_pids())

    # --- life ----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until stopped, until the burst is done, or until no child can be started."""
        self._lease().renew()
        self._steward.start()
        self._selector.register(self._signals, selectors.EVENT_READ, None)
        assert self._template is not None
        self._watch_template(self._template)
        self._configure(self._template)
        self._take_duties()
        self._wanted = dict.fromkeys(range(self._settings.children), 0.0)
        LOGGER.info("worker %s: %d children on %s", self._worker_id, self._settings.children, ", ".join(self._queues))
        busy = True
        while not self._finished():
            self._wait(_BUSY_TICK_S if busy else _IDLE_TICK_S)
            busy = self._tick(SYSTEM.monotonic())
        return self._stop()

    def _finished(self) -> bool:
        return (self._draining or bool(self._gave_up)) and not self._children

    def _stop(self) -> int:
        """Leave: last hand-overs, then the lease."""
        worker_id = self._worker_id

        def leave() -> None:
            self._leadership.give_up()
            self._broker.leave(worker_id)

        self._steward.take_duties()
        self._steward.submit("leave", leave)
        if not self._steward.stop(_LAST_WORDS_S):
            LOGGER.warning("worker %s: Redis did not answer at the end; its lease will run out by itself", worker_id)
        if self._template is not None:
            self._end_template()
        self._selector.close()
        if self._gave_up:
            LOGGER.error("no child can be started: %s", self._gave_up)
            return NO_CHILDREN
        LOGGER.info("worker %s has left", worker_id)
        if self._forced_by:
            return 128 + self._forced_by
        return RELEASED if self._released else CLEAN

    def _take_duties(self) -> None:
        self._leadership = Leadership(self._broker, self._worker_id)
        duties: list[Any] = [
            self._lease(),
            self._leadership,
            Scheduler(self._broker, self._leadership),
            Reaper(self._broker, self._settings, self._leadership, self._steward.steady_for),
        ]
        if self._burst:
            duties.append(BurstWatch(self._broker, self._queues, self._note_empty))
        self._steward.take_duties(*duties)

    def _lease(self) -> Lease:
        return Lease(
            self._broker, self._settings, self._worker_id, self._facts, self._slots, self._queues, self._live_consumers
        )

    def _live_consumers(self) -> set[str]:
        """Called by the steward's thread. A name is never used twice, so a stale view only delays a sweep."""
        return {child.consumer for child in list(self._children.values())} | set(self._handing_over)

    # --- events --------------------------------------------------------------------------------------------------

    def _note_declared_dead(self) -> None:
        self._declared_dead = True
        self._signals.ring()

    def _note_empty(self) -> None:
        self._empty = True
        self._signals.ring()

    def _wait(self, seconds: float) -> None:
        due = [at for at in self._wanted.values()] if self._template is not None and self._template.ready else []
        if due:
            seconds = max(0.0, min(seconds, min(due) - SYSTEM.monotonic()))
        for key, _ in self._selector.select(seconds):
            handle: Callable[[], None] | None = key.data
            if handle is None:
                self._signals.clear()
            elif key.fileobj in self._selector.get_map():  # an earlier event may have unregistered it
                handle()

    def _tick(self, now: float) -> bool:
        """Everything that goes by time or by flags; True while there is something to watch closely."""
        while self._signals.stops:
            self._stop_asked(self._signals.stops.pop(0), now)
        if self._signals.child_ended:
            self._signals.child_ended = False
            self._reap_orphans()
        if self._declared_dead:
            self._start_over()
        if self._empty and not self._draining:
            self._drain("nothing is left to do", now)
        busy = False
        for child in list(self._children.values()):
            if child.ready:
                busy |= self._limits.watch(child, now)
            elif now - child.asked_at > START_S:
                child.kill("start took too long")
                if not child.pid:
                    self._start_failed(child, f"it said nothing for {START_S:g} s")
        if self._draining:
            self._press(now)
            return True
        if self._template is None and now >= self._template_at:
            self._replace_template()
        self._fork_wanted(now)
        return busy or bool(self._wanted)

    # --- stopping ------------------------------------------------------------------------------------------------

    def _stop_asked(self, number: int, now: float) -> None:
        name = signal.Signals(number).name
        if not self._draining:
            grace = self._settings.shutdown_grace_s
            LOGGER.info("%s: no new tasks; running ones get %g s. Send it again to stop now", name, grace)
            self._drain(name, now)
        elif not self._forced_by:
            LOGGER.warning("%s again: stopping now, running tasks are released", name)
            self._forced_by = number
            self._drain_until = now

    def _drain(self, why: str, now: float) -> None:
        self._draining = True
        self._drain_until = now + self._settings.shutdown_grace_s
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

    def _press(self, now: float) -> None:
        """When the grace is over: interrupt what runs, then kill."""
        if now < self._drain_until:
            return
        if not self._kill_at:
            grace = self._settings.kill_grace_s
            self._kill_at = now + (min(grace, _FORCED_GRACE_S) if self._forced_by else grace)
            for child in self._children.values():
                for row in self._slots.rows(child.number):
                    self._released = True
                    child.interrupted[row.seq] = self._kill_at + 1.0
                    child.interrupt(row, "released", "the worker shuts down")
        elif self._forced_by:
            self._kill_at = min(self._kill_at, now + _FORCED_GRACE_S)
        if now >= self._kill_at:
            for child in self._children.values():
                if not child.killed_for:
                    LOGGER.warning("child %s did not end in time; killing it, its tasks are released", child.consumer)
                    child.kill("released", [])

    # --- children ------------------------------------------------------------------------------------------------

    def _fork_wanted(self, now: float) -> None:
        template = self._template
        if template is None or not template.ready:
            return
        for number in [number for number, at in self._wanted.items() if now >= at]:
            del self._wanted[number]
            self._incarnation += 1
            ours, theirs = Channel.pair()
            child = ChildProcess(
                number, self._incarnation, f"{self._worker_id}.{number}.{self._incarnation}", ours
            )
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
            LOGGER.debug("child %s is ready (pid %d)", child.consumer, child.pid)
            if self._draining:
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
        del self._children[child.number]
        if child.ready:
            self._hand_over(death)
            if death.clean:
                LOGGER.debug("child %s has left: %s", child.consumer, child.bye)
            else:
                LOGGER.warning(
                    "child %s (pid %d) died: %s; %d running task(s) go elsewhere", child.consumer, child.pid,
                    death.cause, len(death.executing),
                )
            self._replace(child.number, 0.0)
        else:
            self._count_start_failure(child, child.failed or death.cause)

    def _replace(self, number: int, delay_s: float) -> None:
        if not self._draining and not self._gave_up and number < self._settings.children:
            self._wanted[number] = SYSTEM.monotonic() + delay_s

    def _start_failed(self, child: ChildProcess, why: str) -> None:
        self._forget(child)
        self._count_start_failure(child, why)

    def _count_start_failure(self, child: ChildProcess, why: str) -> None:
        if self._draining:
            return
        self._start_failures += 1
        delay_s = min(5.0, 0.1 * 2.0 ** (self._start_failures - 1))
        LOGGER.warning("child %s could not start: %s; next try in %.1f s", child.consumer, why, delay_s)
        if self._start_failures >= _START_FAILURES and not any(other.ready for other in self._children.values()):
            self._gave_up = why
            self._drain("no child can be started", SYSTEM.monotonic())
            return
        self._replace(child.number, delay_s)

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
        starting = any(not child.pid for child in self._children.values())
        for pid in child_pids():
            # While a child has yet to say hello its pid is unknown: its end must not be taken from it.
            if pid not in known and not starting:
                wait_status(pid)

    # --- what Redis has to know ----------------------------------------------------------------------------------

    def _hand_over(self, death: Death) -> None:
        consumer = death.child.consumer
        self._handing_over.add(consumer)

        def hand_over() -> None:
            for queue in self._queues:
                self._mending(queue, lambda queue=queue: self._broker.hand_over(
                    queue, consumer, death.watermark, death.executing, death.cause, ended=True
                ))
            self._handing_over.discard(consumer)

        self._steward.submit("hand-over", hand_over)

    def _hand_back(self, child: ChildProcess, start: int, end: int) -> None:
        consumer = child.consumer

        def hand_back() -> None:
            for queue in self._queues:
                self._mending(queue, lambda queue=queue: self._broker.hand_back(queue, consumer, start, end))

        self._steward.submit("hand-back", hand_back)

    def _mending(self, queue: str, work: Callable[[], object]) -> None:
        try:
            work()
        except GroupLost:
            self._broker.prepare_queue(queue)
            work()

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
        self._worker_id = self._new_worker_id()
        if self._template is not None and self._template.ready:
            self._configure(self._template)
        self._take_duties()
        LOGGER.info("worker %s starts in its place", self._worker_id)
        if not self._draining:
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
        with contextlib.suppress(ChannelClosed):
            template.channel.send({
                "say": "configure", "worker_id": self._worker_id, "queues": self._queues, "settings": settings,
                "children": self._slots.children, "places": self._slots.places,
            })
            template.ready = True

    def _template_died(self) -> None:
        """Children that live go on; those it was asked for are asked for again."""
        cause = self._end_template()
        if self._draining:
            return
        LOGGER.warning("the template died: %s; starting another one", cause)
        self._template_at = SYSTEM.monotonic() + (0.0 if self._start_failures == 0 else 1.0)
        self._start_failures += 1  # set back by the next child that becomes ready
        for child in [child for child in self._children.values() if not child.pid]:
            self._forget(child)
            self._wanted[child.number] = 0.0
        if self._start_failures >= _START_FAILURES and not any(child.ready for child in self._children.values()):
            self._gave_up = f"the template died again and again: {cause}"
            self._drain("no child can be started", SYSTEM.monotonic())

    def _end_template(self) -> str:
        template, self._template = self._template, None
        assert template is not None
        for watched in (template.channel, template.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(watched)
        return template.end()

    def _replace_template(self) -> None:
        self._template = self._start_template()
        self._watch_template(self._template)
