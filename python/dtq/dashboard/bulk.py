"""Acts on many tasks, which take their time: they go on while pages come and go, and can be stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from dtq.errors import DtqError, InvalidTask

KEPT = 20
"""So many acts are remembered, the newest ones."""
MOST = 3
"""So many run at the same time; each may hold a thread, which reading pages need too."""
_log = logging.getLogger("dtq.dashboard")


@dataclass(slots=True)
class BulkAct:
    """One act. title: what is done, and where. state: running, done, stopped or failed; problem: why it failed."""

    number: int
    title: str
    actor: str
    state: str = "running"
    done: int = 0
    refused: int = 0
    problem: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class BulkActs:
    """All of one process. They end with it: each step is whole, and the audit tells how far they came."""

    def __init__(self) -> None:
        self._acts: list[BulkAct] = []
        self._count = 0

    def start(self, title: str, actor: str | None, steps: AsyncGenerator[tuple[int, str]]) -> BulkAct:
        """Begins one. steps: gives, for each step, how many tasks it took, and why one was refused ('' otherwise).

        Raises InvalidTask while MOST others run.
        """
        if sum(act.state == "running" for act in self._acts) >= MOST:
            raise InvalidTask("bulk act", f"{MOST} run already; wait for one of them, or stop it")
        self._count += 1
        act = BulkAct(self._count, title, actor or "")
        self._acts = [act, *self._acts]
        if len(self._acts) > KEPT:  # the oldest that has ended: what runs has to be stoppable
            self._acts.remove(next(known for known in reversed(self._acts) if known.state != "running"))
        act.task = asyncio.get_running_loop().create_task(_run(act, steps), name=f"dtq {title}")
        return act

    def all(self) -> list[BulkAct]:
        """The newest first."""
        return list(self._acts)

    def stop(self, number: int) -> None:
        """Ends one behind the step under way."""
        for act in self._acts:
            if act.number == number and act.task is not None:
                act.task.cancel()

    async def close(self) -> None:
        """Ends all, and waits for it."""
        tasks = [act.task for act in self._acts if act.task is not None and not act.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _run(act: BulkAct, steps: AsyncGenerator[tuple[int, str]]) -> None:
    async with contextlib.aclosing(steps):
        try:
            async for count, problem in steps:
                act.done += count
                if problem:
                    act.refused += 1
                    act.problem = problem
        except asyncio.CancelledError:
            act.state = "stopped"
        except DtqError as error:
            act.state, act.problem = "failed", str(error)
        except Exception as error:
            act.state, act.problem = "failed", type(error).__name__
            _log.exception("%s failed", act.title)
        else:
            act.state = "done"
