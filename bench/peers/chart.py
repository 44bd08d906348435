"""The chart of a run: how fast each entrant drains. Run with matplotlib's environment: `chart.py FILE.json`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "dtq"  # the same figures make the same file
matplotlib.rcParams["svg.fonttype"] = "none"

import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)

OWN, OTHER, RESULTS_ALPHA = "#c2410c", "#475569", 0.45


def main() -> None:
    """Write FILE.png and FILE.svg."""
    source = Path(sys.argv[1])
    report = json.loads(source.read_text())
    rates = {
        name: (_median(report, name, "drain_per_s"), _median(report, name, "drain_results_per_s"))
        for name in report["entrants"]
    }
    shown = sorted((name for name, each in rates.items() if any(each)), key=lambda name: max(rates[name]))
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(shown) + 1.4), layout="constrained")
    longest = max(max(rates[name]) for name in shown)
    for row, name in enumerate(shown):
        colour = OWN if name == "dtq" else OTHER
        for place, alpha, rate in ((0.2, 1.0, rates[name][0]), (-0.2, RESULTS_ALPHA, rates[name][1])):
            axes.barh(row + place, rate, height=0.36, color=colour, alpha=alpha)
            axes.text(rate + longest * 0.008, row + place, f"{rate:,.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_xlim(0, longest * 1.1)
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    machine = report["machine"]
    axes.set_title("Tasks a second, drained by one worker on each CPU", loc="left", fontsize=11)
    where = f"{machine['cpus']} CPUs shared with Redis {machine['redis']}"
    axes.set_xlabel(f"no-op tasks of 150 bytes; dark: no results, light: results kept; {where}", fontsize=8)
    figure.savefig(source.with_suffix(".png"), dpi=150, metadata={"Software": None})
    figure.savefig(source.with_suffix(".svg"), metadata={"Date": None})


def _median(report: dict[str, Any], entrant: str, name: str) -> float:
    values = [run["figures"][name] for run in report["runs"] if run["entrant"] == entrant and name in run["figures"]]
    return statistics.median(values) if values else 0.0


if __name__ == "__main__":
    main()
