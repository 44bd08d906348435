"""The producer's side: sends tasks, repeats a chunk whose answer was lost, turns answers into handles or errors."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from dtq import _core
from dtq.clock import SYSTEM, Clock
from dtq.errors import (
    BrokerUnavailable,
    DtqError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    QueueFull,
    StoreError,
    TaskIdConflict,
    UniqueConflict,
    from_core,
)
from dtq.handles import Handle
from dtq.models import TaskStatus
from dtq.options import EnqueueOptions, TaskOptions
from dtq.plan import Plan, make_plan
from dtq.settings import Settings

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from dtq.broker import Answer, Broker
    from dtq.telemetry import Telemetry

CHUNK_TASKS = 500
CHUNK_BYTES = 1024 * 1024
FIRST_WAIT_S = 0.02
"""Pause before a chunk is sent again; it doubles up to LONGEST_WAIT_S."""
LONGEST_WAIT_S = 0.5
SHORTEST_S = 0.001
"""The time-out of a command where the deadline is just passing."""


class Client:
    """Enqueues and looks tasks up. Safe for threads and forks; async calls may come from any loop."""

    def __init__(self, settings: Settings, broker: Callable[[], Broker], clock: Clock = SYSTEM) -> None:
        self.settings = settings
        self.clock = clock
        self._broker = broker
        self._plans: dict[tuple[str, str | None], Plan] = {}
        self._prepared: set[str] = set()
        self.telemetry = _telemetry() if settings.otel else None
        self._closers: dict[AbstractEventLoop, AsyncGenerator[None, None]] = {}

    @property
    def broker(self) -> Broker:
        """The broker, made at the first use."""
        return self._broker()

    async def abroker(self) -> Broker:
        """The same for the running loop, whose connections are closed when it ends."""
        from asyncio import get_running_loop

        loop, broker = get_running_loop(), self._broker()
        if loop not in self._closers:
            self._closers = {known: closer for known, closer in self._closers.items() if not known.is_closed()}
            closer = self._closers[loop] = _close_at_end(broker)
            await anext(closer)
        return broker

    # --- enqueueing ----------------------------------------------------------------------------------------------

    def plan(self, task_type: str, registered: TaskOptions | None, options: EnqueueOptions) -> Plan:
        """The checked plan of an enqueue; the ones that name a queue at most are kept."""
        named: list[object] = [task_type, options.get("queue")]
        texts = all(name is None or isinstance(name, str) for name in named)
        if not texts or not options.keys() <= {"queue"}:  # the checks say what is wrong with what is no text
            return make_plan(task_type, registered, options, self.settings, self.clock.now_ms())
        key = (task_type, options.get("queue"))
        plan = self._plans.get(key) if registered is None else None
        if plan is None:
            plan = make_plan(task_type, registered, options, self.settings, self.clock.now_ms())
            if registered is None:
                if len(self._plans) >= 1000:
                    self._plans.clear()
                self._plans[key] = plan
        return plan

    def enqueue(self, plan: Plan, payload: object) -> Handle[Any]:
        """Sends one task; the errors of spec's table, the enqueue deadline included."""
        if self.telemetry is not None:
            return self._enqueue_traced(self.telemetry, plan, payload)
        return self._enqueue(plan, payload)

    def _enqueue(self, plan: Plan, payload: object) -> Handle[Any]:
        broker, clock = self.broker, self.clock
        front = broker.front_of_single(plan.queue, plan.place) if plan.plain else None
        if front is None or plan.queue not in self._prepared:
            return self._enqueue_whole(plan, payload)
        deadline = clock.monotonic() + self.settings.enqueue_deadline_s
        repeat = False
        try:
            task_id, command = plan.head.pack_task(
                front, clock.now_ms(), os.urandom(10), payload, plan.max_payload_bytes
            )
        except _core.CoreError as error:
            raise from_core(error) from None
        try:
            if broker.enqueue_single(command):
                return Handle(self, task_id, plan.queue, plan.retention_ms)
        except BrokerUnavailable as error:
            if not self._may_repeat(error, FIRST_WAIT_S, deadline):
                raise
            repeat = True
        chunk = _core.Chunk()
        chunk.add(task_id, broker.envelope_of_single(front, command), plan.place)
        return self.settle(plan, task_id, self.send(plan.queue, chunk, deadline=deadline, repeat=repeat)[0])

    def _enqueue_whole(self, plan: Plan, payload: object) -> Handle[Any]:
        """As a chunk of one task, by the script that knows all options."""
        chunk = _core.Chunk()
        now_ms = self.clock.now_ms()
        self.add(chunk, plan, payload, now_ms, _core.new_ids(now_ms, os.urandom(10), 1)[0])
        return self.settle(plan, chunk.ids[0], self.send(plan.queue, chunk)[0])

    def _enqueue_traced(self, telemetry: Telemetry, plan: Plan, payload: object) -> Handle[Any]:
        plan, span = telemetry.sending(plan)
        try:
            handle = self._enqueue(plan, payload)
        except BaseException as error:
            telemetry.sent(span, error=error)
            raise
        telemetry.sent(span, handle.id)
        return handle

    def add(self, chunk: _core.Chunk, plan: Plan, payload: object, now_ms: int, task_id: str) -> None:
        """Puts one task into a chunk; InvalidTask or PayloadTooLarge where the payload is refused."""
        try:
            if plan.plain:
                chunk.add_payload(task_id, plan.head, payload, plan.max_payload_bytes, plan.place)
            else:
                given, envelope, place = plan.encode(payload, now_ms)
                chunk.add(given or task_id, envelope, place)
        except _core.CoreError as error:
            raise from_core(error) from None

    def send(
        self,
        queue: str,
        chunk: _core.Chunk,
        meanwhile: Callable[[], None] | None = None,
        *,
        deadline: float | None = None,
        repeat: bool = False,
    ) -> Sequence[Answer]:
        """One chunk, repeated with the same ids while its answer is lost and the enqueue deadline has not passed.

        meanwhile: called, at most once, while the server works on the chunk; must not raise.
        deadline: of the steady clock; given where the server was asked already, for the same tasks.
        repeat: whether the answer to that was lost.
        """
        clock = self.clock
        # A time-out of its own may cost a reply a system call; the first question about a known queue has all the time.
        hurry, wait = deadline is not None or queue not in self._prepared, FIRST_WAIT_S
        if deadline is None:
            deadline = clock.monotonic() + self.settings.enqueue_deadline_s
        while True:
            if repeat:
                clock.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)
                self.broker.mend_store()
            try:
                if queue not in self._prepared:
                    self._prepare(queue, max(SHORTEST_S, deadline - clock.monotonic()))
                left = max(SHORTEST_S, deadline - clock.monotonic())
                hurried = left if hurry else None
                return self.broker.enqueue(queue, chunk, repeat=repeat, timeout_s=hurried, meanwhile=meanwhile)
            except BrokerUnavailable as error:
                if not self._may_repeat(error, wait, deadline):
                    raise
            repeat, hurry, meanwhile = True, True, None

    def _may_repeat(self, lost: BrokerUnavailable, wait_s: float, deadline: float) -> bool:
        """Whether to ask again in `wait_s`: there is time, and it may help after what was raised."""
        return not isinstance(lost, StoreError) and self.clock.monotonic() + wait_s < deadline

    async def asend(self, queue: str, chunk: _core.Chunk, deadline: float) -> Sequence[Answer]:
        """The same without blocking the loop, until `deadline` (of the steady clock)."""
        from asyncio import sleep, to_thread

        repeat, wait = False, FIRST_WAIT_S
        while True:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                raise BrokerUnavailable(f"queue: {queue!r} could not be reached in time; the tasks were not sent")
            try:
                if queue not in self._prepared:
                    await to_thread(self._prepare, queue, left)
                    left = max(SHORTEST_S, deadline - self.clock.monotonic())
                broker = await self.abroker()
                return await broker.aenqueue(queue, chunk, repeat=repeat, timeout_s=left)
            except BrokerUnavailable as error:
                if isinstance(error, StoreError) or self.clock.monotonic() + wait >= deadline:
                    raise
            repeat = True
            await sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)
            await to_thread(self.broker.mend_store)

    def _prepare(self, queue: str, timeout_s: float) -> None:
        """Makes a queue known before its first task, so that every reader can list it."""
        self.broker.prepare_queue(queue, timeout_s)
        self._prepared.add(queue)

    def settle(self, plan: Plan, task_id: str, answer: Answer) -> Handle[Any]:
        """The handle that an answer stands for; raises the error that it stands for otherwise."""
        if answer.code == "a":
            return Handle(self, task_id, plan.queue, plan.retention_ms)
        existing = self.existing(plan, answer)
        if existing is not None:
            return Handle(self, existing, plan.queue, duplicate=True, ended_as=self.ended_as(answer))
        raise self.refusal(plan, task_id, answer)

    @staticmethod
    def existing(plan: Plan, answer: Answer) -> str | None:
        """The id of the earlier task that answers for this one, where the caller wanted that."""
        if answer.code == "d" or (answer.code == "u" and plan.return_existing):
            return answer.detail.split(" ", 1)[0]
        return None

    @staticmethod
    def ended_as(answer: Answer) -> TaskStatus | None:
        """How the earlier task that answers had ended, where that is known."""
        status = answer.detail.partition(" ")[2]
        return TaskStatus(status) if answer.code == "d" and status else None

    def refusal(self, plan: Plan, task_id: str, answer: Answer) -> DtqError:
        """The error that an answer stands for."""
        code, detail, queue, settings = answer.code, answer.detail, plan.queue, self.settings
        if code == "e":
            return TaskIdConflict(f"task_id: {task_id!r} exists already in queue {queue!r}; choose another one")
        if code == "f":
            return QueueFull(
                f"queue: {queue!r} holds its limit of {settings.max_queue_depth} tasks (DTQ_MAX_QUEUE_DEPTH); try again"
            )
        if code == "p":
            return QueueFull(
                f"queue: {queue!r} holds its limit of {settings.max_scheduled} scheduled tasks (DTQ_MAX_SCHEDULED); "
                f"try again"
            )
        if code == "u":
            return UniqueConflict(
                f"unique: task {detail} of queue {queue!r} has not ended; wait for it, or use "
                f'conflict="return_existing"',
                detail,
            )
        if code == "i":
            return IdempotencyInProgress(
                f"idempotency_key: task {detail} of queue {queue!r} has this key and has not ended; wait for it",
                detail,
            )
        if code == "r":
            return IdempotencyKeyReused(
                f"idempotency_key: it belongs to a task of another type or payload in queue {queue!r}; use another key"
            )
        return DtqError(f"queue: {queue!r} gave an unknown answer {code!r}; use one version of dtq everywhere")


def _telemetry() -> Telemetry:
    from dtq.telemetry import Telemetry

    return Telemetry()


async def _close_at_end(broker: Broker) -> AsyncGenerator[None, None]:
    """Closes a loop's connections when it shuts its asynchronous generators down, as asyncio.run does at its end."""
    try:
        yield
    finally:
        await broker.async_transport.close()
