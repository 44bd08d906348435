"""What Redis is asked for each task: round trips, and commands with those inside scripts. Noise moves neither.

    python bench/redis_counts.py                             print the counts
    python bench/redis_counts.py --record                    and write them to bench/counts.json

Tasks are enqueued through the client and drained by one consumer in turns of 100, as a child sends them, on a private
server. A round trip is one send on a connection (dtq waits for a reply before the next); commands come from the
server's `INFO commandstats`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import record
from bench.servers import Server, open_server
from bench.turns import Consumer
from bench.workload import Workload, payload
from dtq.wire import Wire

PART = "redis"
BATCH = 100
TASKS = 1_000
"""Ten turns and one that claims nothing."""
KEPT_S = 604_800.0


def main() -> int:
    """Print, and record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the counts to bench/counts.json")
    options = parser.parse_args()
    with open_server("redis") as server:
        counts = measure(server)
    print(json.dumps(counts, indent=2))
    if options.record:
        record.write(PART, counts, tools={})
    return 0


def measure(server: Server) -> dict[str, float]:
    """Counts for each task, named `<work> round trips` and `<work> <command>`, and the sum of all commands."""
    work = Workload(url=server.url, prefix=server.prefix)
    counts: dict[str, float] = {}

    def one_by_one() -> None:
        for index in range(TASKS):
            work.noop.enqueue(**payload(index))

    def bulk() -> None:
        assert sum(1 for _ in work.noop.enqueue_many(map(payload, range(TASKS)))) == TASKS

    for name, enqueue in (("enqueue one", one_by_one), ("enqueue bulk", bulk)):
        for number in range(2):  # the first connects and makes the queue known, the second loads the short script
            work.noop.enqueue(**payload(number))
        counts |= _counted(server, name, enqueue)
        server.clear()
    for name, retention in (("drain kept", KEPT_S), ("drain retention 0", 0.0)):
        task = work.noop.options(retention=retention)
        consumer = Consumer(server, "default")
        list(task.enqueue_many([payload(0)]))
        consumer.drain(1, BATCH)
        assert sum(1 for _ in task.enqueue_many(map(payload, range(TASKS)))) == TASKS
        counts |= _counted(server, name, partial(consumer.drain, TASKS, BATCH))
        consumer.close()
        server.clear()
    work.app.close()
    return counts


def _counted(server: Server, name: str, work: Callable[[], None]) -> dict[str, float]:
    server.client.config_resetstat()
    with _sends_counted() as sends:
        work()
        sent = len(sends)
    stats: dict[str, Any] = server.client.info("commandstats")
    calls = {command.removeprefix("cmdstat_"): stat["calls"] / TASKS for command, stat in sorted(stats.items())}
    calls = {command: number for command, number in calls.items() if command not in {"config|resetstat", "info"}}
    return {
        f"{name}: round trips": sent / TASKS,
        f"{name}: commands": sum(calls.values()),
        **{f"{name}: {command}": number for command, number in calls.items()},
    }


@contextmanager
def _sends_counted() -> Iterator[list[None]]:
    """A list that grows by one whenever a connection of this process sends."""
    sends: list[None] = []
    original = Wire.ask

    def counting(self: Wire, *arguments: Any, **options: Any) -> Any:
        sends.append(None)
        return original(self, *arguments, **options)

    Wire.ask = counting  # type: ignore[method-assign]
    try:
        yield sends
    finally:
        Wire.ask = original  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
