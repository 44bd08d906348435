"""Operating a queue from asyncio: every method has its twin, which does the same and never blocks the loop."""

from __future__ import annotations

import asyncio
import time

import pytest

import dtq
from tests.broker.driver import Child
from tests.servers import PrivateServer


def die(app: dtq.App, child: Child, count: int) -> list[str]:
    """Ids of so many dead letters."""
    ids = [app.enqueue("noop", {"i": i}).id for i in range(count)]
    for claim in child.claim(count):
        child.end(claim, "D")
    child.turn(0)
    return ids


def test_every_method_has_a_twin() -> None:
    """The naming rule of handles and tasks; new methods are not forgotten."""
    methods = {name for name in vars(dtq.Queue) if not name.startswith("_")}
    plain = {name for name in methods if f"a{name}" in methods}
    assert plain | {f"a{name}" for name in plain} == methods
    assert {"pause", "requeue_all", "purge_steps", "counts"} <= plain


def test_the_twins_do_what_their_names_say(app: dtq.App, child: Child) -> None:
    async def main() -> None:
        queue = app.queue(actor="ada")
        ids = die(app, child, 6)
        assert await queue.apause()
        assert (await queue.acounts()).paused
        assert await queue.aresume()
        assert not await queue.aresume()
        assert await queue.adead_letter_count() == 6
        assert [letter.task_id async for letter in queue.adead_letters(oldest_first=True)] == ids
        assert (await queue.adead_letter(ids[0])).task_id == ids[0]
        assert (await queue.arequeue(ids[0], payload={"i": 9})).id == ids[0]
        with pytest.raises(dtq.IllegalTransition):
            await queue.arequeue(ids[0])
        assert (await queue.adiscard(ids[1])).task_id == ids[1]
        async for item in queue.arequeue_all():
            assert (item.letter.task_id, item.error) == (ids[2], None)
            break
        assert [letter.task_id async for letter in queue.adiscard_all(dry_run=True)] == ids[3:]
        assert await queue.apurge_dead_letters() == 3
        assert await queue.apurge() == 2
        assert await app.aaudit(1) == app.audit(1)
        assert [taken async for taken in queue.apurge_steps()].count(0) > 0

    asyncio.run(main())
    assert {entry.actor for entry in app.audit()} == {"ada"}


def test_a_cancelled_walk_writes_what_it_did(app: dtq.App, child: Child) -> None:
    """The step under way ends, and the audit names what was not queued again by then."""
    ids = die(app, child, 3)

    async def walk() -> None:
        async for _ in app.queue().arequeue_all(rate=2):
            pass

    async def main() -> None:
        task = asyncio.create_task(walk())
        while not (await app.queue().acounts()).waiting:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    not_done, announced = app.audit(2)
    assert announced.facts["ids"] == ids
    assert not_done.facts["not_done"] == ids[3 - app.queue().dead_letter_count() :]


def test_a_frozen_server_does_not_block_the_loop() -> None:
    with PrivateServer("redis") as server, dtq.App(server.url, enqueue_deadline_s=0.5) as app:

        async def main() -> None:
            server.freeze()
            call, longest, last = asyncio.create_task(app.queue().acounts()), 0.0, time.monotonic()
            while not call.done():
                await asyncio.sleep(0.01)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            assert longest < 0.3
            with pytest.raises(dtq.BrokerUnavailable):
                call.result()
            server.thaw()

        asyncio.run(main())
