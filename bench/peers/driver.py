"""The producer, run in a peer's own environment: `python -m bench.peers.driver ADAPTER describe|produce …`.

It prints one JSON object. The programs in other languages take the same arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import inspect
import json
import os
import platform
import random
import re
import time
from collections.abc import Coroutine
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from bench.peers.handlers import payload

TIMED = ("stamp", "load")


def main() -> None:
    """Describe the adapter, or enqueue."""
    options = _arguments()
    adapter = importlib.import_module(f"bench.peers.adapters.{options.adapter}")
    if options.what == "describe":
        print(json.dumps(_description(adapter, options)))
        return
    enqueue = adapter.enqueue_many if options.bulk else adapter.enqueue
    if inspect.iscoroutinefunction(enqueue):
        seconds, cpu_s = _run(_produce_async(adapter, enqueue, options))
    else:
        seconds, cpu_s = _produce(enqueue, options)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), flush=True)
    os._exit(0)  # some clients' threads do not end


def _description(adapter: ModuleType, options: argparse.Namespace) -> dict[str, Any]:
    names = [re.split(r"[\[=]", requirement)[0] for requirement in getattr(adapter, "REQUIREMENTS", ("dtq", "redis"))]
    return {
        "workers": adapter.workers(options.processes, options.naps),
        "handlers": adapter.NAP_HANDLERS if options.naps else adapter.HANDLERS,
        "bulk": hasattr(adapter, "enqueue_many"),
        "versions": {
            platform.python_implementation(): platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names},
        },
    }


def _produce(enqueue: Any, options: argparse.Namespace) -> tuple[float, float]:
    kind, timed = options.kind, options.kind in TIMED
    items = _items(options)
    if timed:
        enqueue("noop", payload(0))  # imports and connects: the first tasks would wait for that, and come in a burst
    for item in items[: options.warm_up]:
        enqueue(kind, item)
    started, cpu = time.perf_counter(), time.process_time()
    for item, due in zip(items[options.warm_up :], _due(options), strict=True):
        if due and (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        if timed:
            item["t"] = time.monotonic()
        enqueue(kind, item)
    return time.perf_counter() - started, time.process_time() - cpu


async def _produce_async(adapter: ModuleType, enqueue: Any, options: argparse.Namespace) -> tuple[float, float]:
    kind, timed = options.kind, options.kind in TIMED
    items = _items(options)
    async with adapter.session() if hasattr(adapter, "session") else nullcontext():
        if timed:
            await enqueue("noop", payload(0))
        for item in items[: options.warm_up]:
            await enqueue(kind, item)
        started, cpu = time.perf_counter(), time.process_time()
        for item, due in zip(items[options.warm_up :], _due(options), strict=True):
            if due and (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if timed:
                item["t"] = time.monotonic()
            await enqueue(kind, item)
        return time.perf_counter() - started, time.process_time() - cpu


def _items(options: argparse.Namespace) -> list[Any]:
    """A payload for each call, or a chunk of them."""
    numbers = range(options.first, options.first + options.tasks)
    if not options.bulk:
        return [payload(number) for number in numbers]
    return [
        [payload(number) for number in numbers[start : start + options.bulk]]
        for start in range(0, options.tasks, options.bulk)
    ]


def _due(options: argparse.Namespace) -> list[float]:
    """When each call is to be made; 0: at once. Gaps are random, so that no poll is met or missed every time."""
    calls = -(-options.tasks // options.bulk) if options.bulk else options.tasks - options.warm_up
    if not options.rate:
        return [0.0] * calls
    chance = random.Random(options.first + options.tasks)
    due, moment = [], time.monotonic() + 0.1
    for _ in range(calls):
        moment += (
            chance.expovariate(options.rate) if options.kind == "load" else chance.uniform(0.5, 1.5) / options.rate
        )
        due.append(moment)
    return due


def _run(work: Coroutine[Any, Any, tuple[float, float]]) -> tuple[float, float]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("adapter")
    parser.add_argument("what", choices=("describe", "produce"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--naps", action="store_true", help="describe the workers for I/O-bound tasks")
    parser.add_argument("--kind", default="noop")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=0, help="so many calls are not timed: imports, connections")
    parser.add_argument("--first", type=int, default=0, help="number of the first task")
    parser.add_argument("--bulk", type=int, default=0, help="chunk size of the peer's own bulk call; 0: one by one")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="calls a second at random moments; 0: as fast as it goes"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
