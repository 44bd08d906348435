"""One word per idea: what the command line prints as JSON and what the HTTP API answers have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from tests.api.server import ApiServer
from tests.broker.driver import Child
from tests.broker.test_holding import facts
from tests.cli.commands import Finished
from tests.servers import PrivateServer

from dtq.api import schemas
from dtq.app import App
from dtq.cli import program  # registers all commands
from dtq.cli.manual import COMMANDS

Cli = Callable[..., Finished]
assert program is not None


def names(words: str, within: str = "") -> set[str]:
    """The fields that the manual names of a command, or of the objects in one of them."""
    fields = COMMANDS[words][1].fields
    return {name.removeprefix(within) for name in fields if name.startswith(within) and "." not in name[len(within) :]}


@pytest.mark.parametrize(
    ("words", "within", "model"),
    [
        ("enqueue", "", schemas.Submitted),
        ("task get", "", schemas.TaskDetail),
        ("task list", "", schemas.TaskPage),
        ("task list", "tasks.", schemas.TaskDetail),
        ("queue list", "queues.", schemas.QueueFigures),
        ("queue pause", "", schemas.Paused),
        ("queue resume", "", schemas.Paused),
        ("queue purge", "", schemas.Purged),
        ("dlq list", "", schemas.DeadLetterPage),
        ("dlq list", "dead_letters.", schemas.DeadLetterDetail),
        ("dlq show", "", schemas.DeadLetterDetail),
        ("dlq show", "task.", schemas.TaskDetail),
        ("dlq purge", "", schemas.Purged),
        ("workers", "", schemas.WorkerList),
        ("workers", "workers.", schemas.WorkerDetail),
        ("status", "queues.", schemas.QueueFigures),
        ("audit", "", schemas.AuditPage),
        ("audit", "entries.", schemas.AuditBody),
    ],
)
def test_a_command_has_the_fields_of_its_route(words: str, within: str, model: type[BaseModel]) -> None:
    assert names(words, within) == set(model.model_fields)


@pytest.mark.parametrize(
    ("words", "within", "known"),
    [
        ("task run", "", schemas.BATCH_OUTCOME),
        ("task delete", "", schemas.BATCH_OUTCOME),
        ("dlq requeue", "", schemas.BULK_OUTCOME),
        ("dlq requeue", "outcomes.", schemas.BULK_OUTCOME),
        ("dlq discard", "", schemas.BULK_OUTCOME),
        ("dlq discard", "outcomes.", schemas.BULK_OUTCOME),
    ],
)
def test_acts_on_many_tell_of_each_as_the_lines_of_the_api_do(
    words: str, within: str, known: Mapping[str, Any]
) -> None:
    assert names(words, within) - {"outcomes"} <= set(known["properties"])
    assert {"outcome", "task_id", "code", "message"} <= names(words, within) | names(words, "outcomes.")


def test_queue_stats_and_top_add_to_a_queue() -> None:
    queue = set(schemas.QueueFigures.model_fields)
    assert names("queue stats") - queue == {"task_types", "types", "hour"}
    assert names("top", "queues.") - queue == {"rates"}
    assert names("queue stats") & names("top", "queues.") == queue


def test_times_are_moments_or_seconds() -> None:
    """But for events, which are printed as they are sent (spec: `ts`)."""
    told = {name.rpartition(".")[2] for _, manual in COMMANDS.values() for name in manual.fields}
    assert "oldest_age_seconds" in told
    assert [name for name in told if name.endswith(("_ms", "_s", "_at_ms", "_time"))] == []


def test_both_tell_the_same_of_the_same(app: App, cli: Cli, clean_server: PrivateServer) -> None:
    """Read through both, one after the other; what goes on with the time may have gone on."""
    child = Child(app.broker, queue="default")
    app.enqueue("add", {"i": 1}, ttl=100, timeout=7)
    child.settle(child.claim()[0], "D")
    letter = next(app.queue("default").dead_letters())
    app.enqueue("add", {"i": 2}, delay=3600)
    app.enqueue("add", {"i": 3})
    app.queue("default").pause("mail")
    app.broker.renew("host-00000001", facts(child, queues=["default"]))
    queue = "/api/v1/queues/default"
    with ApiServer(clean_server.url) as server:
        for words, path in [
            (["task", "get", letter.task_id], f"/api/v1/tasks/{letter.task_id}"),
            (["dlq", "show", letter.entry], f"{queue}/dead-letters/{letter.entry}"),
            (["queue", "list"], queue),
            (["workers"], "/api/v1/workers"),
            (["audit"], "/api/v1/audit"),
        ]:
            printed = cli(*words, "--json").json
            printed = printed["queues"][0] if words == ["queue", "list"] else printed
            answered = server.client.get(path).json()
            assert _still(printed) == _still(answered), words
        page = cli("audit", "--limit", "1", "--json").json
        assert page["cursor"] == page["entries"][0]["entry"]
        assert cli("audit", "--cursor", page["cursor"], "--json").json == {"entries": [], "cursor": None}


def _still(value: Any) -> Any:
    """Without what grows or shrinks by itself."""
    moving = ("oldest_age_seconds", "next_due_seconds", "lease_seconds")
    if isinstance(value, dict):
        return {name: isinstance(one, float) if name in moving else _still(one) for name, one in value.items()}
    return [_still(one) for one in value] if isinstance(value, list) else value
