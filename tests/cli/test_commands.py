"""Every command against a real server: what it prints, and the exit code that scripts rely on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import dtq
from tests.servers import PrivateServer

APPLICATION = """
import dtq

app = dtq.App()


@app.task(name="add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="hostile")
def hostile() -> None:
    raise ValueError("first\\x1b[31m\\nforged line\\u2028\\x85")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an application `shop:app` in it."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "empty.py").write_text("import dtq\n\napp = dtq.App()\n")
    (tmp_path / "broken.py").write_text("import dtq\n\napp = dtq.App(\n")
    (tmp_path / "raises.py").write_text("raise RuntimeError('no database')\n")
    return tmp_path


def send(task_type: str, *words: str, url: str) -> str:
    """Enqueue a task and return its id."""
    sent = dtq("enqueue", task_type, *words, url=url)
    assert sent.code == 0, sent.err
    return sent.out.strip()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


# --- enqueue ---------------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_and_get_shows_the_task(clean_server: PrivateServer) -> None:
    sent = dtq("enqueue", "add", "--payload", '{"left": 1, "right": 18446744073709551615}', url=clean_server.url)
    assert (sent.code, sent.err) == (0, "")
    found = dtq("task", "get", sent.out.strip(), "--json", url=clean_server.url)
    assert found.code == 0
    assert found.json["status"] == "queued"
    assert found.json["task_type"] == "add"
    assert found.json["payload"] == {"left": 1, "right": 18446744073709551615}


def test_enqueue_takes_every_option(clean_server: PrivateServer) -> None:
    sent = dtq(
        *("enqueue", "add", "--payload", "-", "--queue", "shop", "--priority", "7", "--delay", "60", "--ttl", "300"),
        *("--timeout", "1.5", "--max-attempts", "3", "--retention", "60", "--task-id", "order-1", "--json"),
        text='{"left": 1, "right": 2}',
        url=clean_server.url,
    )
    assert (sent.code, sent.err) == (0, "")
    assert sent.json == {"task_id": "order-1", "queue": "shop", "duplicate": False, "status": None}
    found = dtq("task", "get", "order-1", "--json", url=clean_server.url).json
    names = ("status", "queue", "priority", "timeout_seconds", "max_attempts", "retention_seconds")
    assert {name: found[name] for name in names} == {
        "status": "pending",
        "queue": "shop",
        "priority": 7,
        "timeout_seconds": 1.5,
        "max_attempts": 3,
        "retention_seconds": 60,
    }


def test_an_id_that_exists_is_refused(clean_server: PrivateServer) -> None:
    assert dtq("enqueue", "add", "--task-id", "one", url=clean_server.url).code == 0
    again = dtq("enqueue", "add", "--task-id", "one", url=clean_server.url)
    assert again.code == 5
    assert again.err.startswith("dtq: ")
    assert "one" in again.err
    assert again.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--payload", '{"a": 1, "a": 2}'], 'dtq: payload: the key "a" stands twice in one object; remove one\n'),
        (
            ["--payload", '{"a": 1e999}'],
            "dtq: payload.a: the number is beyond the range of a double; pass it as a string\n",
        ),
        (
            ["--run-at", "2030-01-01T00:00"],
            "dtq: run_at: '2030-01-01T00:00' has no offset from UTC; write it like 2030-12-31T23:59:00+00:00\n",
        ),
        (["--run-at", "tomorrow"], "dtq: run_at: 'tomorrow' is no time; write it like 2030-12-31T23:59:00+00:00\n"),
    ],
)
def test_bad_input_is_a_usage_error(clean_server: PrivateServer, words: list[str], message: str) -> None:
    refused = dtq("enqueue", "add", *words, url=clean_server.url)
    assert (refused.code, refused.out, refused.err) == (2, "", message)


@pytest.mark.parametrize(
    "words",
    [
        ["--payload", '{"a": 18446744073709551616}'],
        ["--payload", '{"a": "\\ud800"}'],
        ["--priority", "10"],
        ["--queue", "a b"],
        ["--run-at", "2030-01-01T00:00:00"],
        ["--delay", "nan"],
        ["--task-id", "a b"],
    ],
)
def test_what_the_producer_refuses_is_one_line_and_a_usage_error(clean_server: PrivateServer, words: list[str]) -> None:
    refused = dtq("enqueue", "add", *words, url=clean_server.url)
    assert refused.code == 2
    assert refused.err.startswith("dtq: ")
    assert refused.err.count("\n") == 1
    assert "Traceback" not in refused.err


# --- task ------------------------------------------------------------------------------------------------------------


def test_an_unknown_task_is_not_found(clean_server: PrivateServer) -> None:
    for command in ("get", "cancel"):
        answer = dtq("task", command, "0123456789012345678901", url=clean_server.url)
        assert answer.code == 4
        assert answer.out == ""
        assert answer.err.count("\n") == 1


def test_a_malformed_id_is_a_usage_error(clean_server: PrivateServer) -> None:
    answer = dtq("task", "get", "no/such id\n", url=clean_server.url)
    assert (answer.code, answer.err) == (2, "dtq: task_id: not an id; 1 to 128 of A-Z a-z 0-9 . _ : -\n")


def test_an_id_in_two_queues_asks_for_the_queue(clean_server: PrivateServer) -> None:
    for queue in ("left", "right"):
        assert dtq("enqueue", "add", "--task-id", "twin", "--queue", queue, url=clean_server.url).code == 0
    assert dtq("task", "get", "twin", url=clean_server.url).code == 2
    assert dtq("task", "get", "twin", "--queue", "right", "--json", url=clean_server.url).json["queue"] == "right"


def test_a_waiting_task_is_cancelled_once(clean_server: PrivateServer) -> None:
    task_id = send("add", url=clean_server.url)
    first = dtq("task", "cancel", task_id, "--json", url=clean_server.url)
    assert (first.code, first.json["outcome"]) == (0, "cancelled")
    second = dtq("task", "cancel", task_id, url=clean_server.url)
    assert second.code == 5
    assert second.err.count("\n") == 1


def test_several_tasks_are_cancelled_with_one_command(clean_server: PrivateServer) -> None:
    url = clean_server.url
    waiting, delayed, ended = send("add", url=url), send("add", "--delay", "60", url=url), send("add", url=url)
    assert dtq("task", "cancel", ended, url=url).code == 0
    both = dtq("task", "cancel", waiting, delayed, url=url)
    assert (both.code, both.out) == (0, f"{waiting} cancelled\n{delayed} cancelled\n")
    mixed = dtq("task", "cancel", waiting, "nobody", "--json", url=url)
    assert mixed.code == 4
    assert mixed.json == [
        {
            "task_id": waiting,
            "queue": "default",
            "outcome": "refused",
            "code": "ALREADY_TERMINAL",
            "message": f"task_id: '{waiting}' has ended as cancelled and cannot be cancelled",
        },
        {
            "task_id": "nobody",
            "queue": None,
            "outcome": "not found",
            "code": "TASK_NOT_FOUND",
            "message": "task_id: 'nobody' is not known in any known queue; check it, or its record is gone",
        },
    ]
    assert dtq("task", "cancel", waiting, ended, url=url).code == 5


def test_tasks_are_cancelled_by_filter(clean_server: PrivateServer) -> None:
    url = clean_server.url
    ids = [send("add", url=url) for _ in range(2)]
    later = [send("add", "--delay", "60", url=url), send("hostile", "--delay", "60", url=url)]
    elsewhere = send("add", "--queue", "other", url=url)
    dry = dtq("task", "cancel", "--type", "add", "--dry-run", url=url)
    assert (dry.code, dry.out) == (0, "default: would cancel 3, and ask the workers of 0 running\n")
    pending = dtq("task", "cancel", "--status", "pending, retrying", "--type", "add", "--json", "-y", url=url)
    assert (pending.code, pending.json) == (
        0,
        {"queue": "default", "dry_run": False, "cancelled": 1, "requested": 0, "ended": 0},
    )
    unasked = dtq("task", "cancel", "--all", url=url)
    assert (unasked.code, unasked.err) == (2, "dtq: yes: nobody can be asked here; give --yes\n")
    everything = dtq("task", "cancel", "--all", "--yes", url=url)
    assert everything.out == "default: cancelled 3, asked the workers of 0 running\n"
    for task_id in (*ids, *later):
        assert dtq("task", "get", task_id, "--json", url=url).json["status"] == "cancelled"
    assert dtq("task", "get", elsewhere, "--json", url=url).json["status"] == "queued"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing is named"),
        (["--queue", "q"], "nothing is named"),
        (["--dry-run"], "nothing is named"),
        (["x", "--all"], "not both"),
        (["x", "--dry-run"], "not both"),
        (["--status", "failed"], "a task that is failed has ended"),
        (["--status", "lost"], "'lost' is no status"),
        (["--status", ","], "nothing is no status"),
        (["--all", "--queue", "no queue"], "queue"),
    ],
)
def test_a_cancel_that_is_not_clear_cancels_nothing(clean_server: PrivateServer, words: list[str], says: str) -> None:
    task_id = send("add", url=clean_server.url)
    answer = dtq("task", "cancel", *words, url=clean_server.url)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert says in answer.err
    assert dtq("task", "get", task_id, "--json", url=clean_server.url).json["status"] == "queued"


# --- worker ----------------------------------------------------------------------------------------------------------


def test_a_burst_worker_runs_what_waits_and_leaves(clean_server: PrivateServer, folder: Path) -> None:
    task_id = send("add", "--payload", '{"left": 2, "right": 3}', url=clean_server.url)
    done = dtq("worker", "shop:app", "--burst", "--children", "1", url=clean_server.url, cwd=folder)
    assert done.code == 0, done.err
    found = dtq("task", "get", task_id, "--json", url=clean_server.url).json
    assert (found["status"], found["result"]) == ("succeeded", 5)


def test_an_error_text_cannot_forge_lines(clean_server: PrivateServer, folder: Path) -> None:
    task_id = send("hostile", "--max-attempts", "1", url=clean_server.url)
    ran = dtq("worker", "shop:app", "--burst", "--children", "1", url=clean_server.url, cwd=folder)
    shown = dtq("task", "get", task_id, url=clean_server.url)
    assert (ran.code, shown.code) == (0, 0)
    assert "dead_lettered" in shown.out
    assert "ValueError" in shown.out
    for text in (shown.out, ran.err, ran.out):
        assert not {"\x1b", "\x85", "\u2028"} & set(text)
        assert not any(line.startswith("forged") for line in text.splitlines())


@pytest.mark.parametrize("application", ["nowhere:app", "shop:nothing", "empty:app", "broken:app", "raises:app"])
def test_an_application_that_cannot_run_is_one_line(
    clean_server: PrivateServer, folder: Path, application: str
) -> None:
    answer = dtq("worker", application, "--burst", url=clean_server.url, cwd=folder)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err


def test_a_worker_without_redis_says_so(folder: Path) -> None:
    answer = dtq("worker", "shop:app", url="redis://user:S3CRET@127.0.0.1:1/0", cwd=folder)
    assert answer.code == 3
    assert "127.0.0.1:1" in answer.err.splitlines()[-1]
    assert "S3CRET" not in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("words", [["worker", "shop:app"], ["status"], ["demo", "--limit", "1"]])
def test_a_data_directory_that_cannot_be_used_is_named(folder: Path, words: list[str]) -> None:
    (folder / "file").write_text("in the way")
    answer = dtq(*words, cwd=folder, DTQ_DATA_DIR=str(folder / "file" / "data"))
    assert answer.code == 3
    assert str(folder / "file" / "data") in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err


# --- status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("task", "list"), ("top", "--interval", "0.1")])
def test_what_the_encoding_of_stdout_lacks_is_escaped(clean_server: PrivateServer, words: tuple[str, ...]) -> None:
    """It ended a command in the middle, as wrong usage: with one such name among a thousand, no list was to be had."""
    send("\u043f\u043e\u0447\u0442\u0430", url=clean_server.url)
    shown = dtq(*words, url=clean_server.url, PYTHONIOENCODING="ascii", COLUMNS="60")
    assert (shown.code, shown.err) == (0, "")
    if words[0] == "task":
        wide = dtq(*words, url=clean_server.url, PYTHONIOENCODING="ascii")
        assert "\\u043f\\u043e" in wide.out


def test_status_counts_what_waits(clean_server: PrivateServer) -> None:
    assert dtq("status", url=clean_server.url).out.startswith("no queue yet")
    send("add", "--queue", "shop", url=clean_server.url)
    send("add", "--queue", "shop", "--delay", "60", url=clean_server.url)
    found = dtq("status", "--json", url=clean_server.url)
    assert found.code == 0
    (queue,) = found.json["queues"]
    assert (queue["queue"], queue["waiting"], queue["running"], queue["scheduled"], queue["dead"]) == (
        "shop",
        1,
        0,
        1,
        0,
    )
    assert 0 <= queue["oldest_age_seconds"] < 60
    assert found.json["workers"] == []
    plain = dtq("status", url=clean_server.url).out
    assert "shop" in plain
    assert "no worker is alive" in plain


# --- doctor ----------------------------------------------------------------------------------------------------------


def states(answer_json: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Name and state of each check."""
    return {check["name"]: check["state"] for check in answer_json["checks"]}


def test_doctor_finds_a_good_server_good(clean_server: PrivateServer, folder: Path) -> None:
    send("add", url=clean_server.url)
    answer = dtq("doctor", "shop:app", "--json", url=clean_server.url, cwd=folder)
    assert answer.code == 0, answer.out
    assert answer.json["ok"] is True
    assert states(answer.json) == {
        **dict.fromkeys(["settings", "server", "policy", "clock", "scripts", "writes", "queues", "app"], "ok"),
        "workers": "warn",
    }
    assert dtq("status", "--json", url=clean_server.url).json["workers"] == []


@pytest.mark.parametrize("application", ["nowhere:app", "empty:app", "broken:app", "raises:app"])
def test_doctor_names_an_application_that_cannot_be_imported(
    clean_server: PrivateServer, folder: Path, application: str
) -> None:
    answer = dtq("doctor", application, "--json", url=clean_server.url, cwd=folder)
    assert answer.code == 1
    assert states(answer.json)["app"] == "fail"


def test_doctor_calls_out_an_evicting_server() -> None:
    with PrivateServer("redis", config={"maxmemory-policy": "allkeys-lru"}) as server:
        answer = dtq("doctor", "--json", url=server.url)
        assert answer.code == 1
        assert states(answer.json)["policy"] == "fail"
        allowed = dtq("doctor", "--json", url=server.url, DTQ_ALLOW_EVICTION="1")
        assert (allowed.code, states(allowed.json)["policy"]) == (0, "warn")


def test_doctor_finds_a_user_who_may_not_write(clean_server: PrivateServer) -> None:
    with PrivateServer("redis", tcp=True) as server:
        server.client().execute_command(
            *("ACL", "SETUSER", "reader", "on", ">S3CRET", "~*", "&*"),
            *("+ping", "+info", "+time", "+config|get", "+select", "+client", "+hello", "+get"),
        )
        answer = dtq("doctor", "--json", url=f"redis://reader:S3CRET@127.0.0.1:{server.port}/0")
        assert answer.code == 1
        assert states(answer.json)["writes"] == "fail"
        assert "S3CRET" not in answer.out + answer.err


def test_doctor_finds_a_key_of_another_type(clean_server: PrivateServer) -> None:
    send("add", "--queue", "shop", url=clean_server.url)
    clean_server.client().set("dtq:retry:schedule:{shop}", "not a schedule")
    answer = dtq("doctor", "--json", url=clean_server.url)
    assert answer.code == 1
    assert states(answer.json)["queues"] == "fail"
    assert "queue shop: " in answer.out


def test_doctor_does_not_wait_for_a_server_that_hangs(silent_port: int) -> None:
    began = time.monotonic()
    answer = dtq("doctor", "--json", url=f"redis://user:S3CRET@127.0.0.1:{silent_port}/0")
    took = time.monotonic() - began
    assert answer.code == 3
    assert states(answer.json)["server"] == "fail"
    assert "S3CRET" not in answer.out + answer.err
    assert took < 5.0  # below 2 s on a machine that has time


# --- no Redis ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unresolvable", "refused", "silent"])
@pytest.mark.parametrize(
    "words",
    [
        ["enqueue", "add"],
        ["status"],
        ["task", "get", "x"],
        ["task", "cancel", "x"],
        ["task", "cancel", "--all", "--yes"],
    ],
)
def test_an_unreachable_redis_is_one_line_and_its_own_code(kind: str, words: list[str], silent_port: int) -> None:
    # One of them waits as long as it does unless told otherwise.
    changes = {} if words[0] == "status" else {"DTQ_ENQUEUE_DEADLINE_S": "0.5"}
    place = {"unresolvable": "nowhere.invalid:6379", "refused": "127.0.0.1:1", "silent": f"127.0.0.1:{silent_port}"}[
        kind
    ]
    began = time.monotonic()
    answer = dtq(*words, url=f"redis://user:S3CRET@{place}/0", **changes)
    assert answer.code == 3
    assert time.monotonic() - began < 10
    assert answer.err.startswith("dtq: ")
    assert answer.err.count("\n") == 1
    assert place in answer.err
    assert "S3CRET" not in answer.out + answer.err


@pytest.mark.parametrize("where", ["option before", "option after", "environment"])
def test_the_password_never_shows(where: str) -> None:
    url = "redis://user:S3CRET@127.0.0.1:1/0"
    words = {"option before": ["--redis-url", url, "status"], "option after": ["status", "--redis-url", url]}
    answer = dtq(*words.get(where, ["status"]), url=url if where == "environment" else None)
    assert answer.code == 3
    assert "127.0.0.1:1" in answer.err
    assert "S3CRET" not in answer.out + answer.err
    for text in ([*words.get(where, ["status"]), "--help"], ["doctor"]):
        shown = dtq(*text, url=url)
        assert "S3CRET" not in shown.out + shown.err


def test_a_wrong_url_is_one_line() -> None:
    """A wrong setting, not an outage."""
    answer = dtq("status", url="http://user:S3CRET@host/")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "S3CRET" not in answer.err


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["nonsense"], ["status", "--nonsense"], ["enqueue"], ["task"], ["demo", "--children", "0"], ["worker"]]
)
def test_wrong_usage_is_one_line_and_code_2(words: list[str]) -> None:
    answer = dtq(*words)
    assert answer.code == 2
    assert answer.err.startswith("dtq: ")
    assert answer.err.count("\n") == 1


def test_wrong_settings_are_named() -> None:
    answer = dtq("status", DTQ_LEASE_S="soon")
    assert answer.code == 2
    assert "DTQ_LEASE_S" in answer.err
    assert answer.err.count("\n") == 1


def test_help_and_version_are_no_errors() -> None:
    for words in ([], ["--help"], ["demo", "--help"], ["task", "get", "--help"], ["--version"]):
        answer = dtq(*words)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.strip()


@pytest.mark.parametrize("queues", ["", " , "])
def test_a_worker_with_an_empty_list_of_queues(folder: Path, clean_server: PrivateServer, queues: str) -> None:
    """`-q "$QUEUES"` with nothing in the variable is a mistake, not every queue."""
    done = dtq("worker", "shop:app", "--burst", "-q", queues, url=clean_server.url, cwd=folder)
    assert done.code == 2
    assert "queues: none is named; name one" in done.err.splitlines()[-1]


@pytest.mark.parametrize("words", [["worker", "tests.process.handlers:app"], ["status"]])
def test_an_interrupt_during_the_imports(tmp_path: Path, words: list[str]) -> None:
    """Ctrl-C right after the start, before anything of the command is there: a line and 130, no traceback."""
    (tmp_path / "typer.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n")
    done = dtq(*words, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (130, "", "dtq: interrupted\n")
