"""`dtq queue list` and `stats`, `dtq workers` and `dtq status`: what stands where, and who works on it."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.broker.driver import Child
from tests.broker.test_holding import facts
from tests.cli.commands import Finished
from tests.metrics.cells import cell

from dtq.app import App

Cli = Callable[..., Finished]


def test_queues_and_one_of_them(app: App, cli: Cli) -> None:
    """Counts in the list, all figures and the types of one; a name nobody knows is not found."""
    app.enqueue("add", {})
    app.enqueue("add", {}, delay=60)
    app.queue("default").pause("mail")
    listed = cli("queue", "list", "--json")
    assert listed.code == 0
    (queue,) = listed.json["queues"]
    assert (queue["queue"], queue["waiting"], queue["scheduled"], queue["paused_types"]) == ("default", 1, 1, ["mail"])
    assert "default (paused: mail)" in cli("queue", "list").out
    stats = cli("queue", "stats", "default", "--json").json
    assert stats.items() >= {name: queue[name] for name in ("waiting", "scheduled", "totals")}.items()
    assert "mail" in stats["task_types"]
    text = cli("queue", "stats", "default").out
    assert "Since the queue exists" in text
    assert "submitted" in text
    missing = cli("queue", "stats", "nothing")
    assert (missing.code, missing.err) == (4, "dtq: queue: 'nothing' is not known; known are default\n")


def test_how_long_types_took(app: App, cli: Cli) -> None:
    """The slowest first; the last hour beside them."""
    told = [*cell("quick", took_ms=2, count=3), *cell("slow", took_ms=3000), *cell("tiny", took_ms=0.03, count=9)]
    app.broker.observe({"default": told})
    stats = cli("queue", "stats", "default", "--json").json
    slow, quick, tiny = stats["types"]
    assert (slow["task_type"], quick["task_type"], tiny["task_type"]) == ("slow", "quick", "tiny")
    assert quick["attempts"]["succeeded"] == quick["execution"]["count"] == 3
    assert 2 < slow["execution"]["p95_seconds"] < 6
    assert set(stats["hour"]) >= {"submitted", "succeeded", "wait", "execution"}
    assert stats["hour"]["execution"]["count"] == 13
    text = cli("queue", "stats", "default").out.partition("Types,")[2]
    assert text.index("slow") < text.index("quick")
    assert stats["task_types"] == ["quick", "slow", "tiny"]
    (line,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["tiny"])
    assert line[1:8] == ["9", "0", "30", "µs", "<1", "ms", "<1"]  # never a quantile above what was measured
    for line in cli("top", "--interval", "0.1").out, json.dumps(cli("top", "--count", "1", "--json").json["slowest"]):
        assert line.index("slow") < line.index("quick")


def test_no_queue_and_no_worker(cli: Cli) -> None:
    """A fresh server: what to do about it, and empty lists in JSON."""
    assert cli("queue", "list").out.startswith("no queue yet")
    assert cli("queue", "list", "--json").json == {"queues": []}
    assert cli("workers").out == "no worker is alive; start one: dtq worker module:app\n"
    assert cli("workers", "--json").json == {"workers": []}
    assert cli("status", "--json").json == {"queues": [], "workers": []}


def test_workers_with_their_children(app: App, cli: Cli) -> None:
    """Each child with its memory and what it runs; restarts with their cause, hostile ones as text."""
    app.enqueue("add", {})
    child, idle = Child(app.broker, queue="default"), Child(app.broker, queue="default")
    (claim,) = child.claim()
    cause = "exit 3\x1b[31m\nforged"
    told = facts(child, idle, queues=["default"], restarts=[(1_700_000_000_000, cause, 1)], draining=True)
    app.broker.renew("host-00000001", told)
    app.broker.lead("host-00000001", 5000)
    shown = cli("workers").out
    for text in ("host-00000001", "leader, draining", "4.8 MiB", "9.5 MiB", "add (default)", claim.id, "exit 3\\x1b"):
        assert text in shown, shown
    assert "\x1b" not in shown
    assert not any(line.startswith("forged") for line in shown.splitlines())
    (worker,) = cli("workers", "--json").json["workers"]
    assert worker == cli("status", "--json").json["workers"][0] | {"lease_seconds": worker["lease_seconds"]}
    assert [task["task_id"] for made in worker["children"] for task in made["tasks"]] == [claim.id]
    assert worker["restarts"][0]["cause"] == cause
    assert "host-00000001" in cli("status").out
    child.settle(claim)


def test_doctor_finds_a_queue_that_no_worker_works_on(app: App, cli: Cli) -> None:
    """A worker that is alive helps nobody elsewhere; a queue where nothing waits needs none."""
    app.enqueue("add", {}, queue="mail")
    app.broker.prepare_queue("empty")
    child = Child(app.broker, queue="default")

    def workers() -> tuple[str, str, str]:
        answer = cli("doctor", "--json")
        assert answer.code == 0
        (check,) = [check for check in answer.json["checks"] if check["name"] == "workers"]
        return check["state"], check["detail"], check["mend"]

    app.broker.renew("host-1", facts(child, queues=["default"]))
    app.broker.renew("host-2", {"queues": 3})
    assert workers() == (
        "warn",
        "2 alive; none works on mail, where tasks wait",
        "dtq worker module:app --queues mail",
    )
    app.broker.renew("host-2", facts(child, queues=["mail"]))
    assert workers() == ("ok", "2 alive", "")
