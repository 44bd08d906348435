"""What a worker tells of itself with its lease: what it is, its children and their memory, why some were replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from dtq.clock import SYSTEM
from dtq.worker.pool import ChildProcess

_RESTARTS = 20
"""So many replacements of children are told, the newest ones."""
_MEMORY_S = 5.0
"""How often the memory of a child is looked up: the kernel walks over all of its pages for it."""
_CAUSE_CHARACTERS = 200


class Facts:
    """Told at each renewal, in the steward's thread. fixed: what does not change. children: those there are now."""

    def __init__(
        self, fixed: Mapping[str, Any], children: Callable[[], list[ChildProcess]], draining: Callable[[], bool]
    ) -> None:
        self._fixed = fixed
        self._children = children
        self._draining = draining
        self._restarts: deque[tuple[int, str, int]] = deque(maxlen=_RESTARTS)
        self._memory: dict[int, tuple[float, int]] = {}

    def note_restart(self, number: int, cause: str) -> None:
        """A child is replaced. From the main thread."""
        self._restarts.appendleft((SYSTEM.now_ms(), cause[:_CAUSE_CHARACTERS], number))

    def tell(self) -> dict[str, Any]:
        """All of it, as JSON values; read by dtq/workers.py.

        processes: (number, pid, consumer, private bytes; 0: unknown) of each child that is ready. restarts: (time in
        ms, cause, number), newest first.
        """
        ready = [child for child in self._children() if child.ready]
        memory, self._memory = self._memory, {}
        processes: list[tuple[int, int, str, int]] = []
        for child in ready:
            looked_at, used = memory.get(child.pid, (0.0, 0))
            now = SYSTEM.monotonic()
            if not used or now - looked_at >= _MEMORY_S:
                looked_at, used = now, child.private_bytes()
            self._memory[child.pid] = (looked_at, used)
            processes.append((child.number, child.pid, child.consumer, used))
        return {
            **self._fixed,
            "processes": processes,
            "restarts": list(self._restarts),
            "draining": self._draining(),
        }
