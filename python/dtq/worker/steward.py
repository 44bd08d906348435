"""The supervisor's Redis thread: the lease, hand-overs and hand-backs, and, while it leads, due tasks and dead workers.

The supervisor's main thread never waits for Redis; it submits jobs here. A job is retried, in order, until Redis has
answered. Duties are the regular work; each says when it wants to run next.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable, DtqError, GroupLost, WorkerDeclaredDead
from dtq.worker.journal import LOGGER

Job = Callable[[], object]


class Duty(Protocol):
    """Regular work. `next_at` is in seconds of the steady clock."""

    @property
    def next_at(self) -> float:
        """When to run next."""
        ...

    def run(self) -> None:
        """Do it once; `next_at` has changed then."""
        ...


_TELL_S = 10.0


class Steward(threading.Thread):
    """Runs duties and jobs over one broker.

    on_declared_dead: called, in this thread, when the worker's id turns out to be dead. break_s: a pause so long, of
    Redis or of this process, counts as a break (see steady_for).
    """

    def __init__(self, broker: Broker, on_declared_dead: Callable[[], None], break_s: float) -> None:
        super().__init__(name="dtq-steward", daemon=True)
        self._broker = broker
        self._on_declared_dead = on_declared_dead
        self._duties: tuple[Duty, ...] = ()
        self._jobs: deque[tuple[str, Job]] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._retry_at = 0.0
        self._backoff_s = 0.0
        self._steady_since = SYSTEM.monotonic()
        self._break_ns = round(break_s * 1e9)
        self._seen_ns = SYSTEM.boottime_ns()
        self._tell_at = 0.0

    # --- from the main thread ------------------------------------------------------------------------------------

    def take_duties(self, *duties: Duty) -> None:
        """Set the regular work; replaces what was set before."""
        with self._condition:
            self._duties = duties
            self._condition.notify()

    def submit(self, name: str, job: Job) -> None:
        """Have a job done as soon as possible, and again until it succeeds."""
        with self._condition:
            self._jobs.append((name, job))
            self._condition.notify()

    def wake(self) -> None:
        """Look at the duties' times again."""
        with self._condition:
            self._condition.notify()

    @property
    def idle(self) -> bool:
        """True when every job is done."""
        return not self._jobs

    def stop(self, timeout_s: float) -> bool:
        """Finish the jobs that stand and end; False if Redis did not answer in time."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self.join(timeout_s)
        return not self.is_alive() and self.idle

    # --- the thread ----------------------------------------------------------------------------------------------

    def steady_for(self) -> float:
        """For how many seconds Redis has answered everything without a break.

        While Redis, this process or the whole machine stood still, other workers may have been unable to renew their
        leases, too; they get the time to do so. A duty that asks, in the steward's thread, hears of a stall of its own.
        """
        self._note_break()
        return SYSTEM.monotonic() - self._steady_since

    def run(self) -> None:
        """Serve until stopped."""
        while True:
            with self._condition:
                duties = self._duties
            for duty in duties:
                if SYSTEM.monotonic() >= duty.next_at:
                    self._try(type(duty).__name__.lower(), duty.run)
            self._do_job()
            with self._condition:
                if self._stopping and not self._jobs:
                    return
                wake = min((duty.next_at for duty in self._duties), default=SYSTEM.monotonic() + 1.0)
                if self._jobs:
                    wake = min(wake, self._retry_at)
                elif duties is not self._duties:
                    continue
                if (wait := wake - SYSTEM.monotonic()) > 0:
                    self._condition.wait(wait)

    def _do_job(self) -> None:
        """One at a time, so that many of them do not keep the lease waiting."""
        if not self._jobs or SYSTEM.monotonic() < self._retry_at:
            return
        name, job = self._jobs[0]
        if self._try(name, job):
            self._jobs.popleft()
            self._backoff_s = 0.0
        else:
            self._backoff_s = min(1.0, max(0.02, self._backoff_s * 2))
            self._retry_at = SYSTEM.monotonic() + self._backoff_s * random.uniform(0.5, 1.0)

    def _try(self, name: str, work: Job) -> bool:
        """Do something over Redis; False if it has to be done again."""
        self._note_break()
        steady = self._steady_since
        try:
            work()
            self._note_break()
        except WorkerDeclaredDead as error:
            LOGGER.error("%s; its handlers are stopped, and it starts anew under another id", error)
            self._on_declared_dead()
        except GroupLost:
            return False
        except BrokerUnavailable as error:
            if error.damaged:  # Redis itself is well: the others are not to be thought dead or alive because of it
                if SYSTEM.monotonic() >= self._tell_at:
                    self._tell_at = SYSTEM.monotonic() + _TELL_S
                    LOGGER.error("%s: %s", name, error)
                return False
            self._steady_since = SYSTEM.monotonic()
            if self._steady_since - steady > 1.0:
                LOGGER.warning("%s: Redis is unavailable: %s", name, error)
            self._mend()
            return False
        except Exception:
            LOGGER.exception("%s failed; this is a bug in dtq", name)
        return True

    def _note_break(self) -> None:
        before, self._seen_ns = self._seen_ns, SYSTEM.boottime_ns()
        if self._seen_ns - before > self._break_ns:
            self._steady_since = SYSTEM.monotonic()

    def _mend(self) -> None:
        try:
            self._broker.mend_store()
        except DtqError as error:
            LOGGER.warning("the embedded store cannot be started again: %s", error)
