"""A task after its enqueue: its status, its result, its whole record; and waiting for many of them at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dtq import _core
from dtq.errors import (
    BrokerUnavailable,
    DtqError,
    IllegalTransition,
    ResultNotKept,
    TaskFailed,
    TaskNotFound,
    from_core,
)
from dtq.models import Task, TaskStatus, decode_json, read_task
from dtq.source import Source
from dtq.waiting import Wait

if TYPE_CHECKING:
    from dtq.broker import Snapshot

R = TypeVar("R")
SUCCEEDED = TaskStatus.SUCCEEDED.code


class Handle(Generic[R]):
    """One task. `id` and `queue` name it; `duplicate` is True where an earlier task answered for the enqueue.

    `ended_as`: how that task had ended, as its idempotency key tells also when its record is gone; None where it has
    not ended, and for all other handles.
    """

    __slots__ = ("_ended", "_looked", "_retention_ms", "_source", "duplicate", "ended_as", "id", "queue")

    def __init__(
        self,
        source: Source,
        task_id: str,
        queue: str,
        retention_ms: int | None = None,
        duplicate: bool = False,
        ended_as: TaskStatus | None = None,
    ) -> None:
        self.id = task_id
        self.queue = queue
        self.duplicate = duplicate
        self.ended_as = ended_as
        self._source = source
        self._retention_ms = retention_ms
        # What was read once the task had ended, in bulk by as_completed and gather; None: nothing was kept.
        self._ended: Snapshot | None = None
        self._looked = False

    def __repr__(self) -> str:
        return f"<Handle {self.id} of queue {self.queue!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self.id == other.id and self.queue == other.queue

    def __hash__(self) -> int:
        return hash((self.id, self.queue))

    def status(self) -> TaskStatus:
        """Where the task stands now. Raises TaskNotFound, BrokerUnavailable."""
        return self._status(self._source.broker.states(self.queue, [self.id]))

    async def astatus(self) -> TaskStatus:
        """`status` without blocking the loop."""
        return self._status(await (await self._source.abroker()).astates(self.queue, [self.id]))

    def task(self) -> Task:
        """The whole record. Raises TaskNotFound, BrokerUnavailable."""
        return self._task(self._source.broker.inspect(self.queue, [self.id])[0])

    async def atask(self) -> Task:
        """`task` without blocking the loop."""
        return self._task((await (await self._source.abroker()).ainspect(self.queue, [self.id]))[0])

    def result(self, timeout: float | None = None) -> R:
        """Waits until the task has ended and gives what its handler returned.

        timeout: seconds; 0 looks once, None waits without a limit. A short outage of Redis is waited out.
        Raises TaskFailed (also for cancelled and expired ones), ResultNotKept (at once where the retention is 0),
        ResultTimeout, TaskNotFound, BrokerUnavailable.
        """
        if not self._looked:
            wait: Wait[Handle[R]] = Wait([self], timeout, self._source.clock)
            while wait.left:
                for _ in _sweep(self._source, wait):
                    pass
                if wait.left:
                    self._refuse_waiting_in_vain()
                    self._source.clock.sleep(wait.pause())
        return self._final()

    async def aresult(self, timeout: float | None = None) -> R:
        """`result` without blocking the loop."""
        if not self._looked:
            from asyncio import sleep

            wait: Wait[Handle[R]] = Wait([self], timeout, self._source.clock)
            while wait.left:
                async for _ in _asweep(self._source, wait):
                    pass
                if wait.left:
                    self._refuse_waiting_in_vain()
                    await sleep(wait.pause())
        return self._final()

    def cancel(self, *, actor: str | None = None, request_id: str | None = None) -> str:
        """Cancels the task: "cancelled" (it never starts) or "requested" (it runs; its worker is told).

        actor: who cancels, for the audit stream; this process's user and host unless given. request_id: what ties the
        act to a request, likewise; a random one unless given. Both are the same for `run` and `delete`.
        Raises TaskNotFound, IllegalTransition (it has ended), BrokerUnavailable.
        """
        return self._cancelled(self._source.broker.cancel(self.queue, self.id, actor=actor, request_id=request_id))

    async def acancel(self, *, actor: str | None = None, request_id: str | None = None) -> str:
        """`cancel` without blocking the loop."""
        broker = await self._source.abroker()
        return self._cancelled(await broker.acancel(self.queue, self.id, actor=actor, request_id=request_id))

    def run(self, *, actor: str | None = None, request_id: str | None = None) -> str:
        """Makes a pending or retrying task due now, and queues a dead letter's task again: "queued".

        Raises TaskNotFound, IllegalTransition (it is queued, runs, has ended, or its ttl or deadline has passed and it
        expired), BrokerUnavailable; for a dead letter also what `Queue.requeue` raises.
        """
        from dtq.task_acts import TaskActs

        return TaskActs(self._source, self.queue, actor, request_id).run(self.id)

    async def arun(self, *, actor: str | None = None, request_id: str | None = None) -> str:
        """`run` without blocking the loop."""
        from dtq.off_loop import in_thread

        return await in_thread(self.run, actor=actor, request_id=request_id)

    def delete(self, *, actor: str | None = None, request_id: str | None = None) -> None:
        """Deletes what is kept of an ended task: its record, its dead letter, its place in lists.

        Raises TaskNotFound, IllegalTransition (it has not ended), BrokerUnavailable.
        """
        from dtq.task_acts import TaskActs

        TaskActs(self._source, self.queue, actor, request_id).delete(self.id)

    async def adelete(self, *, actor: str | None = None, request_id: str | None = None) -> None:
        """`delete` without blocking the loop."""
        from dtq.off_loop import in_thread

        await in_thread(self.delete, actor=actor, request_id=request_id)

    # --- what the answers mean -----------------------------------------------------------------------------------

    def _status(self, codes: bytes) -> TaskStatus:
        code = codes[0] - ord("0")
        if code == 0:
            raise self._not_found()
        return TaskStatus.from_code(code)

    def _task(self, snapshot: Snapshot | None) -> Task:
        if snapshot is None:
            raise self._not_found()
        try:
            task = read_task(
                self.queue,
                self.id,
                live=snapshot.live,
                envelope=snapshot.envelope,
                record=snapshot.record,
                due_ms=snapshot.due_ms,
            )
        except _core.CoreError as error:
            raise from_core(error) from None
        return task

    def _final(self) -> R:
        """`outcome`; only a success is final: an operator may queue a dead letter again, so ask anew next time."""
        try:
            return self.outcome()
        except DtqError:
            self._looked = False
            raise

    def outcome(self) -> R:
        """The result of a task that has been looked at since its end: no waiting, no call. Raises as `result` does."""
        snapshot = self._ended
        if snapshot is None:
            if self._retention_ms == 0:
                raise self._not_kept()
            raise self._not_found()
        if snapshot.record is not None and snapshot.live is None:
            # The common case by itself: a whole Task costs ten times as much to build.
            try:
                record = _core.parse_record(snapshot.record)
            except _core.CoreError as error:
                raise from_core(error) from None
            if record.status == SUCCEEDED:
                return cast(R, decode_json(record.detail).get("result"))
        task = self._task(snapshot)
        raise TaskFailed(
            _failure(task),
            task_id=self.id,
            status=task.status.value,
            error_class=task.error_class,
            cause=task.cause,
            traceback=task.traceback,
        )

    def _refuse_waiting_in_vain(self) -> None:
        if self._retention_ms == 0:
            raise self._not_kept()

    def _not_kept(self) -> ResultNotKept:
        return ResultNotKept(
            f"result: task {self.id} has retention 0, so its result is not kept; enqueue it with a retention"
        )

    def _not_found(self) -> TaskNotFound:
        if self._retention_ms == 0:
            return TaskNotFound(
                f"task_id: {self.id!r} has ended in queue {self.queue!r}; it kept no record (retention 0)"
            )
        return TaskNotFound(
            f"task_id: {self.id!r} is not known in queue {self.queue!r}; check id and queue, or its record is gone"
        )

    def _cancelled(self, verdict: str) -> str:
        if verdict == "unknown":
            raise self._not_found()
        if verdict.startswith("terminal"):
            status = verdict.partition(":")[2]
            message = f"task_id: {self.id!r} has ended as {status} and cannot be cancelled"
            raise IllegalTransition(message, terminal=True)
        return verdict

    def keep(self, snapshot: Snapshot | None) -> None:
        """Remembers how the task ended, for `result`."""
        self._ended = snapshot
        self._looked = True

    @property
    def source(self) -> Source:
        """Whom this handle asks."""
        return self._source


def _failure(task: Task) -> str:
    """What TaskFailed says."""
    if task.status is TaskStatus.CANCELLED:
        reason = task.error or (task.cause if task.cause not in (None, "", "cancelled") else None)
        return f"task {task.id} was cancelled" + (f": {reason}" if reason else "")
    if task.status is TaskStatus.EXPIRED:
        return f"task {task.id} expired before it could run" + (f" ({task.cause})" if task.cause else "")
    return task.error or task.cause or f"task {task.id} ended as {task.status}"


def _sweep(source: Source, wait: Wait[Handle[R]]) -> Iterator[Handle[R]]:
    """Asks once about open handles; gives those that have ended, with their records."""
    broker = source.broker
    try:
        for queue, items in wait.sweep():
            ended = wait.note(items, broker.states(queue, [handle.id for handle in items]))
            while ended:
                try:
                    found = broker.inspect(queue, [handle.id for handle in ended])
                except BrokerUnavailable as error:
                    # They are open no longer, so the outage has to be waited out here.
                    wait.unreachable(error)
                    source.clock.sleep(wait.pause())
                    continue
                yield from _kept(wait, items, ended, found)
                break
    except BrokerUnavailable as error:
        wait.unreachable(error)


async def _asweep(source: Source, wait: Wait[Handle[R]]) -> AsyncIterator[Handle[R]]:
    """`_sweep` without blocking the loop."""
    from asyncio import sleep

    broker = await source.abroker()
    try:
        for queue, items in wait.sweep():
            ended = wait.note(items, await broker.astates(queue, [handle.id for handle in items]))
            while ended:
                try:
                    found = await broker.ainspect(queue, [handle.id for handle in ended])
                except BrokerUnavailable as error:
                    wait.unreachable(error)
                    await sleep(wait.pause())
                    continue
                for handle in _kept(wait, items, ended, found):
                    yield handle
                break
    except BrokerUnavailable as error:
        wait.unreachable(error)


def _kept(
    wait: Wait[Handle[R]], items: list[Handle[R]], ended: list[Handle[R]], found: Sequence[Snapshot | None]
) -> Iterator[Handle[R]]:
    """The handles that have ended, each with its record; one that was queued again in between is waited for further."""
    for handle, snapshot in zip(ended, found, strict=True):
        if snapshot is not None and not _has_ended(snapshot):
            wait.reopen(items, handle)
        else:
            handle.keep(snapshot)
            yield handle


def _has_ended(snapshot: Snapshot) -> bool:
    """The second byte of a record is its status; a live task has not ended whatever its record says."""
    return snapshot.live is None and snapshot.record is not None and snapshot.record[1] >= SUCCEEDED


class AsCompleted(Generic[R]):
    """The handles in the order in which their tasks end; for `for` and `async for`."""

    def __init__(self, handles: Iterable[Handle[R]], timeout: float | None) -> None:
        self._handles = list(handles)
        self._timeout = timeout
        if any(handle.source is not self._handles[0].source for handle in self._handles):
            raise ValueError("handles: they belong to more than one App; wait for those of each app by themselves")

    def __iter__(self) -> Iterator[Handle[R]]:
        if not self._handles:
            return
        source = self._handles[0].source
        wait = Wait(self._handles, self._timeout, source.clock)
        while True:
            yield from _sweep(source, wait)
            if not wait.left:
                return
            source.clock.sleep(wait.pause())

    async def __aiter__(self) -> AsyncIterator[Handle[R]]:
        from asyncio import sleep

        if not self._handles:
            return
        source = self._handles[0].source
        wait = Wait(self._handles, self._timeout, source.clock)
        while True:
            async for handle in _asweep(source, wait):
                yield handle
            if not wait.left:
                return
            await sleep(wait.pause())


def as_completed(handles: Iterable[Handle[R]], timeout: float | None = None) -> AsCompleted[R]:
    """The handles in the order in which their tasks end, for `for` and `async for`; serves 100 000 of them.

    timeout: seconds for all together, None for no limit. Handles of one app only. A handle comes also when its task
    failed or is known no more: its `result()` then raises, without another wait.
    Raises ResultTimeout, BrokerUnavailable while iterating.
    """
    return AsCompleted(handles, timeout)


def gather(handles: Iterable[Handle[R]], timeout: float | None = None, return_exceptions: bool = False) -> list[Any]:
    """The results of all tasks, in the order of the handles.

    timeout: seconds for all together, None for no limit. return_exceptions: put TaskFailed, ResultNotKept and
    TaskNotFound into the list; otherwise the first of them is raised as soon as it is known.
    Raises ResultTimeout, BrokerUnavailable.
    """
    listed = list(handles)
    for handle in as_completed(listed, timeout):
        if not return_exceptions:
            handle.result()
    return [_outcome(handle) for handle in listed]


async def agather(
    handles: Iterable[Handle[R]],
    timeout: float | None = None,
    return_exceptions: bool = False,
) -> list[Any]:
    """`gather` without blocking the loop."""
    listed = list(handles)
    async for handle in as_completed(listed, timeout):
        if not return_exceptions:
            await handle.aresult()
    return [_outcome(handle) for handle in listed]


def _outcome(handle: Handle[R]) -> R | DtqError:
    """What a handle that has ended stands for, its error as a value."""
    try:
        return handle.outcome()
    except (TaskFailed, ResultNotKept, TaskNotFound) as error:
        return error
