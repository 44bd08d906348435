"""Blocking work for asyncio: a call, or an iterator step by step, in a thread, so that the loop is never blocked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_END = object()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the call returns or raises; asyncio is imported here, at the first use."""
    from asyncio import to_thread

    return await to_thread(function, *args, **kwargs)


async def steps(blocking: Generator[T]) -> AsyncGenerator[T]:
    """Walks a blocking generator, each step in a thread; closes it at the end, when left early or cancelled too."""
    from asyncio import create_task, shield, to_thread, wait

    step = None
    try:
        while True:
            step = create_task(to_thread(next, blocking, _END))
            found = await shield(step)
            if found is _END:
                return
            yield cast("T", found)
    finally:
        if step is not None and not step.done():  # cancelled: a step that has begun cannot be stopped, only awaited
            await wait([step])
        await to_thread(blocking.close)
