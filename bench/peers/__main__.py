"""dtq beside its peers: `python -m bench.peers`.

python -m bench.peers                       all of them, three rounds; writes bench/results/peers.json, .md, .png, .svg
python -m bench.peers --peers dtq,celery    these only; writes peers-part.json, …
python -m bench.peers --quick               a tenth of the tasks, one round: do the adapters work? peers-part as well
python -m bench.peers --report FILE         table and chart from a JSON file, nothing is measured
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import describe
from bench.peers.cycle import capacity, measure
from bench.peers.entrant import DEFAULTS, Entrant, Session
from bench.peers.environments import HERE, ROOT, Adapter, Unavailable, chart_python, load_adapters, prepare
from bench.peers.kill import kill_all
from bench.peers.server import Server
from bench.peers.table import SKIPPED, markdown
from bench.report import rounded

RESULTS = ROOT / "bench" / "results"
KILL_SECONDS = 12.0
"""What an entrant's turn in the kill test takes, about."""
QUICK = {"stamp": 100, "load": 200, "kill": 400}
"""Tasks of `--quick` that are not a tenth."""


@dataclass
class Report:
    """Everything that the JSON file holds."""

    machine: dict[str, Any]
    entrants: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=lambda: dict(SKIPPED))
    runs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def main() -> int:
    """Prepare the environments, measure in rounds, report; 1 when a figure of dtq is missing."""
    options = _arguments()
    if options.report:
        report = json.loads(options.report.read_text())
        _write(report, options.report.with_suffix(""))
        return 0
    started = time.monotonic()
    with Server() as server:
        report = Report(_machine(server, options))
        entrants = _enter(report, options)
        print(f"environments ready after {time.monotonic() - started:.0f} s", flush=True)
        bare = load_adapters()["bare"]
        rate = capacity(_entrant("bare", bare, prepare(bare), options), server)
        report.machine["burn_capacity_per_s"] = rate
        print(f"bare processes do {rate:.0f} tasks of 5 ms CPU a second", flush=True)
        chance = random.Random(options.seed)
        measured = [entrant for entrant in entrants if entrant.size("drain")]
        longest = 0.0
        for number in range(options.rounds):
            round_started = time.monotonic()
            if (
                round_started - started + longest + KILL_SECONDS * len(entrants) + options.kill_wait
                > options.minutes * 60
            ):
                print(f"{number} rounds: a further one would not end within {options.minutes:.0f} minutes", flush=True)
                break
            for entrant in chance.sample(measured, len(measured)):
                begun = time.monotonic()
                figures, problems = measure(entrant, server, rate / 2)
                figures["turn_seconds"] = time.monotonic() - begun
                _note(report, options.out, entrant, number, figures, problems)
            longest = max(longest, time.monotonic() - round_started)
            report.machine["rounds"] = number + 1
    if options.kill_wait > 0:
        able = [entrant for entrant in entrants if entrant.size("kill")]
        for entrant, figures, problems in kill_all(chance.sample(able, len(able)), options.kill_wait):
            _note(report, options.out, entrant, options.rounds, figures, problems)
    report.seconds = time.monotonic() - started
    _write(rounded(asdict(report)), options.out)
    print(f"{report.seconds / 60:.1f} minutes; {options.out}.json")
    return 1 if any(run["problems"] for run in report.runs if run["entrant"] == "dtq") else 0


def _enter(report: Report, options: argparse.Namespace) -> list[Entrant]:
    """The entrants whose environments stand; the others are noted with the reason."""
    found: list[Entrant] = []
    for adapter in load_adapters().values():
        wanted = [name for name in adapter.entrants if not options.peers or {adapter.name, name} & set(options.peers)]
        if not wanted:
            continue
        try:
            driver = prepare(adapter)
            found += [_entrant(name, adapter, driver, options) for name in wanted]
        except Unavailable as reason:
            report.skipped |= dict.fromkeys(wanted, str(reason))
            print(f"skipped {', '.join(wanted)}: {reason}", file=sys.stderr, flush=True)
    with Server() as server:
        for entrant in found:
            session = Session(entrant, server, results=False)
            description, naps = session.describe(), session.describe(naps=True)
            session.close()
            report.entrants[entrant.name] = {
                "adapter": entrant.adapter.name,
                "tuning": entrant.adapter.tuning,
                "recovery": entrant.adapter.recovery,
                "handlers": description["handlers"],
                "nap_handlers": naps["handlers"],
                "versions": description["versions"],
                "sizes": {work: entrant.size(work) for work in (*DEFAULTS, "drain", "nap")},
            }
    return found


def _entrant(name: str, adapter: Adapter, driver: tuple[str, ...], options: argparse.Namespace) -> Entrant:
    sizes = adapter.entrants[name]
    if options.quick and "drain" in sizes:
        tenths = {work: max(100, size // 10) if size else 0 for work, size in (DEFAULTS | sizes).items()}
        sizes = tenths | {work: size for work, size in QUICK.items() if tenths[work]}
    return Entrant(name, adapter, driver, options.processes, sizes)


def _note(
    report: Report, out: Path, entrant: Entrant, number: int, figures: dict[str, Any], problems: list[str]
) -> None:
    """Keep a run, and say something about it."""
    problems = [problem.replace(str(ROOT), ".") for problem in problems]
    report.runs.append({"entrant": entrant.name, "round": number, "figures": figures, "problems": problems})
    _save(rounded(asdict(report)), out)
    shown = ("enqueue_per_s", "bulk_per_s", "drain_per_s", "drain_results_per_s", "burn_per_s", "nap_per_s",
             "pick_up_p50_ms", "load_p99_ms", "kill_lost", "kill_twice", "kill_seconds", "turn_seconds")  # fmt: skip
    words = [f"{name} {rounded(figures[name])}" for name in shown if name in figures]
    print(f"{number} {entrant.name}: {', '.join(words)}", *problems, sep="\n    ", flush=True)


def _write(report: dict[str, Any], out: Path) -> None:
    """The JSON file, the table, and the chart if matplotlib is to be had."""
    source = _save(report, out)
    out.with_suffix(".md").write_text(markdown(report))
    try:
        subprocess.run([str(chart_python()), str(HERE / "chart.py"), str(source)], check=True)
    except (Unavailable, subprocess.CalledProcessError) as reason:
        print(f"no chart: {reason}", file=sys.stderr)


def _save(report: dict[str, Any], out: Path) -> Path:
    """The JSON file, after every turn: a run that is stopped has not been in vain."""
    out.parent.mkdir(parents=True, exist_ok=True)
    source = out.with_suffix(".json")
    source.write_text(json.dumps(report, indent=1) + "\n")
    return source


def _machine(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    facts = {"rounds": 0, "quick": options.quick, "seed": options.seed}
    return {**describe(server.version), **facts}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=lambda text: text.split(","), default=[], help="names of adapters or entrants")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks, one round, short waits")
    parser.add_argument("--rounds", type=int, help="turns of each entrant (3)")
    parser.add_argument("--minutes", type=float, default=39.0, help="no further round if it would take longer (39)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes (one per CPU)")
    parser.add_argument("--kill-wait", type=float, help="seconds to wait after a kill (120); 0: no kill test")
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns (1)")
    parser.add_argument("--out", type=Path, help="where to write, without the suffix")
    parser.add_argument("--report", type=Path, metavar="FILE", help="only make table and chart from this JSON file")
    options = parser.parse_args()
    options.out = options.out or RESULTS / ("peers-part" if options.quick or options.peers else "peers")
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.kill_wait is None:
        options.kill_wait = 40.0 if options.quick else 120.0
    return options


if __name__ == "__main__":
    sys.exit(main())
