"""The Markdown tables of a run: medians over the rounds, best first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

SKIPPED = {
    "mayu on free-threaded 3.14": "needs a CPython 3.14t; its process mode is measured instead",
    "fluxqueue": "its worker is a binary that its installer downloads, not in its package",
}
"""Who cannot be here, whatever the machine."""

Value = Callable[[dict[str, float]], str]


def _number(name: str, digits: int = 0) -> Value:
    return lambda figures: f"{figures[name]:,.{digits}f}" if figures.get(name) is not None else "–"


def _sum(digits: int, first: str, *then: str) -> Value:
    """`enqueue + drain` of a cost, the enqueue in bulk where there is such."""

    def show(figures: dict[str, float]) -> str:
        start = figures.get(f"bulk_{first}", figures.get(f"enqueue_{first}"))
        parts = [start, *(figures.get(name) for name in then)]
        return " + ".join("–" if part is None else f"{part:,.{digits}f}" for part in parts)

    return show


def _triple(name: str) -> Value:
    def show(figures: dict[str, float]) -> str:
        values = [figures.get(f"{name}_p{percent}_ms") for percent in (50, 95, 99)]
        return " / ".join("–" if value is None else f"{value:,.2f}" for value in values)

    return show


SPEED: tuple[tuple[str, Value], ...] = (
    ("drain/s", _number("drain_per_s")),
    ("drain/s, results kept", _number("drain_results_per_s")),
    ("enqueue/s, one by one", _number("enqueue_per_s")),
    ("the same, on the server's CPU", _number("enqueue_together_per_s")),
    ("enqueue/s, in bulk", _number("bulk_per_s")),
    ("5 ms CPU tasks/s", _number("burn_per_s")),
    ("10 ms naps/s", _number("nap_per_s")),
    ("pick-up, idle: p50 / p95 / p99 ms", _triple("pick_up")),
    ("at 50 % load: p50 / p95 / p99 ms", _triple("load")),
)
COST: tuple[tuple[str, Value], ...] = (
    ("Redis µs a task, enqueue + drain", _sum(1, "redis_us", "drain_redis_us")),
    ("with results", _sum(1, "redis_us", "drain_results_redis_us")),
    ("commands", _sum(2, "commands", "drain_commands")),
    ("round trips", _sum(2, "round_trips", "drain_round_trips")),
    ("worker CPU µs", _number("drain_worker_us")),
    ("bytes a queued task", _number("drain_queued_bytes")),
    ("left after a drain, results kept", _number("drain_results_left_bytes")),
    ("idle commands/s", _number("idle_commands_per_s")),
    (
        "PSS of the workers, idle / drained, MB",
        lambda f: f"{_number('idle_memory_mb')(f)} / {_number('drain_memory_mb')(f)}",
    ),
)


OWN, BARE = "dtq", "bare"
COMPARED: tuple[tuple[str, str, int, bool], ...] = (
    ("drain/s", "drain_per_s", 0, True),
    ("drain/s, results kept", "drain_results_per_s", 0, True),
    ("enqueue/s, one by one", "enqueue_per_s", 0, True),
    ("the same, on the server's CPU", "enqueue_together_per_s", 0, True),
    ("enqueue/s, in bulk", "bulk_per_s", 0, True),
    ("5 ms CPU tasks/s", "burn_per_s", 0, True),
    ("10 ms naps/s", "nap_per_s", 0, True),
    ("pick-up, idle, p50 ms", "pick_up_p50_ms", 2, False),
    ("pick-up, idle, p99 ms", "pick_up_p99_ms", 2, False),
    ("at 50 % load, p50 ms", "load_p50_ms", 2, False),
    ("at 50 % load, p99 ms", "load_p99_ms", 2, False),
    ("Redis µs a task's life", "drain_life_us", 1, False),
    ("Redis µs a task's life, results kept", "drain_results_life_us", 1, False),
    ("bytes a queued task", "drain_queued_bytes", 0, False),
    ("PSS of idle workers, MB", "idle_memory_mb", 0, False),
    ("idle commands/s", "idle_commands_per_s", 1, False),
)
"""Title, figure, digits, and whether more is better."""


def markdown(report: dict[str, Any]) -> str:
    """All tables of a report."""
    machine = report["machine"]
    runs = {name: [run["figures"] for run in report["runs"] if run["entrant"] == name] for name in report["entrants"]}
    figures = {name: medians(each) for name, each in runs.items()}
    order = sorted(figures, key=lambda name: -figures[name].get("drain_per_s", 0.0))
    drained = [name for name in order if "drain_per_s" in figures[name] or "enqueue_per_s" in figures[name]]
    killed = [name for name in order if "kill_lost" in figures[name]]
    where = f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['system']}, Redis {machine['redis']}"
    lines = [
        f"Measured on {machine['date']}, revision {machine['revision']}, {machine['rounds']} rounds, medians.",
        f"Tasks of 150 bytes; {where}.",
        "",
        *_table(["", OWN, "best peer", f"{OWN} / best", f"{BARE} streams"], _compared(figures)),
        "",
        *_table(
            ["", *(title for title, _ in SPEED)],
            ([name, *(show(figures[name]) for _, show in SPEED)] for name in drained),
        ),
        "",
        *_table(
            ["", *(title for title, _ in COST)],
            ([name, *(show(figures[name]) for _, show in COST)] for name in drained),
        ),
        "",
        *_table(
            [
                "kill -9 of the whole worker",
                "lost, or not back in time",
                "ended twice",
                "started twice",
                "all done after",
                "what brings a dead worker's tasks back",
            ],
            ([name, *_killed(figures[name], runs[name]), report["entrants"][name]["recovery"]] for name in killed),
        ),
        "",
        *_table(
            ["", "handlers", "handlers of naps", "versions", "tuning"],
            ([name, *_about(report["entrants"][name])] for name in order),
        ),
    ]
    if report["skipped"]:
        lines += ["", *_table(["skipped", "why"], ([name, why] for name, why in report["skipped"].items()))]
    problems = [
        f"- {run['entrant']}, round {run['round']}: {text}" for run in report["runs"] for text in run["problems"]
    ]
    if problems:
        lines += ["", "What failed:", "", *(" ".join(problem.split()) for problem in problems)]
    return "\n".join(lines) + "\n"


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    names = {name for figures in rounds for name, value in figures.items() if isinstance(value, (int, float))}
    found = {
        name: statistics.median(figures[name] for figures in rounds if isinstance(figures.get(name), (int, float)))
        for name in names
    }
    enqueued = found.get("bulk_redis_us", found.get("enqueue_redis_us"))
    for name in ("drain", "drain_results"):
        if enqueued is not None and f"{name}_redis_us" in found:
            found[f"{name}_life_us"] = enqueued + found[f"{name}_redis_us"]
    return found


def _compared(figures: dict[str, dict[str, float]]) -> Iterable[list[str]]:
    """dtq beside the best of its peers: a row for each figure that both have."""
    for title, name, digits, more_is_better in COMPARED:
        others = {peer: each[name] for peer, each in figures.items() if peer not in (OWN, BARE) and name in each}
        own = figures.get(OWN, {}).get(name)
        if own is None or not others:
            continue
        best = (max if more_is_better else min)(others, key=lambda peer: others[peer])
        ratio = f"{own / others[best]:,.2f}" if others[best] else "–"
        bare = _number(name, digits)(figures.get(BARE, {}))
        yield [title, f"{own:,.{digits}f}", f"{others[best]:,.{digits}f} ({best})", ratio, bare]


def _killed(figures: dict[str, float], rounds: list[dict[str, Any]]) -> list[str]:
    waited = next(each["kill_waited_s"] for each in rounds if "kill_waited_s" in each)
    seconds = figures.get("kill_seconds")
    done = f"not within {waited:.0f} s" if seconds is None else f"{seconds:.1f} s"
    return [f"{figures[name]:.0f}" for name in ("kill_lost", "kill_twice", "kill_started_twice")] + [done]


def _about(entrant: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in entrant["versions"].items())
    return [entrant["handlers"], entrant["nap_handlers"], versions, " ".join(entrant["tuning"].split())]


def _table(titles: list[str], rows: Iterable[list[str]]) -> list[str]:
    alignment = ["---", *("--:" if len(titles) > 3 and "tuning" not in titles else "---" for _ in titles[1:])]
    return [f"| {' | '.join(cells)} |" for cells in [titles, alignment, *rows]]
