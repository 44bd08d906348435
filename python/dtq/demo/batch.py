"""One census from the producer's side: sends the tasks that are missing and follows how the rest end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from dtq.broker import Broker
from dtq.demo import census
from dtq.demo.run_file import Run
from dtq.errors import TaskIdConflict
from dtq.models import STATUSES, Task, TaskStatus, read_task

_SLICE = 500
_UNKNOWN = 0


@dataclass(slots=True)
class Batch:
    """The tasks of one run. `refresh` reads where they stand; `done` and `failed` count the ended ones.

    broker: that of the census application. A task that the store does not know is sent (again): at the start of a run
    that is all of them, and after a crash of the store those it lost.
    """

    broker: Broker
    run: Run
    paths: dict[str, str] = field(init=False)
    ended: dict[str, TaskStatus] = field(init=False, default_factory=dict[str, TaskStatus])

    def __post_init__(self) -> None:
        self.paths = {self.run.task_id(path): path for path in self.run.files}

    @property
    def total(self) -> int:
        """How many tasks the run has."""
        return len(self.paths)

    @property
    def failed(self) -> int:
        """How many ended without a result."""
        return sum(status is not TaskStatus.SUCCEEDED for status in self.ended.values())

    @property
    def done(self) -> int:
        """How many ended, with a result or without."""
        return len(self.ended)

    def refresh(self) -> int:
        """Read the state of every open task and send the unknown ones; return how many were sent."""
        missing: list[str] = []
        for ids in _slices([task_id for task_id in self.paths if task_id not in self.ended]):
            for task_id, digit in zip(ids, self.broker.states(census.QUEUE, ids), strict=True):
                code = digit - ord("0")
                if code == _UNKNOWN:
                    missing.append(task_id)
                elif (status := STATUSES[code - 1]).terminal:
                    self.ended[task_id] = status
        if missing:
            self._send(missing)
        return len(missing)

    def tasks(self) -> Iterator[Task]:
        """Read the whole record of every task of the run; those whose record is gone are left out."""
        for ids in _slices(list(self.paths)):
            for task_id, found in zip(ids, self.broker.inspect(census.QUEUE, ids), strict=True):
                if found is not None:
                    yield read_task(
                        census.QUEUE,
                        task_id,
                        live=found.live,
                        envelope=found.envelope,
                        record=found.record,
                        due_ms=found.due_ms,
                    )

    def cancel_open(self) -> int:
        """Cancel what has not ended, for a run that is given up; return how many tasks that were."""
        given_up = 0
        for ids in _slices(list(self.paths)):
            for task_id, digit in zip(ids, self.broker.states(census.QUEUE, ids), strict=True):
                code = digit - ord("0")
                if code != _UNKNOWN and not STATUSES[code - 1].terminal:
                    self.broker.cancel(census.QUEUE, task_id)
                    given_up += 1
        return given_up

    def _send(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            # Another census on the same directory may have sent it a moment ago: the task is there, and that is enough.
            with suppress(TaskIdConflict):
                census.count.options(task_id=task_id).enqueue(path=self.paths[task_id])


def _slices(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _SLICE):
        yield ids[start : start + _SLICE]
