"""Threads for calls that block: one that would begin too late is refused, so a frozen Redis queues nobody up."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from dtq.errors import BrokerUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """At most `count` threads. patience_s: how long a call may wait for one of them."""

    def __init__(self, count: int, patience_s: float) -> None:
        super().__init__(count, "dtq-api")
        self._patience_s = patience_s

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a call made; its future raises BrokerUnavailable where it found no thread in time."""
        return super().submit(self._in_time, time.monotonic() + self._patience_s, partial(fn, *args, **kwargs))

    def _in_time(self, latest: float, call: Callable[[], T]) -> T:
        # Those before it wait for Redis, whose answer would come no sooner to this one.
        if time.monotonic() > latest:
            raise BrokerUnavailable(
                f"Redis keeps all threads of this process waiting; none was free within {self._patience_s:g} s"
            )
        return call()
