"""Answers that wait to be read: in order, whole, and not in memory."""

from __future__ import annotations

import asyncio
import random

import pytest

from dtq.api.outbox import IN_MEMORY_BYTES, Outbox


async def drain(outbox: Outbox) -> bytes:
    read = b""
    while (piece := await outbox.get()) is not None:
        read += piece
    return read


@pytest.mark.parametrize("seed", range(5))
def test_everything_comes_out_in_order(seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        outbox, put, got = Outbox(), bytearray(), bytearray()
        for number in range(400):
            piece = b"%06d" % number * chance.randrange(1, 5000)
            outbox.put(piece)
            put += piece
            assert outbox._size <= IN_MEMORY_BYTES
            for _ in range(chance.choice((0, 0, 0, 1, 3))):
                if len(got) < len(put):
                    got += await outbox.get() or b""
        outbox.end()
        got += await drain(outbox)
        assert got == put
        outbox.close()

    asyncio.run(main())


def test_a_reader_waits_for_what_comes() -> None:
    async def main() -> None:
        outbox = Outbox()
        reading = asyncio.create_task(drain(outbox))
        for piece in (b"a", b"b"):
            await asyncio.sleep(0)
            outbox.put(piece)
        await asyncio.sleep(0)
        outbox.end()
        assert await reading == b"ab"

    asyncio.run(main())


def test_a_failure_comes_after_what_was_put() -> None:
    async def main() -> None:
        outbox = Outbox()
        outbox.put(b"a")
        outbox.end(ValueError("no"))
        assert await outbox.get() == b"a"
        with pytest.raises(ValueError, match="no"):
            await outbox.get()

    asyncio.run(main())
