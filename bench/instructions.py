"""Instructions of redis-server for each task, counted by callgrind: enqueue in bulk, drain in turns of 100.

    python bench/instructions.py                             print the counts
    python bench/instructions.py --record                    and write them to bench/counts.json

A time on a busy machine says little; instructions repeat to a fraction of a per cent. Whole programs are counted, as
Debian's server has no symbols: the server's timer is set to its slowest, and what it takes while the commands run is
part of the count. Needs valgrind; takes about half a minute.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import record
from bench.rust_instructions import STEADY, tools_of_callgrind
from bench.servers import Server, private_redis
from bench.turns import Consumer
from bench.workload import Workload, payload

PART = "server"
BATCH = 100
TASKS = 4_000
WARM_UP = 1_000
KEPT_S = 604_800.0
DUMP_TIMEOUT_S = 60.0


def main() -> int:
    """Print, and record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the counts to bench/counts.json")
    options = parser.parse_args()
    counts, tools = measure()
    print(json.dumps({"tools": tools, "counts": counts}, indent=2))
    if options.record:
        record.write(PART, counts, tools)
    return 0


def measure() -> tuple[dict[str, float], dict[str, str]]:
    """Instructions for each task by the name of the work, and the tools that they depend on.

    Raises:
        FileNotFoundError: redis-server is not installed.
        redis.ConnectionError: the server did not start; valgrind may not be installed.
    """
    with tempfile.TemporaryDirectory(prefix="dtq-callgrind-") as directory:
        output = Path(directory) / "out"
        front = (
            "env", *(f"{name}={value}" for name, value in STEADY.items()),
            "valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={output}",
        )  # fmt: skip
        with private_redis(*front) as server:
            server.client.config_set("hz", 1)
            server.client.config_set("dynamic-hz", "no")
            counts = _counts(_Counter(server, output), server)
            version = f"{server.name} {server.version} {server.client.info('server')['redis_build_id']}"
    return counts, {"server": version, **tools_of_callgrind()}


def _counts(counter: _Counter, server: Server) -> dict[str, float]:
    work = Workload(url=server.url, prefix=server.prefix)
    counts: dict[str, float] = {}
    for name, retention in (("kept", KEPT_S), ("retention 0", 0.0)):
        server.clear()
        task = work.noop.options(retention=retention)
        consumer = Consumer(server, "default")

        _enqueue(task, WARM_UP)
        consumer.drain(WARM_UP, BATCH)
        counts[f"enqueue bulk, {name}"] = counter.count(partial(_enqueue, task, TASKS)) / TASKS
        counts[f"drain {name}"] = counter.count(partial(consumer.drain, TASKS, BATCH)) / TASKS
        consumer.close()
    work.app.close()
    return counts


def _enqueue(task: Any, tasks: int) -> None:
    assert sum(1 for _ in task.enqueue_many(map(payload, range(tasks)))) == tasks


class _Counter:
    """Counts what a server under callgrind does while some work runs."""

    def __init__(self, server: Server, output: Path) -> None:
        self._server = server
        self._output = output
        self._pid = str(server.client.info("server")["process_id"])
        self._dumps = 0

    def count(self, work: Callable[[], object]) -> int:
        """Instructions of the server while `work` runs."""
        self._dump()
        work()
        return self._dump()

    def _dump(self) -> int:
        """Instructions since the dump before."""
        self._dumps += 1
        control = ["callgrind_control", "--dump", self._pid]
        subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._server.client.ping()  # wakes the server: a sleeping one does not see the request
        dump = Path(f"{self._output}.{self._dumps}")
        deadline = time.monotonic() + DUMP_TIMEOUT_S
        while not (dump.exists() and (total := re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"callgrind has written no totals within {DUMP_TIMEOUT_S:.0f} s")
            time.sleep(0.05)
        return int(total[1])


if __name__ == "__main__":
    sys.exit(main())
