"""What docs/performance.md shows of recorded runs: tables made of the JSON files in bench/results.

docs/generate.py writes them between the page's marks. A file that is not there is said to be missing: no figure on the
page has another source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench import growth_report
from bench.peers import table as peers_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
RUNS = {
    "throughput.json": "bench/throughput.py --json",
    "throughput_retention_0.json": "bench/throughput.py --retention 0 --json",
    "latency.json": "bench/latency.py --json",
    "recovery.json": "bench/recovery.py --json",
    "spin.json": "bench/throughput.py --handler spin --json",
    "concurrency.json": "bench/concurrency.py --json",
    "queues.json": "bench/queues.py --json",
    "peers.json": "-m bench.peers",
    "growth.json": "bench/growth.py",
}
"""Recorded runs, and what Python is given to make them."""

Figures = dict[str, Any]

_THROUGHPUT = (
    ("drained, tasks/s", "drain_per_s"),
    ("children at that rate", "children"),
    ("bare streams, tasks/s", "ceiling_per_s"),
    ("enqueued in bulk, tasks/s", "enqueue_bulk_per_s"),
    ("enqueued one by one, tasks/s", "enqueue_one_per_s"),
    ("bare XADD one by one, calls/s", "xadd_one_per_s"),
    ("100 async callers, uvloop, tasks/s", "aenqueue_per_s"),
    ("100 async callers, asyncio, tasks/s", "aenqueue_asyncio_per_s"),
    ("Redis µs a task, enqueue", "redis_enqueue_us_per_task"),
    ("Redis µs a task, drain", "redis_drain_us_per_task"),
    ("bare streams, Redis µs a task", "bare_redis_us_per_task"),
    ("child µs a task", "child_cpu_us_per_task"),
    ("Redis busy, of one core", "redis_busy"),
    ("other programs, cores", "others_busy"),
    ("bytes a queued task", "queued_bytes_per_task"),
    ("private memory of a child, MB", "child_private_mb"),
)
_RECOVERY = (
    ("a killed child's successor has started a task", "child_replaced"),
    ("the task of a killed child starts again", "dead_child_rerun"),
    ("the task of a killed worker starts again, after its lease", "after_lease"),
    ("what is claimed behind a slow handler starts elsewhere", "hand_back"),
)


def recorded(directory: Path = RESULTS) -> dict[str, Figures]:
    """Every recorded run that is there, by the name of its file."""
    return {name: json.loads((directory / name).read_text()) for name in RUNS if (directory / name).exists()}


def measured(runs: dict[str, Figures]) -> str:
    """Machine and tables of all runs but growth."""
    parts = [
        "### Machines and versions",
        _table(["run", "made by", "date", "revision", "machine", "Redis", "Python"], _machines(runs)),
        "### Throughput",
        _throughput(runs),
        "### Latency",
        _latency(runs.get("latency.json")),
        "### Handlers that burn, and handlers that wait",
        _handlers(runs.get("spin.json"), runs.get("concurrency.json")),
        "### Many queues, and an idle worker",
        _queues(runs.get("queues.json")),
        "### Recovery",
        _recovery(runs.get("recovery.json")),
        "### Beside other task queues",
        _peers(runs.get("peers.json")),
        "### Where dtq loses",
        _losses(runs),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def growth(runs: dict[str, Figures]) -> str:
    """The section Growth, with the chart if there is one."""
    chart = (
        "![throughput against children, batch, payload, backlog, queues, round trip](../bench/results/growth.svg)\n\n"
    )
    there = "growth.json" in runs and (RESULTS / "growth.svg").exists()
    return (chart if there else "") + growth_report.section(runs.get("growth.json"))


def _missing(name: str) -> str:
    return f"Not recorded: `python {RUNS[name]}`."


def _machines(runs: dict[str, Figures]) -> Iterator[list[str]]:
    for name, command in RUNS.items():
        run = runs.get(name)
        machine: Figures = (run or {}).get("machine") or {}
        keys = ("date", "revision", "cpu", "redis", "python")
        cells = [str(machine.get(key, "not recorded" if run is None else "–")) for key in keys]
        if "cpus" in machine:
            cells[2] = f"{machine['cpus']} × {cells[2]}, {machine['system']}"
        yield [name.removesuffix(".json"), f"`python {command}`", *cells]


def _throughput(runs: dict[str, Figures]) -> str:
    kept, gone = runs.get("throughput.json"), runs.get("throughput_retention_0.json")
    if kept is None or gone is None:
        return _missing("throughput.json" if kept is None else "throughput_retention_0.json")
    rows = ([title, _number(kept[name]), _number(gone[name])] for title, name in _THROUGHPUT if name in kept)
    return (
        f"{kept['tasks']:,} no-ops of 150 bytes, medians of {kept['repeats']} runs. Bare streams are redis-py clients\n"
        "without states, records or retries, as many processes on the same server, in turns with dtq.\n\n"
        + _table(["", "results kept", "retention 0"], rows)
    )


def _latency(run: Figures | None) -> str:
    if run is None:
        return _missing("latency.json")
    rows = [
        ["enqueue call to handler start, idle", *(_number(run[f"p{percent}_us"]) for percent in (50, 95, 99))],
        ["bare XADD to XREADGROUP, redis-py", *(_number(run[f"floor_p{percent}_us"]) for percent in (50, 95, 99))],
        [
            "the same over plain sockets",
            _number(run["wire_floor_p50_us"]),
            "–",
            _number(run["wire_floor_p99_us"]),
        ],
    ]
    for state, word in (("idle", "idle server"), ("half_load", "server half busy")):
        for size in run["claim_p50_us"].get(state, ()):
            for title, name in ((f"a turn that claims {size}", "claim"), (f"XREADGROUP COUNT {size}", "claim_floor")):
                p50, p99 = (run[f"{name}_p{percent}_us"][state][size] for percent in (50, 99))
                rows.append([f"{title}, {word}", _number(p50), "–", _number(p99)])
            script_us = run["claim_evalsha_p50_us"][state][size]
            rows.append([f"bare script that claims {size}, {word}", _number(script_us), "–", "–"])
    return _table(["µs", "p50", "p95", "p99"], rows)


def _handlers(spin: Figures | None, waits: Figures | None) -> str:
    if spin is None or waits is None:
        return _missing("spin.json" if spin is None else "concurrency.json")
    return _table(
        ["handler", "tasks/s", "beside", "fraction"],
        [
            [
                f"burns {spin['spin_ms']:g} ms of CPU, {spin['children']} children",
                _number(spin["spin_per_s"]),
                f"{_number(spin['bare_spin_per_s'])} of as many bare processes",
                f"{spin['spin_fraction']:.1%}",
            ],
            [
                f"async, waits {waits['seconds']:g} s, {waits['concurrency']:,} at a time in one child",
                _number(waits["per_s"]),
                f"{_number(waits['ideal_per_s'])} ideal; a bare uvloop program does "
                f"{waits['bare_fraction_of_ideal']:.1%} of that",
                f"{waits['fraction_of_ideal']:.1%}",
            ],
        ],
    )


def _queues(run: Figures | None) -> str:
    if run is None:
        return _missing("queues.json")
    drains = _table(
        ["ten over one, results kept", "Redis' time a task", "the drain's time"],
        [
            ["queues", f"{run['ratio_queues']:.2f} ×", f"{run['time_ratio_queues']:.2f} ×"],
            ["bands in use", f"{run['ratio_bands']:.2f} ×", f"{run['time_ratio_bands']:.2f} ×"],
        ],
    )
    idle = _table(
        ["idle worker", "CPU of the worker", "CPU of Redis", "Redis commands/s"],
        (
            [
                f"{int(count):,} queue{'s' if int(count) > 1 else ''}",
                f"{each['cpu_percent']:.1f} %",
                f"{each['redis_cpu_percent']:.1f} %",
                _number(each["commands_per_s"]),
            ]
            for count, each in run["idle"].items()
        ),
    )
    start = (
        f"A task on one of {run['latency_queues']:,} queues of an idle worker starts after "
        f"{run['p50_us'] / 1000:.1f} ms (p50), {run['p99_us'] / 1000:.1f} ms (p99)."
    )
    return f"{drains}\n\n{idle}\n\n{start}\n"


def _recovery(run: Figures | None) -> str:
    if run is None:
        return _missing("recovery.json")
    rows = ([title, _number(run[f"{name}_ms"]), _number(run[f"{name}_max_ms"])] for title, name in _RECOVERY)
    return f"Medians of {run['repeats']} tries; the lease was {run['lease_s']:g} s.\n\n" + _table(
        ["ms until", "median", "longest"], rows
    )


def _peers(run: Figures | None) -> str:
    if run is None:
        return _missing("peers.json")
    chart = "![tasks a second, drained](../bench/results/peers.svg)\n\n"
    about = "How it is measured, and how each is tuned, is told in [bench/peers](../bench/peers/README.md).\n\n"
    return about + (chart if (RESULTS / "peers.svg").exists() else "") + peers_table.markdown(run)


def _losses(runs: dict[str, Figures]) -> str:
    lines = [*_lost_to_peers(runs.get("peers.json")), *_lost_to_bare(runs)]
    if not lines:
        return "Nothing is recorded that could tell."
    return "\n".join(f"- {line}" for line in lines)


def _lost_to_peers(run: Figures | None) -> Iterator[str]:
    if run is None:
        yield "beside other task queues: not recorded."
        return
    figures = {
        name: peers_table.medians([each["figures"] for each in run["runs"] if each["entrant"] == name])
        for name in run["entrants"]
    }
    own = figures.get(peers_table.OWN, {})
    none = True
    for title, name, digits, more_is_better in peers_table.COMPARED:
        if name not in own:
            continue
        better = {
            peer: each[name]
            for peer, each in figures.items()
            if peer not in (peers_table.OWN, peers_table.BARE)
            and name in each
            and (each[name] > own[name] if more_is_better else each[name] < own[name])
        }
        if better:
            none = False
            ordered = sorted(better.items(), key=lambda item: item[1], reverse=more_is_better)
            others = ", ".join(f"{peer} {value:,.{digits}f}" for peer, value in ordered)
            yield f"{title}: dtq {own[name]:,.{digits}f}, ahead of it {others}."
    if none:
        yield "beside other task queues: in none of the figures compared above."


def _lost_to_bare(runs: dict[str, Figures]) -> Iterator[str]:
    """What the promises cost, beside clients that make none."""
    for name, words in (("throughput.json", "results kept"), ("throughput_retention_0.json", "retention 0")):
        if run := runs.get(name):
            yield (
                f"beside bare streams, {words}: {run['fraction_of_ceiling']:.0%} of their rate, "
                f"{run['redis_us_per_task'] / run['bare_redis_us_per_task']:.1f} × their Redis time; "
                f"{run['enqueue_one_over_xadd_one']:.0%} of the rate of bare XADDs one by one."
            )
    if run := runs.get("latency.json"):
        yield f"beside a bare XADD that wakes a reader: {run['p50_over_wire_floor']:.1f} × its p50 over plain sockets."


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
