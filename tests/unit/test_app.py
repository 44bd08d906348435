"""The App without a server: registration, options and their exact messages, and finding an app by its name."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import dtq
from dtq.app import load_app

NEVER = "unix:///nowhere/at/all"  # no test here may connect


@pytest.fixture
def app() -> dtq.App:
    return dtq.App(NEVER)


def test_a_task_stays_directly_callable(app: dtq.App) -> None:
    @app.task
    def double(value: int) -> int:
        """Twice the value."""
        return 2 * value

    @app.task(
        name="described",
        queue="mail",
        priority=9,
        max_attempts=2,
        timeout=1.5,
        retention=timedelta(hours=1),
        backoff=3,
        retry_on=OSError,
        fatal=[ValueError, KeyError],
    )
    def described(context: dtq.Context, value: int) -> str:
        return f"{context.task_id} {value}"

    assert (double(4), double.__doc__, double.__name__) == (8, "Twice the value.", "double")
    context = dtq.Context(task_id="t", task_type="described", attempt=1, queue="mail", worker_id="w")
    assert described(context, 3) == "t 3"
    options = described.handler.options
    assert (options.queue, options.priority, options.max_attempts) == ("mail", 9, 2)
    assert (options.timeout_ms, options.retention_ms) == (1500, 3_600_000)
    assert options.backoff == dtq.Backoff(3, 3, 0)
    assert (options.retry_on, options.fatal) == ((OSError,), (ValueError, KeyError))
    assert app.registry.get("described") is described.handler
    assert repr(described) == "<task described>"
    assert double.name == f"{__name__}.test_a_task_stays_directly_callable.<locals>.double"


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"queue": "a/b"}, "queue: 'a/b' is not allowed; use 1 to 64 of A-Z a-z 0-9 . _ -"),
    ({"queue": ".."}, "queue: '..' is not allowed; use 1 to 64 of A-Z a-z 0-9 . _ -"),
    ({"queue": "x" * 65}, f"queue: '{'x' * 56}... is not allowed; use 1 to 64 of A-Z a-z 0-9 . _ -"),
    ({"priority": 10}, "priority: 10 is out of bounds; use a whole number from 0 (lowest) to 9"),
    ({"priority": True}, "priority: True is out of bounds; use a whole number from 0 (lowest) to 9"),
    ({"max_attempts": 11}, "max_attempts: 11 is out of bounds; use a whole number from 1 to 10 (DTQ_MAX_ATTEMPTS)"),
    ({"max_attempts": 0}, "max_attempts: 0 is out of bounds; use a whole number from 1 to 10 (DTQ_MAX_ATTEMPTS)"),
    ({"timeout": 0}, "timeout: 0 s is out of bounds; use more than 0 and at most 86400 s (DTQ_TIMEOUT_CAP_S)"),
    ({"timeout": 1e9}, "timeout: 1000000000 s is out of bounds; use more than 0 and at most 86400 s "
                       "(DTQ_TIMEOUT_CAP_S)"),
    ({"timeout": "5"}, "timeout: str is not a duration; use seconds or a timedelta"),
    ({"retention": -1}, "retention: -1 s is out of bounds; use 0 (delete at success) to 315360000 s (10 years), or "
                        "math.inf"),
    ({"retention": 1e12}, "retention: 1000000000000 s is out of bounds; use 0 (delete at success) to 315360000 s "
                          "(10 years), or math.inf"),
]  # fmt: skip

BAD_ENQUEUE_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *BAD_OPTIONS,
    ({"delay": 1e9}, "delay: 1000000000 s is above the limit of 315360000 s (10 years); are these milliseconds?"),
    ({"delay": 1_764_000_000_000}, "delay: 1764000000000 s is above the limit of 315360000 s (10 years); are these "
                                   "milliseconds?"),
    ({"delay": math.inf}, "delay: inf is not finite; use seconds, at most 315360000 s (10 years)"),
    ({"delay": -math.inf}, "delay: -inf is not finite; use seconds, at most 315360000 s (10 years)"),
    ({"delay": math.nan}, "delay: nan is not finite; use seconds, at most 315360000 s (10 years)"),
    ({"delay": 10**400}, f"delay: 1{'0' * 56}... is not finite; use seconds, at most 315360000 s (10 years)"),
    ({"delay": "1"}, "delay: str is not a duration; use seconds or a timedelta"),
    ({"delay": False}, "delay: bool is not a duration; use seconds or a timedelta"),
    ({"run_at": datetime(2030, 1, 1)}, "run_at: 2030-01-01 00:00:00 has no time zone; use an aware datetime, such as "
                                       "datetime.now(timezone.utc)"),
    ({"run_at": 1_764_000_000}, "run_at: int is not a time; use an aware datetime"),
    ({"run_at": datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=14)))},
     "run_at: 9999-12-31 00:00:00+14:00 is too far ahead; use a time within 315360000 s (10 years) from now"),
    ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "run_at: it cannot be given together with "
        "delay; give one "
                                                               "of them"),
    ({"deadline": datetime(2030, 1, 1)}, "deadline: 2030-01-01 00:00:00 has no time zone; use an aware "
        "datetime, such as "
                                         "datetime.now(timezone.utc)"),
    ({"ttl": math.inf}, "ttl: inf is not finite; use seconds, at most 315360000 s (10 years)"),
    ({"task_id": "a b"}, "task_id: 'a b' is not allowed; use 1 to 128 of A-Z a-z 0-9 . _ : -"),
    ({"task_id": ""}, "task_id: '' is not allowed; use 1 to 128 of A-Z a-z 0-9 . _ : -"),
    ({"batch_id": "b:1"}, "batch_id: 'b:1' is not allowed; use 1 to 128 of A-Z a-z 0-9 . _ -"),
    ({"headers": {"trace": 1}}, "headers.trace: int is not allowed; use a text"),
    ({"headers": "x"}, "headers: str is not allowed; use a dict"),
    ({"metadata": {"at": math.nan}}, "metadata.at: NaN is not JSON; use None or a string"),
    ({"idempotency_key": ""}, "idempotency_key: '' is not allowed; use a text of 1 to 255 characters"),
    ({"idempotency_key": "\ud800"}, "idempotency_key: '\\ud800' is not allowed; use a text of 1 to 255 characters"),
    ({"idempotency_key": "k", "idempotency_ttl": 0}, "idempotency_ttl: 0 is out of bounds; use more than 0 s"),
    ({"unique": 3}, "unique: 3 is not allowed; use a text of 1 to 255 characters"),
    ({"unique": True, "unique_ttl": -1}, "unique_ttl: -1 is out of bounds; use more than 0 s"),
    ({"conflict": "ignore"}, 'conflict: \'ignore\' is not known; use "reject" or "return_existing"'),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_registration_refuses_bad_options(app: dtq.App, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dtq.InvalidTask) as caught:
        app.task(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(("options", "message"), BAD_ENQUEUE_OPTIONS)
def test_an_enqueue_refuses_bad_options_before_it_connects(app: dtq.App, options: dict[str, Any], message: str) -> None:
    for enqueue in (app.task(name="t")(lambda: None).options, lambda **given: app.enqueue("t", {}, **given)):
        with pytest.raises(dtq.InvalidTask) as caught:
            enqueue(**options)
        assert str(caught.value) == message
        assert caught.value.field == message.split(": ")[0]


def test_unknown_options_and_classes(app: dtq.App) -> None:
    with pytest.raises(dtq.InvalidTask, match=r"^dealy: there is no such option; known are batch_id, conflict, "):
        app.enqueue("t", {}, dealy=1)  # type: ignore[call-arg]
    with pytest.raises(
        dtq.InvalidTask, match=r"^retry_on: .* holds something else than exception classes; list classes"
    ):
        app.task(retry_on=["ValueError"])  # type: ignore[list-item]
    with pytest.raises(dtq.InvalidTask, match=r"^backoff: -1 s is out of bounds; "):
        app.task(backoff=-1)


def test_a_task_is_no_name(app: dtq.App) -> None:
    task = app.task(name="t")(lambda: None)
    with pytest.raises(
        dtq.InvalidTask, match=r"^task type: <task t> is no name; .* or call enqueue\(\) of the task itself"
    ):
        app.enqueue(task, {})  # type: ignore[arg-type]


def test_big_metadata_is_refused(app: dtq.App) -> None:
    with pytest.raises(dtq.PayloadTooLarge, match=r"^metadata: "):
        app.enqueue("t", {}, metadata={"text": "x" * 4096})


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"items": [0, 1, 2, {"price": math.nan}]}, "payload.items[3].price"),
        ({"at": datetime(2030, 1, 1)}, "payload.at"),
        ({"a": {"b": [{1: "x"}]}}, "payload.a.b[0]"),
        ({"big": 2**64}, "payload.big"),
        ([1], "payload"),
    ],
)
def test_payloads_are_checked_before_it_connects(app: dtq.App, payload: Any, field: str) -> None:
    with pytest.raises(dtq.InvalidTask) as caught:
        app.enqueue("t", payload)
    assert caught.value.field.startswith(field)
    assert str(caught.value).startswith(f"{field}")


def test_arguments_are_checked_when_enqueued_by_the_task(app: dtq.App) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    with pytest.raises(dtq.InvalidTask, match=r"^payload\.a: add needs it; give a$"):
        add.enqueue()  # type: ignore[call-arg]
    with pytest.raises(dtq.InvalidTask, match=r"^payload\.c: add takes no such argument; known are a, b$"):
        add.enqueue(1, c=3)  # type: ignore[call-arg]
    with pytest.raises(dtq.InvalidTask, match=r"^payload: add takes 2 arguments by position, but 3 were given; "):
        add.enqueue(1, 2, 3)  # type: ignore[call-arg]


def test_one_id_cannot_name_many(app: dtq.App) -> None:
    with pytest.raises(dtq.InvalidTask, match=r"^task_id: one id cannot name many tasks; "):
        app.enqueue_many("t", [{}], task_id="x")


def test_a_bulk_enqueue_that_is_forgotten_warns(app: dtq.App) -> None:
    forgotten = app.enqueue_many("t", [{}])
    with pytest.warns(ResourceWarning, match=r"never iterated, so nothing was enqueued; iterate it or call \.run\(\)"):
        del forgotten


def test_settings_that_are_wrong_stop_the_app() -> None:
    with pytest.raises(dtq.InvalidSettings, match=r"^lease_s \(DTQ_LEASE_S\): "):
        dtq.App(lease_s=-1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "absent_module:app", "app: there is no module 'absent_module' in {here} or on the Python path"),
        ("", "a-b:app", "app: 'a-b:app' is not module:attribute; give such as my_project.tasks:app"),
        ("", "tasks.py:app", "app: 'tasks.py' is a file, and a module is needed; give tasks:app"),
        ("", "./shop/m.py:queue", "app: './shop/m.py' is a file, and a module is needed; give shop.m:queue"),
        ("", "shop/tasks", "app: 'shop/tasks' is a file, and a module is needed; give shop.tasks:app"),
        ("", "/home/ada/tasks.py", "app: '/home/ada/tasks.py' is a file, and a module is needed; give such as "
         "my_project.tasks:app, in the folder that my_project is in"),
        ("", "m0:app", "app: module 'm0' has no attribute 'app'; it has no dtq.App at all"),
        ("import dtq\nqueue = dtq.App()\n", "m1", "app: module 'm1' has no attribute 'app'; it has queue"),
        ("app = 3\n", "m2:app", "app: module 'm2' has a int, not an App, as 'app'; it has no dtq.App at all"),
        ("import absent_thing\n", "m3:app", "app: importing 'm3' failed: ModuleNotFoundError: No module named "
                                            "'absent_thing'"),
        ("raise ValueError('two\\nlines')\n", "m4:app", "app: importing 'm4' failed: ValueError: two lines"),
        ("import dtq\ndtq.App(lease_s=-1)\n", "m5:app", "app: importing 'm5' failed: InvalidSettings: lease_s "
         "(DTQ_LEASE_S): -1.0 is not a number of seconds from 0.1 to 86400"),
    ],
)  # fmt: skip
def test_apps_that_cannot_be_loaded(project: Path, source: str, target: str, message: str) -> None:
    if target.startswith("m"):
        (project / f"{target.split(':')[0]}.py").write_text(source)
    with pytest.raises(dtq.InvalidHandler) as caught:
        load_app(target)
    assert str(caught.value) == message.format(here=project)


def test_an_app_is_found_in_the_current_directory(project: Path) -> None:
    (project / "loadable.py").write_text("import dtq\napp = dtq.App()\nclass box: inner = app\n")
    app = load_app("loadable")
    assert load_app("loadable:app") is app
    assert load_app("loadable:box.inner") is app
