"""`dtq dlq`, `dtq queue`, `dtq audit`: what they print, and the exit codes that scripts rely on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.broker.driver import Child
from tests.cli.commands import dtq, start_dtq
from tests.servers import PrivateServer

from dtq.app import App


@pytest.fixture
def app(clean_server: PrivateServer) -> Iterator[App]:
    with App(clean_server.url) as app:
        app.broker.prepare_queue("default")
        yield app


def die(app: App, *payloads: dict[str, object], task_type: str = "add") -> list[str]:
    """Dead letters; answers their ids."""
    child, ids = Child(app.broker, queue="default"), []
    for payload in payloads:
        ids.append(app.enqueue(task_type, payload).id)
        assert child.settle(child.claim()[0], "D") == "d"
    return ids


def test_list_show_and_requeue(app: App, clean_server: PrivateServer) -> None:
    first, second = die(app, {"left": 1}, {"left": {"deep": [7]}})
    url = clean_server.url
    listed = dtq("dlq", "list", "--limit", "1", "--json", url=url)
    assert listed.code == 0, listed.err
    assert listed.json["count"] == 2
    assert [row["task_id"] for row in listed.json["dead_letters"]] == [second]
    following = dtq("dlq", "list", "--cursor", listed.json["cursor"], url=url)
    assert first in following.out
    assert "showing 1 of 2" in following.out
    assert "ValueError: no" in following.out
    assert second in dtq("dlq", "list", "--where", "left.deep[0]=7", url=url).out
    shown = dtq("dlq", "show", first, url=url)
    assert shown.code == 0
    assert '{"left": 1}' in shown.out
    dry = dtq("dlq", "requeue", "--all", "--dry-run", "--json", url=url)
    assert (dry.code, dry.json["requeued"], dry.json["dry_run"]) == (0, 2, True)
    assert [(one["outcome"], one["task_id"]) for one in dry.json["outcomes"]] == [
        ("requeued", first),
        ("requeued", second),
    ]
    done = dtq("dlq", "requeue", first, "--payload", '{"left": 2}', "--json", url=url)
    outcome = {"outcome": "requeued", "task_id": first, "entry": None, "code": None, "message": None}
    assert (done.code, done.json) == (0, {"requeued": 1, "refused": 0, "dry_run": False, "outcomes": [outcome]})
    refused = dtq("dlq", "requeue", first, "--json", url=url)
    (why,) = refused.json["outcomes"]
    assert (refused.code, refused.json["refused"]) == (5, 1)
    assert (why["outcome"], why["task_id"], why["code"]) == ("refused", first, "ILLEGAL_TRANSITION")
    assert "queued" in why["message"]
    assert app.get(first).task().payload == {"left": 2}
    many = dtq("dlq", "requeue", "--type", "add", "--yes", url=url)
    assert (many.code, many.out.splitlines()) == (0, [second, "1 requeued"])


def test_who_names_an_entry_is_told_of_that_entry(app: App, clean_server: PrivateServer) -> None:
    (task,) = die(app, {"left": 1})
    url = clean_server.url
    (letter,) = dtq("dlq", "list", "--json", url=url).json["dead_letters"]
    (told,) = dtq("dlq", "requeue", letter["entry"], "--json", url=url).json["outcomes"]
    assert (told["outcome"], told["task_id"], told["entry"]) == ("requeued", task, letter["entry"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["requeue", "unknown"], 4),
        (["show", "unknown"], 4),
        (["discard", "unknown", "--yes"], 4),
        (["discard", "unknown"], 2),  # nobody can be asked
        (["requeue"], 2),
        (["requeue", "--all"], 2),  # nobody can be asked
        (["requeue", "x", "--all", "--yes"], 2),
        (["requeue", "x", "--where", "left", "--yes"], 2),
        (["list", "--where", "a..b=1"], 2),
        (["purge", "--queue", "nothing", "--yes"], 4),
    ],
)
def test_exit_codes(app: App, clean_server: PrivateServer, words: list[str], code: int) -> None:
    run = dtq("dlq", *words, url=clean_server.url)
    assert run.code == code, run
    assert len(run.err.splitlines()) == 1


def test_a_task_that_is_not_dead_is_refused_with_its_status(app: App, clean_server: PrivateServer) -> None:
    handle = app.enqueue("add", {})
    for verb in ("requeue", "discard", "show"):
        yes = ["--yes"] if verb == "discard" else []
        run = dtq("dlq", verb, handle.id, *yes, url=clean_server.url)
        assert run.code == 5
        assert "queued" in run.err


def test_discard_and_purge(app: App, clean_server: PrivateServer) -> None:
    first, second, third = die(app, {}, {}, {})
    url = clean_server.url
    assert dtq("dlq", "discard", first, "--yes", url=url).code == 0
    dry = dtq("dlq", "discard", "--all", "--dry-run", "--json", url=url).json
    assert (dry["discarded"], [one["task_id"] for one in dry["outcomes"]]) == (2, [second, third])
    assert dtq("dlq", "discard", first, "--yes", url=url).code == 5
    purged = dtq("dlq", "purge", "--yes", url=url)
    assert (purged.code, purged.out) == (0, "queue default: 2 dead letters discarded\n")
    assert '"discarded": true' in dtq("task", "get", third, url=url).out


def test_pause_resume_and_purge(app: App, clean_server: PrivateServer) -> None:
    url = clean_server.url
    assert dtq("queue", "pause", "default", url=url).out == "queue default: paused\n"
    assert dtq("queue", "pause", "default", url=url).out == "queue default: was paused already\n"
    assert "default (paused)" in dtq("status", url=url).out
    assert dtq("queue", "resume", "default", "--json", url=url).json["changed"] is True
    assert dtq("queue", "pause", "default", "--type", "add", url=url).code == 0
    assert "default (paused: add)" in dtq("status", url=url).out
    assert dtq("queue", "resume", "default", "--type", "add", url=url).code == 0
    for verb in ("pause", "resume", "purge"):
        assert dtq("queue", verb, "nothing", url=url).code == 4
    app.enqueue_many("add", ({"left": i} for i in range(1200))).run()
    assert dtq("queue", "purge", "default", url=url).code == 2
    assert app.queue("default").counts().waiting == 1200
    purged = dtq("queue", "purge", "default", "--yes", "--json", url=url)
    assert (purged.code, purged.json) == (0, {"queue": "default", "purged": 1200})
    audit = dtq("audit", "--json", url=url)
    assert [entry["action"] for entry in audit.json["entries"]] == ["purge", "resume", "pause", "resume", "pause"]
    assert "@" in audit.json["entries"][0]["actor"]
    assert "resume" in dtq("audit", "--limit", "2", url=url).out


def test_an_interrupted_purge_says_how_far_it_came(app: App, clean_server: PrivateServer) -> None:
    """The rest waits on and can be purged again (S035)."""
    total = 60_000
    app.enqueue_many("add", ({"left": i} for i in range(total))).run()
    variables = {"DTQ_REDIS_URL": clean_server.url}
    process = start_dtq("queue", "purge", "default", "--yes", "--json", variables=variables)
    while app.queue("default").counts().waiting == total:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    left = app.queue("default").counts().waiting
    assert f'"purged": {total - left}' in out.decode()
    assert left, "it was over before the interrupt"
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert app.queue("default").purge() == left


def test_without_redis(tmp_path: object) -> None:
    url = f"unix://{tmp_path}/nothing"
    for words in (["dlq", "list"], ["queue", "pause", "q"], ["audit"], ["dlq", "requeue", "x"]):
        assert dtq(*words, url=url).code == 3
