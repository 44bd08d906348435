"""What type checkers must see: enqueues take the handler's own parameters, handles carry its result.

Checked by tests/unit/test_typing.py; never run. A line that must be refused carries an ignore, and an ignore that
nothing needs is an error, so both directions are checked.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import dtq

app = dtq.App()


@app.task
def plain(a: int, b: str = "") -> float:
    return float(a)


@app.task(name="eventual", retention=3600)
async def eventual(a: int) -> str:
    return str(a)


@app.task
def with_context(context: dtq.Context, a: int) -> bytes:
    return b""


@app.task(queue="mail")
async def eventual_with_context(context: dtq.Context, a: int) -> list[int]:
    return [a]


async def use(context: dtq.Context) -> None:
    assert_type(plain(1, "x"), float)
    assert_type(plain.enqueue(1, b="x"), dtq.Handle[float])
    assert_type(plain.enqueue(a=1).result(timeout=1), float)
    assert_type(await plain.aenqueue(1), dtq.Handle[float])
    assert_type(plain.options(delay=1).enqueue(1), dtq.Handle[float])

    await assert_type(eventual(1), Coroutine[Any, Any, str])
    assert_type(eventual.enqueue(a=1), dtq.Handle[str])
    assert_type(await (await eventual.aenqueue(1)).aresult(), str)

    assert_type(with_context(context, 1), bytes)
    assert_type(with_context.enqueue(1), dtq.Handle[bytes])
    await assert_type(eventual_with_context(context, a=1), Coroutine[Any, Any, list[int]])
    assert_type(eventual_with_context.enqueue(a=1), dtq.Handle[list[int]])

    for handle in dtq.as_completed([plain.enqueue(1)]):
        assert_type(handle, dtq.Handle[float])
    async for handle in dtq.as_completed([plain.enqueue(1)]):
        assert_type(handle, dtq.Handle[float])
    assert_type(app.enqueue("plain", {"a": 1}, priority=3), dtq.Handle[Any])


def refused(context: dtq.Context) -> None:
    plain.enqueue("1")  # pyright: ignore[reportArgumentType]
    plain.enqueue(1, c=2)  # pyright: ignore[reportCallIssue]
    plain.enqueue()  # pyright: ignore[reportCallIssue]
    with_context.enqueue(context, 1)  # pyright: ignore[reportCallIssue]
    with_context(1)  # pyright: ignore[reportCallIssue]
    plain.options(dealy=1)  # pyright: ignore[reportCallIssue]
    plain.options(priority="high")  # pyright: ignore[reportArgumentType]
    app.task(max_attempts="3")  # pyright: ignore[reportArgumentType]
