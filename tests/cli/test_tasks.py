"""`dtq task list`, `run` and `delete`: what they print, what they do in Redis, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.driver import Child
from tests.cli.commands import Finished

from dtq.app import App

Cli = Callable[..., Finished]


def end(app: App, letter: str = "S", **payload: object) -> str:
    """A task that has ended."""
    child = Child(app.broker, queue="default")
    handle = app.enqueue("add", payload)
    assert child.settle(child.claim()[0], letter) == "d"
    return handle.id


def test_tasks_are_listed_page_by_page(app: App, cli: Cli) -> None:
    """Live ones first; a cursor goes on behind what was shown."""
    ended = [end(app, i=i) for i in range(3)]
    waiting = [app.enqueue("add", {"i": i}).id for i in range(3)]
    everything = [*reversed(waiting), *reversed(ended)]
    first = cli("task", "list", "--limit", "4", "--json")
    assert (first.code, first.err) == (0, "")
    assert [task["task_id"] for task in first.json["tasks"]] == everything[:4]
    assert first.json["partial"] is False
    second = cli("task", "list", "--limit", "4", "--cursor", first.json["cursor"], "--json")
    assert ([task["task_id"] for task in second.json["tasks"]], second.json["cursor"]) == (everything[4:], None)
    table = cli("task", "list", "--limit", "2").out
    assert everything[0] in table
    assert "showing 2, there are more; go on with --cursor " in table
    assert cli("task", "list").out.splitlines()[-1] == "showing 6"


def test_lists_are_filtered(app: App, cli: Cli) -> None:
    """By status, type, queue and time; what cannot be is a usage error of one line."""
    dead, mail = end(app, "D"), app.enqueue("mail", {}, queue="post").id
    later = app.enqueue("add", {}, delay=3600).id

    def ids(*words: str) -> list[str]:
        found = cli("task", "list", "--json", *words)
        assert found.code == 0, found.err
        return [task["task_id"] for task in found.json["tasks"]]

    assert ids("--status", "dead_lettered") == ids("--queue", "default", "--worker", "host") == [dead]
    assert ids("--type", "mail") == ids("--queue", "post") == [mail]
    assert ids("--status", "pending", "--created-after", "2020-01-01T00:00:00+00:00") == [later]
    assert ids("--created-before", "2020-01-01T00:00:00+00:00") == ids("--batch", "B1") == []
    for words in (
        ["--status", "lost"],
        ["--queue", "no queue"],
        ["--cursor", "x"],
        ["--created-after", "soon"],
        ["--created-after", "2020-01-01T00:00:00"],
        ["--limit", "0"],
    ):
        wrong = cli("task", "list", *words)
        assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1), words


def test_a_full_list_of_ended_tasks_is_said_to_be_cut(app: App, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """S132: of ended ones DTQ_RECENT are listed."""
    monkeypatch.setenv("DTQ_RECENT", "2")
    for i in range(3):
        end(app, i=i)
    app.broker.command("LTRIM", app.broker.keys.recent("default", "succeeded"), 0, 1)
    cut = cli("task", "list", "--status", "succeeded")
    assert cut.out.splitlines()[-1].startswith("showing 2 (of ended tasks the newest are listed, older ones")
    assert cli("task", "list", "--status", "succeeded", "--json").json["partial"] is True


def test_run_makes_what_waits_due(app: App, cli: Cli) -> None:
    """Pending and dead ones; one that is queued is refused with its status."""
    pending, dead = app.enqueue("add", {}, delay=3600).id, end(app, "D")
    assert cli("task", "run", pending).out == "queued\n"
    assert app.get(pending).status() == "queued"
    answer = cli("task", "run", dead, pending, "nobody", "--json")
    assert answer.code == 4
    assert [(row["task_id"], row["outcome"]) for row in answer.json] == [
        (dead, "queued"),
        (pending, "refused"),
        ("nobody", "not found"),
    ]
    assert "is queued" in answer.json[1]["message"]
    again = cli("task", "run", pending)
    assert (again.code, again.out) == (5, "")
    assert "only pending, retrying and dead-lettered tasks can be run now" in again.err
    assert cli("task", "run", "no id").code == 2
    assert [entry.action for entry in app.audit()] == ["requeue", "run"]


def test_delete_asks_and_deletes_what_has_ended(app: App, cli: Cli) -> None:
    """Yes, no, nobody to ask; a live one is refused, and says what to do."""
    ended, waiting = end(app), app.enqueue("add", {}).id
    assert cli("task", "delete", ended).code == 2  # nobody can be asked
    declined = cli("task", "delete", ended, typed="n\n")
    assert (declined.code, app.get(ended).status()) == (5, "succeeded")
    assert "Delete what is kept of task" in declined.err
    done = cli("task", "delete", ended, typed="y\n")
    assert (done.code, done.out) == (0, "deleted\n")
    assert cli("task", "get", ended).code == 4
    mixed = cli("task", "delete", ended, waiting, "--yes")
    assert mixed.code == 4
    assert mixed.out == f"{ended} not found\n{waiting} refused\n"
    assert "only what has ended can be deleted, so cancel it first" in mixed.err
    assert app.get(waiting).status() == "queued"


HOSTILE = "\x1b[31mred\n\u202eforged\x85"


def test_hostile_texts_stay_texts(app: App, cli: Cli) -> None:
    """Payloads and errors of others forge no line of a table and no JSON."""
    app.enqueue("add", {"text": HOSTILE})
    (claim,) = Child(app.broker, queue="default").claim()
    record = app.get(claim.id).task()
    assert record.payload == {"text": HOSTILE}
    for words in (["list"], ["get", claim.id], ["list", "--json"], ["get", claim.id, "--json"]):
        shown = cli("task", *words).out
        assert not {"\x1b", "\x85", "\u202e"} & set(shown)
        assert not any(line.startswith("forged") for line in shown.splitlines())
