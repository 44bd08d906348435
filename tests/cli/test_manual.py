"""The manual is true: every command has examples, exit codes and fields, and the JSON of readers has these fields."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import pytest
from tests.broker.driver import Child
from tests.broker.test_holding import facts
from tests.cli.commands import Finished, dtq
from tests.servers import PrivateServer

from dtq.app import App
from dtq.cli.manual import COMMANDS
from dtq.cli.program import program  # registers all of them

Cli = Callable[..., Finished]
ACTS = {"enqueue", "worker", "api", "dashboard", "demo"}
EXPECTED = {
    *("worker", "api", "dashboard", "enqueue", "workers", "status", "top", "doctor", "events", "audit", "demo"),
    *(f"task {verb}" for verb in ("get", "list", "cancel", "run", "delete")),
    *(f"queue {verb}" for verb in ("list", "stats", "pause", "resume", "purge")),
    *(f"dlq {verb}" for verb in ("list", "show", "requeue", "discard", "purge")),
}
DESTRUCTIVE = {"task delete", "task cancel", "queue purge", "dlq requeue", "dlq discard", "dlq purge"}


def parameters(words: str) -> set[str]:
    return set(inspect.signature(COMMANDS[words][0]).parameters)


def test_every_command_stands_in_the_manual() -> None:
    assert program.info.name == "dtq"
    assert set(COMMANDS) == EXPECTED


def test_readers_take_json_and_what_is_destructive_takes_yes() -> None:
    for words, (_, manual) in COMMANDS.items():
        assert "as_json" in parameters(words) or words in {"worker", "api", "dashboard"}, words
        assert bool(manual.fields) == ("as_json" in parameters(words)), words
        assert ("yes" in parameters(words)) == (words in DESTRUCTIVE), words


@pytest.mark.parametrize("words", sorted(EXPECTED))
def test_examples_are_of_this_command_and_its_options(words: str) -> None:
    """An option in an example exists; every command has at least one, and says how it may end."""
    function, manual = COMMANDS[words]
    assert manual.examples
    assert {0, 2} <= manual.exits.keys()
    known = {"--yes", "--json", "--redis-url"}
    for name, hint in get_type_hints(function, include_extras=True).items():
        if name != "return" and len(get_args(hint)) > 1:
            info = get_args(hint)[1]
            given = [info.default, *(getattr(info, "param_decls", None) or ())]
            known |= {f"--{name.replace('_', '-')}", *(word for word in given if isinstance(word, str))}
    for example in manual.examples:
        line = example.partition(" | ")[0].partition(" <")[0]
        said = shlex.split(re.sub(r"^[A-Z_]+=\S+ ", "", line))
        assert said[0] == "dtq"
        assert " ".join(said[1 : 1 + len(words.split())]) == words
        assert [word for word in said if word.startswith("-") and word != "-" and word not in known] == []


@pytest.mark.parametrize("words", [["task", "list"], ["dlq", "requeue"], ["top"], ["api"]])
def test_help_shows_examples_and_exit_codes(cli: Cli, words: list[str]) -> None:
    shown = cli(*words, "--help")
    manual = COMMANDS[" ".join(words)][1]
    assert (shown.code, shown.err) == (0, "")
    flat = " ".join(shown.out.split())
    assert all(" ".join(example.split()) in flat for example in manual.examples)
    assert all(f"{code} {meaning}" in flat for code, meaning in manual.exits.items())


def fields_of(document: Mapping[str, Any], manual: Mapping[str, str]) -> None:
    """The document has the fields of the manual, and no others; so have the objects in it that it tells of."""
    top = {name for name in manual if "." not in name}
    assert set(document) == top
    for name in top:
        nested = {field.partition(".")[2]: text for field, text in manual.items() if field.startswith(f"{name}.")}
        value = document[name]
        if nested and value:
            for item in value if isinstance(value, list) else [value]:
                fields_of(item, nested)


def test_the_json_of_every_reader_has_the_fields_of_the_manual(app: App, cli: Cli) -> None:
    """In this very process, on a queue that has something of everything."""
    child = Child(app.broker, queue="default")
    app.enqueue("add", {"i": 1})
    child.settle(child.claim()[0], "D")
    dead = app.queue("default").dead_letters()
    letter = next(dead)
    dead.close()
    waiting = app.enqueue("add", {"i": 2}).id
    app.broker.renew("host-00000001", facts(child, queues=["default"]))
    app.queue("default").pause("mail")
    asked = {
        "task get": ["task", "get", letter.task_id],
        "task list": ["task", "list"],
        "queue list": ["queue", "list"],
        "queue stats": ["queue", "stats", "default"],
        "dlq list": ["dlq", "list"],
        "dlq show": ["dlq", "show", letter.entry],
        "workers": ["workers"],
        "status": ["status"],
        "top": ["top", "--count", "1"],
        "doctor": ["doctor"],
        "audit": ["audit"],
        "queue pause": ["queue", "pause", "default"],
        "queue resume": ["queue", "resume", "default"],
        "task run": ["task", "run", letter.task_id],
        "task delete": ["task", "delete", waiting, "--yes"],
        "queue purge": ["queue", "purge", "default", "--yes"],
        "dlq requeue": ["dlq", "requeue", "--all", "--yes"],
        "dlq discard": ["dlq", "discard", "--all", "--yes"],
        "dlq purge": ["dlq", "purge", "--yes"],
        "enqueue": ["enqueue", "add"],
    }
    for words, line in asked.items():
        answer = cli(*line, "--json")
        assert answer.out.isascii(), words
        fields_of(answer.json, COMMANDS[words][1].fields)
    by_id = cli("task", "cancel", app.enqueue("add", {}).id, "--json").json
    by_filter = cli("task", "cancel", "--all", "--yes", "--json").json
    known = COMMANDS["task cancel"][1].fields
    assert set(by_id) == {"task_id", "queue", "outcome", "code", "message"} <= known.keys()
    assert set(by_filter) == {"queue", "dry_run", "cancelled", "requested", "ended"}


# --- completion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dtq ", {"worker", "dlq", "top", "events"}),
        ("dtq task ", {"get", "list", "cancel", "run", "delete"}),
        ("dtq queue stats d", {"default"}),
        ("dtq task list --status dead", {"dead_lettered"}),
        ("dtq events --type TASK_DEAD", {"TASK_DEAD_LETTERED"}),
    ],
)
def test_the_shell_completes(clean_server: PrivateServer, app: App, line: str, expected: set[str]) -> None:
    """Commands, queues that the server knows, statuses, events."""
    words = line.split(" ")
    done = dtq(
        url=clean_server.url,
        _DTQ_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    assert expected <= set(done.out.split())
    assert done.err == ""


def test_completion_never_hangs_or_complains() -> None:
    """No server, one that is not there: nothing is offered, and nothing is started for a tab key."""
    for url in (None, "redis://127.0.0.1:1/0", "nonsense"):
        done = dtq(url=url, _DTQ_COMPLETE="complete_bash", COMP_WORDS="dtq queue stats d", COMP_CWORD="3")
        assert (done.out.strip(), done.err) == ("", "")


def test_a_script_for_the_shell_is_shown() -> None:
    """Without the look for the shell that is used, which a test has none of."""
    shown = dtq("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (shown.code, shown.err) == (0, "")
    assert "_DTQ_COMPLETE=complete_bash" in shown.out
