"""`once`: at most one run per key, whatever comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import pytest

import dtq
from dtq import side_effects
from tests.client.proxy import Proxy


def counted(result: object = None) -> tuple[list[int], Callable[[], object]]:
    """An effect and the list of its runs."""
    runs: list[int] = []

    def effect() -> object:
        runs.append(1)
        return result

    return runs, effect


def test_the_second_call_gives_the_first_result(app: dtq.App) -> None:
    """In this process, and in any other with the same server; both get the result as JSON gives it."""
    runs, effect = counted({"sent": (1, 2)})
    first = dtq.once("mail:7", 60, effect, app=app)
    assert dtq.once("mail:7", 60, effect, app=app) == first == {"sent": [1, 2]}
    assert len(runs) == 1
    dtq.once("mail:8", 60, effect, app=app)
    assert len(runs) == 2
    assert 59_000 < app.broker.command("PTTL", app.broker.keys.once("mail%3A7")) <= 60_000


def test_many_at_once_run_it_once(app: dtq.App) -> None:
    """The others are told that it runs."""
    began, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def effect() -> str:
        runs.append(1)
        began.set()
        go.wait(10)
        return "done"

    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(dtq.once("k", 60, effect, app=app)))
    thread.start()
    began.wait(10)
    for _ in range(5):
        with pytest.raises(dtq.OnceInProgress, match="'k'"):
            dtq.once("k", 60, effect, app=app)
    go.set()
    thread.join()
    assert (results, len(runs)) == (["done"], 1)
    assert dtq.once("k", 60, effect, app=app) == "done"


def test_an_exception_sets_the_key_free(app: dtq.App) -> None:
    """Nothing has happened, so the next attempt runs it."""

    def fails() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        dtq.once("k", 60, fails, app=app)
    runs, effect = counted(1)
    assert dtq.once("k", 60, effect, app=app) == 1
    assert len(runs) == 1


def test_an_interruption_leaves_it_taken_until_the_ttl(app: dtq.App) -> None:
    """Nobody can know whether it happened: not again before the ttl is over."""

    def interrupted() -> None:
        raise dtq.TaskTimeout("stopped")

    with pytest.raises(dtq.TaskTimeout):
        dtq.once("k", 0.3, interrupted, app=app)
    runs, effect = counted()
    with pytest.raises(dtq.OnceInProgress):
        dtq.once("k", 0.3, effect, app=app)
    assert runs == []
    deadline = time.monotonic() + 5
    while not runs and time.monotonic() < deadline:
        with contextlib.suppress(dtq.OnceInProgress):
            dtq.once("k", 60, effect, app=app)
    assert len(runs) == 1


def test_a_run_that_outlived_its_ttl_does_not_overwrite_the_next(app: dtq.App) -> None:
    """Compared before it is kept."""

    def slow() -> str:
        app.broker.command("DEL", app.broker.keys.once("k"))  # its ttl is over
        assert dtq.once("k", 60, lambda: "second", app=app) == "second"
        return "first"

    assert dtq.once("k", 60, slow, app=app) == "first"
    assert dtq.once("k", 60, lambda: "third", app=app) == "second"


def test_a_result_that_is_no_json_counts_as_done(app: dtq.App) -> None:
    """It has happened: told, and never again."""
    runs, effect = counted(object())
    with pytest.raises(dtq.InvalidTask, match="result"):
        dtq.once("k", 60, effect, app=app)
    assert dtq.once("k", 60, effect, app=app) is None
    assert len(runs) == 1


@pytest.mark.parametrize(("key", "ttl"), [("", 60), ("k", 0), ("k", float("nan"))])
def test_wrong_arguments_run_nothing(app: dtq.App, key: str, ttl: float) -> None:
    runs, effect = counted()
    with pytest.raises(dtq.InvalidTask):
        dtq.once(key, ttl, effect, app=app)
    assert runs == []


def test_outside_of_a_worker_it_wants_an_app() -> None:
    assert side_effects._of_worker == []
    with pytest.raises(RuntimeError, match="app="):
        dtq.once("k", 60, lambda: None)


def test_a_lost_reply_runs_it_once(proxy: Proxy) -> None:
    """The key is taken, the answer is lost: the repeat finds its own name."""
    with dtq.App(proxy.url) as app:
        app.broker.command("PING")
        runs, effect = counted("x")
        for key, command in (("k", b"SET"), ("l", b"EVALSHA")):
            proxy.only, proxy.drop = command, 1
            assert dtq.once(key, 60, effect, app=app) == "x"
        assert (len(runs), proxy.dropped) == (2, 2)
        assert dtq.once("k", 60, effect, app=app) == "x"


def test_the_async_one(app: dtq.App) -> None:
    """The same rules; cancelled inside, the key stays taken."""
    runs: list[int] = []

    async def effect() -> str:
        runs.append(1)
        await asyncio.sleep(0)
        return "done"

    inside = asyncio.Event()

    async def hangs() -> None:
        inside.set()
        await asyncio.sleep(60)

    async def scenario() -> None:
        assert await dtq.aonce("k", 60, effect, app=app) == "done"
        assert await dtq.aonce("k", 60, effect, app=app) == "done"
        task = asyncio.create_task(dtq.aonce("cut", 60, hangs, app=app))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(dtq.OnceInProgress):
            await dtq.aonce("cut", 60, effect, app=app)

    asyncio.run(scenario())
    assert len(runs) == 1
