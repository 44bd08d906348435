"""The words of a growth run: the section "Growth" of docs/performance.md, every figure taken from the JSON file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from bench import capacity
from bench.capacity import BATCH, Costs

Point = dict[str, Any]
Report = dict[str, Any]

_INTRODUCTION = """\
`python bench/growth.py` ({minutes:.0f} minutes, {repeats} rounds, medians): no-ops of 150 bytes with results kept, one
worker at its defaults, Redis on a unix socket of the same {cpus} CPUs, unless a curve says otherwise. {machine}. Bands
in the chart are least and most.
"""

_MODEL = """\
### What a task costs, and a model

The batch curve gives the costs of a turn, which settles one batch and claims the next, and of a task in it:

| µs of CPU | once a turn | each task | each task, in turns of {batch} |
|---|---|---|---|
| Redis | {redis_turn:.0f} | {redis_task:.1f} | {redis:.1f} |
| child | {child_turn:.0f} | {child_task:.1f} | {child:.1f} |

An enqueue in bulk costs Redis {enqueue:.1f} µs a task. `bench/capacity.py` puts these costs into a closed network:
each child computes on the cores that Redis leaves it, is away for a round trip, and waits for Redis, which runs one
script after the other. What it foretells beside what was measured, on the cores that other programs (the benchmark,
the delaying proxy) left:

{compared}

{verdict}
"""

_BEYOND = """\
### Past one Redis

One server claims and settles at most {limit:,.0f} tasks a second, whatever the number of children and hosts; fed in
bulk at the same time, {life:,.0f}. With Redis on a core of its own and children on others, the model says:

{grown}

Beyond that, more servers: a queue lives on one server as a whole (its keys share a hash tag, its scripts touch one
slot), so load is divided by queues. dtq does not do that by itself yet (Redis Cluster is under "Not yet" in the
README): run one set of workers for each server, each with its own `DTQ_REDIS_URL`, and let producers choose the server
by the queue's name. What a steady load needs, enqueued in bulk and drained at once, everything {utilisation:.0%} busy,
children 0.5 ms from Redis, for no-ops and for handlers of 10 ms of CPU:

{planned}

A child settles together what handlers end within 5 ms; one that takes longer than 1 ms is settled before the next one
starts, with a turn of its own, so that nobody waits for an outcome that is there. Such a task costs Redis {slow:.0f}
µs: one Redis feeds {cores_1ms:,.0f} cores of handlers of 1 ms, {cores_10ms:,.0f} of 10 ms, {cores_100ms:,.0f} of 100
ms; there processors are what runs out. `python bench/capacity.py --target N --handler-us U` answers for other loads.
"""


def section(report: Report | None) -> str:
    """The section's text below its heading; a line that says so where nothing was recorded."""
    if report is None:
        return "Not recorded. `python bench/growth.py` measures it.\n"
    machine = report["machine"]
    parts = [
        _INTRODUCTION.format(
            minutes=report.get("seconds", 0) / 60,
            repeats=report["repeats"],
            cpus=machine["cpus"],
            machine=f"{machine['date']}, revision {machine['revision']}, {machine['cpu']}, Redis {machine['redis']}",
        )
    ]
    if problems := report["problems"]:
        parts.append("What went wrong in this run:\n\n" + "\n".join(f"- {text}" for text in problems) + "\n")
    of = capacity.costs(report) if "batch" in report["curves"] else None
    for name, words in CURVES.items():
        if curve := report["curves"].get(name):
            parts.append(words(curve, of, machine["cpus"]))
    if of is not None:
        parts += [_model(report, of), _beyond(of)]
    return _flowing("\n".join(parts))


def _flowing(text: str) -> str:
    """The text with its paragraphs filled; tables, lists and headings stay as they are."""
    blocks = re.split(r"\n{2,}", text.strip())
    return (
        "\n\n".join(
            block
            if block.startswith(("|", "#", "-", "!"))
            else textwrap.fill(" ".join(block.split()), 120, break_long_words=False, break_on_hyphens=False)
            for block in blocks
        )
        + "\n"
    )


def _children(curve: list[Point], of: Costs | None, cpus: int) -> str:
    best, one, most = max(curve, key=lambda p: p["per_s"]), curve[0], curve[-1]
    together = best["redis_drain_us"] + best["child_us"]
    ideal = cpus * 1e6 / together
    redis_only = 1e6 / best["redis_drain_us"]
    limit = "the cores bend" if ideal < redis_only else "Redis bends"
    return f"""\
### Children

{_rates(curve, "children")}

The best is {best["x"]:g} with {best["per_s"]:,.0f}/s; one child alone does {one["per_s"]:,.0f}/s, {most["x"]:g} do
{most["per_s"]:,.0f}/s. At the best a task costs Redis {best["redis_drain_us"]:.1f} µs and a child
{best["child_us"]:.1f} µs of CPU. Redis by itself could go to {redis_only:,.0f}/s, {cpus} cores that do nothing else to
{ideal:,.0f}/s: {limit} the curve first here. {_busy(best)} One child and Redis work by turns, one waiting for the
other; a second child fills the gaps. Children beyond what fills them take turns on the cores, and every change of turn
costs Redis its place on a core and the caches their content. No-ops show this at its harshest: with handlers that wait
for something, more children than cores are right.
"""


def _busy(point: Point) -> str:
    return (
        f"In that run Redis was busy for {point['redis_busy']:.0%} of a core, other programs for "
        f"{point['others_busy']:.0%}."
    )


def _batch(curve: list[Point], of: Costs | None, cpus: int) -> str:
    assert of is not None, "the costs are fitted to this curve"
    default = next((p for p in curve if p["x"] == BATCH), curve[-1])
    most, one = curve[-1], curve[0]
    half = of.redis_turn_us / of.redis_task_us
    share = of.redis_turn_us / BATCH / of.redis_us()
    return f"""\
### Batch

The setting `claim_max`; a child starts with one task and claims at most four times as many from one turn to the next.

{_rates(curve, "claim_max")}

A turn costs Redis {of.redis_turn_us:.0f} µs whatever it carries (a call, the script's entry, the counters) and
{of.redis_task_us:.1f} µs for each task, a child {of.child_turn_us:.0f} µs (a send, a wait, a wake-up) and
{of.child_task_us:.1f} µs. So turns of one task drain {default["per_s"] / one["per_s"]:.1f} times slower than turns of
{BATCH}; at {half:.0f} tasks the fixed part is as large as the rest, at {BATCH} it is {share:.0%} of Redis' work.
{most["x"]:,.0f} tasks make it {most["per_s"] / default["per_s"]:.2f} × the rate of {BATCH}. The default stays at
{BATCH}: what a child has claimed and not begun must be handed back when it gets busy or dies, and with handlers that
take longer the time budget (`claim_budget_s`) decides and not this.
"""


def _payload(curve: list[Point], of: Costs | None, cpus: int) -> str:
    small, large = curve[0], curve[-1]
    kib = large["x"] - small["x"]
    redis, child, enqueue = (
        (large[name] - small[name]) / kib for name in ("redis_drain_us", "child_us", "redis_enqueue_us")
    )
    rate = large["per_s"] * large["payload_bytes"] / 1e6
    return f"""\
### Payload

{_rates(curve, "KiB", ("bytes a queued task", lambda p: f"{p['queued_bytes']:,.0f}"))}

Each KiB costs Redis {enqueue:.1f} µs when it is enqueued and {redis:.1f} µs when it is claimed (bytes are copied into
a script, out of the stream and into the reply), a child {child:.1f} µs (JSON is decoded). At {large["x"]:g} KiB that
is {rate:,.0f} MB/s of payload. A turn carries at most 1 MiB after its first task, so from {1024 / BATCH:.0f} KiB on it
brings fewer than {BATCH} tasks, at {large["x"]:g} KiB {1024 / large["x"] + 1:.0f}; what it read beyond that is put on
the shelf, which Redis pays for. Queued, a task takes its payload and
{small["queued_bytes"] - small["payload_bytes"]:,.0f} bytes.
"""


def _backlog(curve: list[Point], of: Costs | None, cpus: int) -> str:
    middle, large, small = next((p for p in curve if p["x"] == 1e5), curve[-1]), curve[-1], curve[0]
    ratio = large["per_s"] / middle["per_s"]
    steady = "The rate does not depend on what waits" if 0.9 < ratio < 1.1 else "The rate changes with what waits"
    gigabytes = large["queued_bytes"] * large["tasks"] / 1e9
    small_ms = small["tasks"] / small["per_s"] * 1000
    return f"""\
### Backlog

Retention 0, so that memory is what waits.

{
        _rates(
            curve,
            "tasks",
            ("Redis memory, MB", lambda p: f"{p['queued_bytes'] * p['tasks'] / 1e6:,.1f}"),
            ("bytes a task", lambda p: f"{p['queued_bytes']:,.0f}"),
            ("private memory of a child, MB", lambda p: f"{p['child_private_mb']:.1f}"),
        )
    }

{steady}: {large["x"]:,.0f} tasks drain at {ratio:.2f} × the rate of {middle["x"]:,.0f}; no step looks at more than it
takes. Memory grows in line, {large["queued_bytes"]:,.0f} bytes a task ({gigabytes:.2f} GB in all); a child's does not
grow. The left end bends because {small["x"]:,.0f} tasks are over in {small_ms:.0f} ms, in which children start, claim
one task, then four, then sixteen.
"""


def _queues(curve: list[Point], of: Costs | None, cpus: int) -> str:
    one, most = curve[0], curve[-1]
    ten = next((p for p in curve if p["x"] == 10), one)
    return f"""\
### Queues

Tasks dealt evenly to all queues of one worker.

{_rates(curve, "queues", ("tasks", lambda p: f"{p['tasks']:,}"))}

Ten queues cost {one["per_s"] / ten["per_s"]:.2f} × the time of one, {most["x"]:,.0f} queues
{one["per_s"] / most["per_s"]:,.1f} ×. A child looks at all its queues in one round trip and goes only to those that
hold work, so empty ones cost little; but a turn is for one queue, so where each holds few tasks its turns carry few
(Redis {most["redis_drain_us"]:,.0f} µs a task at {most["x"]:,.0f} queues, {one["redis_drain_us"]:.1f} at one).
"""


def _round_trip(curve: list[Point], of: Costs | None, cpus: int) -> str:
    counts = sorted({p["children"] for p in curve})
    places = sorted({p["x"] for p in curve})
    found = {(p["x"], p["children"]): p for p in curve}
    rows = [
        [f"{place:g}", f"{next(p for p in curve if p['x'] == place)['round_trip_ms']:.2f}"]
        + [f"{found[place, count]['per_s']:,.0f}" if (place, count) in found else "–" for count in counts]
        for place in places
    ]
    words = ""
    if (one := found.get((1, 8))) and (none := found.get((0, 8))):
        words = (
            f"With 1 ms and 8 children dtq drains {one['per_s']:,.0f}/s, {one['per_s'] / none['per_s']:.0%} of the "
            "rate without a way "
            f"({one['others_busy']:.1f} cores went to other programs, the proxy among them)."
        )
    bound = ""
    if of is not None and counts:
        own_ms, redis_ms = BATCH * of.child_us() / 1000, BATCH * of.redis_us() / 1000
        near, far = (BATCH / (own_ms + redis_ms + away_ms) * 1000 for away_ms in (1, 5))
        bound = (
            f"A child sends one turn for each batch of {BATCH}, and nothing else: its round lasts {own_ms:.2f} ms of "
            f"its own work, {redis_ms:.2f} ms of Redis' and the way. With 1 ms a child alone thus reaches {near:,.0f} "
            f"tasks/s at most, with 5 ms {far:,.0f}; {counts[-1]} together hide the way until the cores are used up. "
            "Where that does not do, a larger `claim_max` makes the way count less."
        )
    return f"""\
### Round trip

Through a proxy that delays each direction by half and lets everything else pass (`bench/delay.py`); it runs on the
same cores.

{_table(["round trip, ms", "measured by PING", *(f"{count} children, tasks/s" for count in counts)], rows)}

{words}

{bound}
"""


def _model(report: Report, of: Costs) -> str:
    cpus = report["machine"]["cpus"]
    rows: list[list[str]] = []
    ratios: list[float] = []
    for name in ("children", "batch", "round_trip"):
        for point in report["curves"].get(name, ()):
            foretold = capacity.at(point, of, cpus)
            ratios.append(foretold / point["per_s"])
            rows.append(
                [
                    f"{name.replace('_', ' ')} {point['x']:g}",
                    f"{point['children']}",
                    f"{point['round_trip_ms']:.2f}",
                    f"{point['per_s']:,.0f}",
                    f"{foretold:,.0f}",
                    f"{ratios[-1]:.2f}",
                ]
            )
    ordered = sorted(ratios)
    middle = ordered[len(ordered) // 2]
    return _MODEL.format(
        batch=BATCH,
        redis_turn=of.redis_turn_us,
        redis_task=of.redis_task_us,
        redis=of.redis_us(),
        child_turn=of.child_turn_us,
        child_task=of.child_task_us,
        child=of.child_us(),
        enqueue=of.redis_enqueue_us,
        compared=_table(
            ["point", "children", "round trip, ms", "measured/s", "foretold/s", "foretold / measured"], rows
        ),
        verdict=(
            f"Half of the ratios are below {middle:.2f}; least {ordered[0]:.2f}, most {ordered[-1]:.2f}. "
            "A ratio above 1 is what the model does not know: changes of turn on cores that are fewer than processes, "
            "a pool that is still starting."
        ),
    )


def _beyond(of: Costs) -> str:
    life_us = of.redis_us() + of.redis_enqueue_us
    grown = [
        [
            f"{children}",
            *(f"{capacity.rate(of, children, children, ms, redis_apart=True):,.0f}" for ms in (0.1, 0.5, 1, 5)),
        ]
        for children in (1, 2, 4, 8, 16, 32)
    ]
    planned: list[list[str]] = []
    for target in (10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000):
        bare, busy = capacity.plan(of, target), capacity.plan(of, target, handler_us=10_000)
        numbers = (target, bare.redis_servers, bare.child_cores, bare.children, busy.redis_servers, busy.child_cores)
        planned.append([f"{number:,}" for number in numbers])
    slow_us = of.redis_us(1) + of.redis_enqueue_us
    fed = {ms: capacity.UTILISATION * (of.child_us(1) + ms * 1000) / slow_us for ms in (1, 10, 100)}
    return _BEYOND.format(
        limit=1e6 / of.redis_us(),
        life=1e6 / life_us,
        utilisation=capacity.UTILISATION,
        grown=_table(
            ["children, each on a core", *(f"{ms} ms round trip" for ms in ("0.1", "0.5", "1", "5"))],
            grown,
        ),
        planned=_table(
            ["tasks/s", "Redis for no-ops", "cores", "children", "Redis for 10 ms", "cores for 10 ms"], planned
        ),
        slow=slow_us,
        cores_1ms=fed[1],
        cores_10ms=fed[10],
        cores_100ms=fed[100],
    )


Extra = tuple[str, Callable[[Point], str]]


def _rates(curve: Iterable[Point], title: str, *extra: Extra) -> str:
    """A curve as a table. The x in its unit, the rate, what it costs, then the extra columns."""
    head = [title, "tasks/s", "least – most", "Redis µs a task", "child µs", *(name for name, _ in extra)]
    rows = [
        [
            f"{point['x']:,.0f}" if point["x"] >= 1 else f"{point['x']:g}",
            f"{point['per_s']:,.0f}",
            " – ".join(f"{rate:,.0f}" for rate in point["range_per_s"]),
            f"{point['redis_drain_us']:,.1f}",
            f"{point['child_us']:,.1f}",
            *(show(point) for _, show in extra),
        ]
        for point in curve
    ]
    return _table(head, rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


CURVES: dict[str, Callable[[list[Point], Costs | None, int], str]] = {
    "children": _children,
    "batch": _batch,
    "payload": _payload,
    "backlog": _backlog,
    "queues": _queues,
    "round_trip": _round_trip,
}
"""The words for each curve, in the order of the page."""
