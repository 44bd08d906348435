"""Async enqueue: calls share round trips, each has its own answer, and the loop is never blocked."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

import dtq
from tests.client.proxy import Proxy
from tests.servers import PrivateServer


def test_calls_at_the_same_time_share_a_round_trip(app: dtq.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    async def main() -> list[dtq.Handle[int]]:
        await add.aenqueue(0)
        before = evalsha_calls()
        handles = await asyncio.gather(*(add.aenqueue(i, b=2) for i in range(1200)))
        assert evalsha_calls() - before <= 4
        return handles

    def evalsha_calls() -> int:
        stats: bytes = app.broker.command("INFO", "commandstats")
        (line,) = [line for line in stats.splitlines() if line.startswith(b"cmdstat_evalsha:")]
        return int(line.split(b"calls=")[1].split(b",")[0])

    handles = asyncio.run(main())
    assert len({handle.id for handle in handles}) == 1200
    assert handles[700].task().payload == {"a": 700, "b": 2}


def test_each_caller_has_its_own_answer(app: dtq.App) -> None:
    async def main() -> list[object]:
        return await asyncio.gather(
            app.aenqueue("noop", {"i": 1}, task_id="one"),
            app.aenqueue("noop", {"i": math.nan}),
            app.aenqueue("noop", {"i": 2}, task_id="one"),
            app.aenqueue("noop", {"i": 3}, unique=True),
            app.aenqueue("noop", {"i": 3}, unique=True),
            app.aenqueue("noop", {"i": 4}, queue="other"),
            return_exceptions=True,
        )

    one, nan, taken, first, second, other = asyncio.run(main())
    assert isinstance(one, dtq.Handle)
    assert isinstance(nan, dtq.InvalidTask)
    assert isinstance(taken, dtq.TaskIdConflict)
    assert isinstance(first, dtq.Handle)
    assert isinstance(second, dtq.UniqueConflict)
    assert second.existing_id == first.id
    assert isinstance(other, dtq.Handle)
    assert other.queue == "other"


def test_the_payload_is_the_one_of_the_call(app: dtq.App) -> None:
    async def main() -> dtq.Handle[object]:
        payload = {"list": [1]}
        call = asyncio.ensure_future(app.aenqueue("noop", payload))
        await asyncio.sleep(0)
        payload["list"].append(2)
        return await call

    assert asyncio.run(main()).task().payload == {"list": [1]}


def test_many_loops_one_after_another(app: dtq.App) -> None:
    for i in range(5):
        asyncio.run(app.aenqueue("noop", {"i": i}))
    assert app.broker.queue_counts("default").waiting == 5
    assert len(app.coalescers._known) == 1  # those of closed loops are forgotten


def test_a_cancelled_caller_hurts_no_neighbour(app: dtq.App) -> None:
    async def main() -> dtq.Handle[object]:
        gone = asyncio.ensure_future(app.aenqueue("noop", {"i": 1}))
        stays = asyncio.ensure_future(app.aenqueue("noop", {"i": 2}))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(main()).status() is dtq.TaskStatus.QUEUED


def test_a_lost_reply_makes_no_twin(proxy: Proxy) -> None:
    with dtq.App(proxy.url) as app:

        async def main() -> None:
            await app.aenqueue("noop")
            proxy.drop = 1
            await asyncio.gather(*(app.aenqueue("noop", {"i": i}) for i in range(100)))

        asyncio.run(main())
        assert proxy.dropped == 1
        assert app.broker.queue_counts("default").waiting == 101


def test_a_frozen_server_blocks_neither_loop_nor_caller() -> None:
    with PrivateServer("redis") as server, dtq.App(server.url, enqueue_deadline_s=0.5) as app:

        async def main() -> None:
            await app.aenqueue("noop")
            server.freeze()
            started, steps = time.monotonic(), 0
            calls = [asyncio.ensure_future(app.aenqueue("noop", {"i": i})) for i in range(700)]
            while not all(call.done() for call in calls):
                await asyncio.sleep(0.01)
                steps += 1
            assert time.monotonic() - started < 3
            assert steps > 20
            for call in calls:
                with pytest.raises(dtq.BrokerUnavailable):
                    call.result()
            server.thaw()
            await app.aenqueue("noop")

        asyncio.run(main())


def test_a_connection_that_the_server_closed_is_not_used_again(app: dtq.App) -> None:
    """After a restart, or the server's own idle time-out: as sync calls, which ask once and are not refused."""

    async def main() -> None:
        handle = await app.aenqueue("noop")
        app.broker.command("CLIENT", "KILL", "TYPE", "normal")
        assert await handle.astatus() is dtq.TaskStatus.QUEUED
        app.broker.command("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(0)  # the loop has seen the end of the connection
        assert await handle.astatus() is dtq.TaskStatus.QUEUED

    asyncio.run(main())


def test_waiting_in_asyncio(app: dtq.App) -> None:
    async def main() -> None:
        handle = await app.aenqueue("noop", delay=60)
        assert await handle.astatus() is dtq.TaskStatus.PENDING
        with pytest.raises(dtq.ResultTimeout):
            await handle.aresult(timeout=0.01)
        assert await handle.acancel() == "cancelled"
        assert (await handle.atask()).status is dtq.TaskStatus.CANCELLED
        with pytest.raises(dtq.TaskFailed):
            await handle.aresult()
        await app.aclose()

    asyncio.run(main())


def test_a_refused_payload_leaves_no_old_deadline_behind(clean_server: PrivateServer) -> None:
    """It opens a chunk that nobody sends; the task that comes into it later has all of its own time."""

    async def main(app: dtq.App) -> None:
        await app.aenqueue("noop", {})
        with pytest.raises(dtq.InvalidTask):
            await app.aenqueue("noop", {"x": math.nan})
        await asyncio.sleep(0.6)  # longer than an enqueue may take
        assert (await app.aenqueue("noop", {})).id

    with dtq.App(clean_server.url, enqueue_deadline_s=0.5) as app:
        asyncio.run(main(app))
