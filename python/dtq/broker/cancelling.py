"""The verbs of cancelling: one task, several, or by filter; and how a worker learns that it runs a cancelled one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from dtq.broker.auditing import Auditing
from dtq.broker.calls import Calls
from dtq.broker.values import CancelCounts, CancelNote, DueNote
from dtq.models import TERMINAL_STATUSES, TaskStatus
from dtq.transport import translated

SLICE: Final = 100
"""So many tasks are cancelled by one script call, which takes a few milliseconds of the server."""
WAITING: Final = (TaskStatus.PENDING, TaskStatus.QUEUED, TaskStatus.RETRYING)
LIVE: Final = (*WAITING, TaskStatus.RUNNING)
_DONE: Final = ("cancelled", "requested")


class Cancelling(Auditing):
    """Verbs of those who cancel, and of the workers that they cancel at. The audit stream tells who did."""

    def cancel(self, queue: str, task_id: str, *, actor: str | None = None, request_id: str | None = None) -> str:
        """Cancel a task, or ask its worker to.

        Args:
            queue: its queue.
            task_id: its id.
            actor: who, for the audit stream; this process's user and host unless given.
            request_id: what ties the act to a request; a random one unless given.

        Returns:
            `cancelled`, `requested` (it runs, or was delivered), `terminal:<status>`, or `unknown`.
        """
        return self.cancel_many(queue, [task_id], actor=actor, request_id=request_id)[0]

    async def acancel(
        self, queue: str, task_id: str, *, actor: str | None = None, request_id: str | None = None
    ) -> str:
        """As cancel, without blocking the loop."""
        call = self.front("cancel", queue)
        command = call.pack([*self._cancel_options(), task_id])
        answer = _answer((await self.async_transport.call(command, call.script))[0])
        if answer in _DONE:
            await self.aaudit("cancel", queue, task_id, actor=actor, request_id=request_id)
        return answer

    def cancel_many(
        self, queue: str, ids: Sequence[str], *, actor: str | None = None, request_id: str | None = None
    ) -> list[str]:
        """Cancel several tasks of one queue, in slices; an answer for each, as cancel gives it."""
        answers: list[str] = []
        for at in range(0, len(ids), SLICE):
            reply = self.run("cancel", queue, *self._cancel_options(), *ids[at : at + SLICE])
            answers += [_answer(answer) for answer in reply]
            done = [task_id for task_id, answer in zip(ids[at:], answers[at:], strict=False) if answer in _DONE]
            if len(ids) == 1 and done:
                self.audit("cancel", queue, done[0], actor=actor, request_id=request_id)
            elif done:
                self.audit("cancel", queue, facts={"ids": done}, actor=actor, request_id=request_id)
        return answers

    def cancel_matching(
        self,
        queue: str,
        *,
        task_type: str | None = None,
        statuses: Iterable[TaskStatus] = WAITING,
        dry_run: bool = False,
        actor: str | None = None,
        request_id: str | None = None,
        looked: Callable[[int], object] = lambda count: None,
    ) -> CancelCounts:
        """Cancel all tasks of a queue that match, in slices, each task checked by the script that cancels it.

        A task that is enqueued while this goes on may or may not be met.

        Args:
            queue: its name.
            task_type: only tasks of this type; None: of all.
            statuses: only tasks in these; of pending, queued, retrying, running.
            dry_run: count, and change nothing.
            actor: who, for the audit stream; this process's user and host unless given.
            request_id: what ties the act to a request; a random one unless given.
            looked: called after each slice, with how many tasks it looked at.

        Raises:
            ValueError: a status in which nothing can be cancelled.
            BrokerUnavailable: no answer; what was cancelled until then stays so.
        """
        wanted = set(statuses)
        if wrong := sorted(status.value for status in wanted.difference(LIVE)):
            raise ValueError(f"status: a task that is {wrong[0]} has ended; give {', '.join(LIVE)}")
        options = self._cancel_options(task_type or "", "".join(str(status.code) for status in wanted), dry_run)
        counts = {"cancelled": 0, "requested": 0, "terminal": 0}
        candidates = self._candidates(queue, wanted)
        try:
            while ids := list(islice(candidates, SLICE)):
                for answer in self.run("cancel", queue, *options, *ids):
                    verdict = answer.decode().partition(" ")[0]
                    if verdict in counts:
                        counts[verdict] += 1
                looked(len(ids))
        finally:
            if not dry_run and any(counts[verdict] for verdict in _DONE):
                chosen = {"task_type": task_type, "statuses": sorted(wanted)}
                facts = {"filter": chosen, **counts}
                self.audit("cancel", queue, facts=facts, actor=actor, request_id=request_id)
        return CancelCounts(counts["cancelled"], counts["requested"], counts["terminal"])

    def _cancel_options(self, task_type: str = "", codes: str = "", dry_run: bool = False) -> list[str | int]:
        return [self.keys.cancels(""), task_type, codes, int(dry_run)]

    def _candidates(self, queue: str, statuses: set[TaskStatus]) -> Iterator[bytes]:
        """Ids of tasks that may match. The schedule goes first: what falls due meanwhile is met among the queued."""
        if statuses & {TaskStatus.PENDING, TaskStatus.RETRYING}:
            for found in self._scan("ZSCAN", self.keys.schedule(queue)):
                yield from found[::2]
        letters = (b"q" if TaskStatus.QUEUED in statuses else b"") + (b"r" if TaskStatus.RUNNING in statuses else b"")
        if letters:
            for found in self._scan("HSCAN", self.keys.live(queue)):
                for task_id, value in zip(found[::2], found[1::2], strict=True):
                    if value[:1] in letters:
                        yield task_id

    def _scan(self, command: str, key: str) -> Iterator[list[bytes]]:
        cursor = b"0"
        while True:
            cursor, found = self.command(command, key, cursor, "COUNT", 500)
            yield found
            if cursor == b"0":
                return

    # --- how a worker learns of it

    def flags(self, queue: str, tasks: Sequence[tuple[int, bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The id and live value of each (band, entry, id or b''); b'' where there is none (any more)."""
        arguments = [part for task in tasks for part in task]
        reply = self.run("flags", queue, *arguments)
        return list(zip(reply[::2], reply[1::2], strict=True))

    def hear(self, worker_id: str) -> Notes:
        """Hear, from now on, which claims of a worker have been cancelled, and which schedules got an earlier task.

        Raises BrokerUnavailable.
        """
        return Notes(self, worker_id)


class Notes:
    """A connection on which a worker is told what it would else find out later. For one thread; close it after use."""

    def __init__(self, broker: Calls, worker_id: str) -> None:
        self._broker = broker
        self._schedule = broker.keys.schedule("")[:-1]
        self._client: Any = broker.transport.client()
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True)
        try:
            with translated(broker.transport):
                self._pubsub.subscribe(broker.keys.cancels(worker_id))
                self._pubsub.psubscribe(broker.keys.schedules())
        except BaseException:
            self.close()
            raise

    def get(self, timeout_s: float) -> CancelNote | DueNote | None:
        """The next one; None when none comes within `timeout_s`. Raises BrokerUnavailable."""
        with translated(self._broker.transport):
            message: dict[str, Any] = self._pubsub.get_message(timeout=timeout_s) or {}
        kind = message.get("type")
        if kind == "pmessage":
            return DueNote(message["channel"].decode().removeprefix(self._schedule).removesuffix("}"))
        if kind != "message":
            return None
        note: dict[str, Any] = orjson.loads(message["data"])
        return CancelNote(str(note["consumer"]), int(note["seq"]))

    def close(self) -> None:
        """Give the connection back."""
        self._pubsub.close()
        self._client.close()


_TERMINAL = {str(status.code): status.value for status in TERMINAL_STATUSES}


def _answer(reply: bytes) -> str:
    verdict, _, rest = reply.decode().partition(" ")
    return f"terminal:{_TERMINAL.get(rest, rest)}" if verdict == "terminal" else verdict
