"""`dtq status`: the queues and the workers as they are now."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from dtq.cli.connection import AsJson, RedisUrl, producer, use_redis_url
from dtq.cli.exit_codes import DONE
from dtq.cli.output import age, print_json, print_line, print_table
from dtq.clock import SYSTEM

if TYPE_CHECKING:
    from dtq.broker import Broker


def status(redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Print what waits, runs and failed in each queue, and the workers that are alive.

    Exit codes: 0 printed, 3 Redis unavailable.
    """
    use_redis_url(redis_url)
    with producer() as app:
        found = read_status(app.broker)
    if as_json:
        print_json(found)
    else:
        _print(found)
    return DONE


def read_status(broker: Broker) -> dict[str, Any]:
    """Return queues and workers as plain JSON values; ages in milliseconds, None where nothing waits."""
    return {
        "queues": [asdict(broker.queue_counts(name)) for name in broker.queues()],
        "workers": [asdict(worker) for worker in broker.workers()],
    }


def _print(found: dict[str, Any]) -> None:
    if not found["queues"]:
        print_line("no queue yet; the first task or worker makes one")
    else:
        print_table(
            "Queues",
            ["queue", "waiting", "running", "scheduled", "dead", "oldest"],
            [
                [_named(row), row["waiting"], row["running"], row["scheduled"], row["dead"], _oldest(row["oldest_ms"])]
                for row in found["queues"]
            ],
            numbers=(1, 2, 3, 4, 5),
        )
    if not found["workers"]:
        print_line("no worker is alive; start one: dtq worker module:app")
        return
    print_table(
        "Workers",
        ["worker", "children", "queues", "up"],
        [
            [row["id"], *(_fact(row["facts"], name) for name in ("children", "queues")), _up(row["facts"])]
            for row in found["workers"]
        ],
        numbers=(1, 3),
    )


def _named(row: dict[str, Any]) -> str:
    if row["paused"]:
        return f"{row['queue']} (paused)"
    types = ", ".join(row["paused_types"])
    return f"{row['queue']} (paused: {types})" if types else str(row["queue"])


def _fact(facts: dict[str, Any], name: str) -> str:
    value = facts.get(name, "-")
    return ", ".join(str(part) for part in cast("list[object]", value)) if isinstance(value, list) else str(value)


def _up(facts: dict[str, Any]) -> str:
    started = facts.get("started_ms")
    return age(max(0, SYSTEM.now_ms() - started) / 1000) if isinstance(started, int) else "-"


def _oldest(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else age(milliseconds / 1000)
