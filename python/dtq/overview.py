"""What an app shows of all its queues: tasks page by page, workers, events as they happen, the audit stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dtq.client import Client
from dtq.models import TaskStatus
from dtq.off_loop import in_thread
from dtq.options import check_queue

if TYPE_CHECKING:
    from dtq.broker import AuditEntry, QueueCounts
    from dtq.listing import TaskPage
    from dtq.queues import Queue
    from dtq.watching import Events
    from dtq.workers import Worker


class Overview:
    """The part of an App for those who run it. All raise BrokerUnavailable.

    Each method has an async twin whose name begins with `a`: the same work in a thread, which never blocks the loop.
    """

    client: Client

    def queue(self, name: str | None = None, *, actor: str | None = None, request_id: str | None = None) -> Queue:
        """A queue for those who run it (the app's default one): pause, resume, purge, dead letters.

        actor: who acts, for the audit stream; this process's user and host unless given. request_id: what ties the acts
        to a request, likewise; a random one for each unless given. Raises InvalidTask.
        """
        from dtq.queues import Queue

        chosen = check_queue(self.client.settings.queue if name is None else name)
        return Queue(self.client, chosen, actor, request_id)

    def queue_names(self) -> list[str]:
        """The names of the known queues, sorted."""
        return self.client.broker.queues()

    async def aqueue_names(self) -> list[str]:
        """`queue_names` without blocking the loop."""
        return await in_thread(self.queue_names)

    def queue_counts(self, names: Sequence[str] | None = None) -> list[QueueCounts]:
        """Many queues in figures, in this order (all that are known, by name); one whose keys were damaged by hand is
        left out."""
        broker = self.client.broker
        return broker.many_counts(broker.queues() if names is None else names)

    async def aqueue_counts(self, names: Sequence[str] | None = None) -> list[QueueCounts]:
        """`queue_counts` without blocking the loop."""
        return await in_thread(self.queue_counts, names)

    def tasks(
        self,
        queue: str | None = None,
        *,
        status: TaskStatus | str | None = None,
        task_type: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        worker_id: str | None = None,
        batch_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """A page of tasks: of one queue or of all, in one status or in all, by type, worker, batch or time of creation.

        limit: most tasks of a page, 1 to 1000. cursor: that of the page before, with the same filter. A page may come
        back short, or empty, with a cursor: it looks at 2000 tasks at most. Every task that does not change meanwhile
        comes exactly once. Of ended tasks the newest DTQ_RECENT of each queue and status are listed; `partial` says
        where there may be others.
        Raises InvalidTask, naming the field.
        """
        from dtq.listing import TaskFilter, list_tasks

        which = TaskFilter.checked(
            queue,
            status=status,
            task_type=task_type,
            created_after=created_after,
            created_before=created_before,
            worker_id=worker_id,
            batch_id=batch_id,
        )
        return list_tasks(self.client.broker, which, limit, cursor)

    async def atasks(
        self,
        queue: str | None = None,
        *,
        status: TaskStatus | str | None = None,
        task_type: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        worker_id: str | None = None,
        batch_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """`tasks` without blocking the loop."""
        return await in_thread(
            self.tasks,
            queue,
            status=status,
            task_type=task_type,
            created_after=created_after,
            created_before=created_before,
            worker_id=worker_id,
            batch_id=batch_id,
            limit=limit,
            cursor=cursor,
        )

    def workers(self) -> list[Worker]:
        """The workers that are alive, with their children and what each runs since when."""
        from dtq.workers import read_workers

        return read_workers(self.client.broker)

    async def aworkers(self) -> list[Worker]:
        """`workers` without blocking the loop."""
        return await in_thread(self.workers)

    def events(self, queues: Iterable[str] | None = None, types: Iterable[str] | None = None) -> Events:
        """Events from now on, for `for` and `async for`: of these queues (all) and types (all); close it after use.

        Raises InvalidTask for a queue or a type that cannot be.
        """
        from dtq.watching import Events

        return Events(self.client.broker, queues, types, self.client.clock)

    def audit(self, count: int = 100, before: str | None = None) -> list[AuditEntry]:
        """The newest entries of the audit stream first; before: the `entry` of one to go on behind.

        Raises InvalidTask for what is no entry.
        """
        from dtq.dead_letters import check_entry

        return self.client.broker.audit_entries(count, None if before is None else check_entry("before", before))

    async def aaudit(self, count: int = 100, before: str | None = None) -> list[AuditEntry]:
        """`audit` without blocking the loop."""
        return await in_thread(self.audit, count, before)
