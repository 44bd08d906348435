"""The chart of a growth run, one panel for each curve. Run with matplotlib's environment, with FILE.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "dtq"  # the same figures make the same file
matplotlib.rcParams["svg.fonttype"] = "none"

import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)

COLOURS = ("#c2410c", "#475569", "#0f766e", "#7c3aed")
TITLES = {
    "children": ("Children", False),
    "batch": ("Batch: tasks that one turn claims at most", True),
    "payload": ("Payload, KiB", True),
    "backlog": ("Backlog, tasks", True),
    "queues": ("Queues of one worker", True),
    "round_trip": ("Round trip, ms", False),
}
"""What the x axis shows, and whether it is logarithmic."""


def main() -> None:
    """Write FILE.svg."""
    source = Path(sys.argv[1])
    report = json.loads(source.read_text())
    shown = [name for name in TITLES if report["curves"].get(name)]
    rows = (len(shown) + 1) // 2
    figure, grid = plt.subplots(rows, 2, figsize=(10, 2.9 * rows), layout="constrained", squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(shown):
            axes.set_visible(False)
            continue
        name = shown[place]
        _panel(axes, report["curves"][name], *TITLES[name], by_children=name == "round_trip")
        if name == "backlog":
            _memory(axes, report["curves"][name])
    machine = report["machine"]
    figure.suptitle(
        f"Tasks a second, drained by one worker; {machine['cpus']} CPUs shared with Redis {machine['redis']}",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    figure.savefig(source.with_suffix(".svg"), metadata={"Date": None})


def _panel(axes: Any, curve: list[dict[str, Any]], title: str, logarithmic: bool, *, by_children: bool) -> None:
    lines: dict[int, list[dict[str, Any]]] = {}
    for point in curve:
        lines.setdefault(point["children"] if by_children else 0, []).append(point)
    for colour, (children, line) in zip(COLOURS, sorted(lines.items()), strict=False):
        places, rates = [point["x"] for point in line], [point["per_s"] for point in line]
        axes.plot(places, rates, marker="o", markersize=4, color=colour, label=f"{children} children")
        axes.fill_between(
            places, *zip(*(point["range_per_s"] for point in line), strict=True), color=colour, alpha=0.15
        )
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xticks([point["x"] for point in curve], [_short(point["x"]) for point in curve])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(title, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if by_children:
        axes.legend(fontsize=8, frameon=False)


def _memory(axes: Any, curve: list[dict[str, Any]]) -> None:
    """What the server needs for the backlog, on an axis of its own."""
    other = axes.twinx()
    places, megabytes = zip(
        *((point["x"], point["queued_bytes"] * point["tasks"] / 1e6) for point in curve), strict=True
    )
    other.plot(places, megabytes, marker="s", markersize=3, linestyle="--", color=COLOURS[1])
    other.set_yscale("log")
    other.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,g}"))
    other.minorticks_off()
    other.set_ylabel("Redis memory, MB (dashed)", fontsize=8, color=COLOURS[1])
    other.tick_params(labelsize=8)
    other.spines[["top", "left"]].set_visible(False)


def _short(number: float) -> str:
    """1000000 as 1M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{name}"
    return f"{number:g}"


if __name__ == "__main__":
    main()
