"""What people do to one task beside cancelling it: run it now, delete what is kept of it; both audited."""

from __future__ import annotations

from dtq.dead_letter_acts import DeadLetterActs
from dtq.errors import IllegalTransition, InvalidTask, TaskNotFound
from dtq.models import TaskStatus
from dtq.source import Source


class TaskActs:
    """Acts on a task by its id, in the name of an actor.

    actor: who acts, for the audit stream; this process's user and host unless given. request_id: what ties the act to a
    request; a random one unless given.
    """

    def __init__(self, source: Source, queue: str, actor: str | None = None, request_id: str | None = None) -> None:
        self._queue = queue
        self._source = source
        self._acts = DeadLetterActs(source, queue, actor, request_id)

    def run(self, task_id: str) -> str:
        """Makes a pending or retrying task due now, and queues a dead letter's task again: "queued".

        Raises IllegalTransition (it is queued already, runs, has ended, or was too late and has expired now),
        TaskNotFound, InvalidTask (its record is damaged), and for a dead letter what Queue.requeue raises.
        """
        verdict, detail = self._source.broker.run_now(self._queue, task_id)
        if verdict == "queued":
            self._acts.audit("run", task_id)
            return verdict
        if verdict == "expired":
            self._acts.audit("run", task_id, {"expired": detail})
            raise IllegalTransition(
                f"status: the {detail} of task {task_id} has passed, so it has expired; enqueue it anew", terminal=True
            )
        if verdict == "damaged":
            raise InvalidTask("task", f"the record of {task_id} is damaged; it ends as a dead letter when it falls due")
        if verdict == "unknown":
            raise self._unknown(task_id)
        status = TaskStatus.from_code(int(detail))
        if status is TaskStatus.DEAD_LETTERED:
            self._acts.requeue(task_id)
            return "queued"
        raise IllegalTransition(
            f"status: task {task_id} is {status}; only pending, retrying and dead-lettered tasks can be run now",
            terminal=status.terminal,
        )

    def delete(self, task_id: str) -> None:
        """Deletes the record of an ended task, its dead letter and its mention in lists.

        Raises IllegalTransition (it has not ended), TaskNotFound.
        """
        code = self._source.broker.states(self._queue, [task_id])
        if code == b"0":
            raise self._unknown(task_id)
        status = TaskStatus.from_code(int(code))
        if not status.terminal:
            raise _not_ended(task_id, status)
        with self._acts.announced("delete", task_id, status=status.value):
            verdict, detail = self._source.broker.delete(self._queue, task_id)
            if verdict == "live":  # an operator has queued it again in between
                raise _not_ended(task_id, TaskStatus.from_code(int(detail)))
            if verdict == "unknown":
                raise self._unknown(task_id)

    def _unknown(self, task_id: str) -> TaskNotFound:
        return TaskNotFound(
            f"task_id: {task_id!r} is not known in queue {self._queue!r}; check id and queue, or its record is gone"
        )


def _not_ended(task_id: str, status: TaskStatus) -> IllegalTransition:
    return IllegalTransition(
        f"status: task {task_id} is {status}; only what has ended can be deleted, so cancel it first"
    )
