"""`dtq events` and `dtq top`: live, into pipes and on a terminal; what tasks carry steers neither."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.driver import Child
from tests.broker.test_holding import facts
from tests.cli.commands import ROOT, Finished, environment, start_dtq
from tests.conftest import WaitUntil
from tests.metrics.cells import cell
from tests.servers import PrivateServer

from dtq.app import App
from dtq.cli.figures import Figures, Look, QueueFigures
from dtq.cli.output import console
from dtq.cli.top_screen import _shares, draw

Cli = Callable[..., Finished]


def listened(app: App) -> bool:
    """Whether somebody asks the default queue for events."""
    return app.broker.command("HGET", app.broker.keys.meta("default"), "listeners") is not None


def run(app: App) -> str:
    """A task that is enqueued and succeeds."""
    child, handle = Child(app.broker, queue="default"), app.enqueue("add", {})
    child.settle(child.claim()[0])
    return handle.id


@contextlib.contextmanager
def running(*words: str, server: PrivateServer) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it runs."""
    process = start_dtq(*words, variables={"DTQ_REDIS_URL": server.url})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_come_live_until_ctrl_c(app: App, clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    """A line each as it happens; an interrupt is its normal end."""
    with running("events", server=clean_server) as process:
        wait_until(lambda: listened(app))
        task = run(app)
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(3)]
        assert [line.split()[1] for line in lines] == ["TASK_QUEUED", "TASK_STARTED", "TASK_SUCCEEDED"]
        assert all(task in line and " default add " in line and " attempt 1" in line for line in lines)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert (process.returncode, err) == (0, b"")


def test_events_are_chosen_and_counted(app: App, clean_server: PrivateServer, wait_until: WaitUntil) -> None:
    """--type and --queue; --count ends it; JSON an object a line with the fields of the manual."""
    words = ["events", "--queue", "default", "--type", "TASK_SUCCEEDED", "--count", "2", "--json"]
    with running(*words, server=clean_server) as process:
        wait_until(lambda: listened(app))
        tasks = [run(app) for _ in range(3)]
        out, err = process.communicate(timeout=20)
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event["type"], event["task_id"]) for event in events] == [("TASK_SUCCEEDED", task) for task in tasks[:2]]
    assert list(events[0]) == [
        *("event_id", "ts", "type", "task_id", "queue", "task_type", "attempt", "worker_id", "metadata"),
    ]
    assert (process.returncode, err) == (0, b"")


def test_an_outage_is_told_and_waited_out(wait_until: WaitUntil) -> None:
    """One line when the server is gone, one when it is back; then events again."""
    with PrivateServer(persistence=True) as server, App(server.url) as app:
        app.broker.prepare_queue("default")
        with running("events", "--count", "1", "--type", "TASK_SUCCEEDED", server=server) as process:
            wait_until(lambda: listened(app))
            server.stop()
            assert process.stderr is not None
            assert process.stderr.readline().endswith(b"; waiting for it\n")
            server.start()
            app.broker.command("HDEL", app.broker.keys.meta("default"), "listeners")
            wait_until(lambda: listened(app))
            task = run(app)
            out, err = process.communicate(timeout=20)
    assert task in out.decode()
    assert err.decode() in ("", "dtq: connected again; what happened meanwhile is not told\n")
    assert process.returncode == 0


def test_wrong_words_and_no_server(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("events", "--type", "TASK_LOST").code == 2
    assert cli("events", "--queue", "no queue").code == 2
    monkeypatch.setenv("DTQ_REDIS_URL", "redis://127.0.0.1:1/0")
    for words in (["events"], ["top"], ["workers"], ["task", "list"], ["queue", "list"]):
        refused = cli(*words)
        assert (refused.code, refused.err.count("\n")) == (3, 1), words


# --- top -------------------------------------------------------------------------------------------------------------


def test_rates_are_what_grew_between_two_looks(app: App) -> None:
    """Per second; none at the first look; a queue that is new has none yet."""

    class Hand(type(app.client.clock)):  # type: ignore[misc]
        """A clock that goes two seconds on at each look."""

        at = 100.0

        def monotonic(self) -> float:
            self.at += 2.0
            return self.at

    look = Look(app, Hand())
    run(app)
    first = look.take()
    assert (first.seconds, set(first.queues[0].rates.values())) == (0.0, {0.0})
    for _ in range(4):
        run(app)
    child = Child(app.broker, queue="default")
    app.enqueue("add", {})
    child.settle(child.claim()[0], "D")
    app.broker.prepare_queue("later")
    second = look.take()
    rates = {queue.counts.queue: queue.rates for queue in second.queues}
    assert rates["default"] == {"submitted": 2.5, "succeeded": 2.0, "failed": 0.5, "retried": 0.0}
    assert set(rates["later"].values()) == {0.0}
    assert second.rate("submitted") == 2.5
    assert second.as_dict()["queues"][0]["rates"] == rates["default"]


def test_into_a_pipe_it_prints_its_last_look(app: App, cli: Cli) -> None:
    """One screen as text; with --json an object for each look."""
    app.enqueue("add", {})
    text = cli("top", "--interval", "0.1")
    assert (text.code, text.err) == (0, "")
    assert "default" in text.out
    assert "no worker is alive" in text.out
    looks = cli("top", "--interval", "0.1", "--count", "3", "--json")
    lines = [json.loads(line) for line in looks.out.splitlines()]
    assert [line["queues"][0]["waiting"] for line in lines] == [1, 1, 1]
    assert lines[0]["seconds"] == 0 < lines[1]["seconds"]


def read_terminal(master: int, until: Callable[[str], bool], seen: str = "") -> str:
    """What was drawn, once `until` likes it; fails after ten seconds."""
    deadline = time.monotonic() + 10
    while not until(seen):
        assert time.monotonic() < deadline, seen[-2000:]
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536).decode("utf-8", "replace")
    return seen


@pytest.mark.parametrize("ending", ["q", "\x03"])
def test_on_a_terminal_it_is_drawn_anew_until_q_or_ctrl_c(app: App, clean_server: PrivateServer, ending: str) -> None:
    """The screen of before comes back, and the terminal echoes again."""
    app.enqueue("add", {})
    master, slave = pty.openpty()
    variables = environment(DTQ_REDIS_URL=clean_server.url, TERM="xterm-256color", COLUMNS="120", LINES="30")
    before = subprocess.run(["stty", "-a"], stdin=slave, capture_output=True, check=True).stdout
    process = subprocess.Popen(
        [sys.executable, "-m", "dtq", "top", "--interval", "0.2"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env=variables,
        start_new_session=True,
        preexec_fn=lambda: take_terminal(slave),
    )
    try:
        seen = read_terminal(master, lambda text: text.count("dtq top") >= 2)
        assert "\x1b[?1049h" in seen  # a screen of its own
        os.write(master, ending.encode())
        read_terminal(master, lambda text: "\x1b[?1049l" in text, seen)
        reader = threading.Thread(target=lambda: drain(master), daemon=True)
        reader.start()
        assert process.wait(10) == 0
        assert subprocess.run(["stty", "-a"], stdin=slave, capture_output=True, check=True).stdout == before
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        with contextlib.suppress(OSError):
            os.close(master)


def take_terminal(slave: int) -> None:
    """Make it the controlling one, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def drain(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


def drawn(figures: Figures, height: int | None, trouble: str = "") -> str:
    """The screen as text."""
    screen = console()
    with screen.capture() as capture:
        screen.print(draw(figures, height, trouble))
    return capture.get()


def a_look(app: App, **changes: Any) -> Figures:
    figures = Look(app).take()
    return replace(figures, **changes)


def test_hostile_texts_are_drawn_as_texts(app: App) -> None:
    """Of workers, of errors: no escape, no markup."""
    app.broker.renew("host-1", facts(Child(app.broker), queues=["[red]q[/red]\x1b[2J", "default"]))
    text = drawn(a_look(app), None, "trouble \\x1b [bold]")
    assert "\x1b" not in text
    assert "[red]q[/red]\\x1b[2J" in text
    assert "[bold]" in text


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_narrow_screen_names_give_way_and_numbers_stay_whole(
    app: App, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A number that is cut is a wrong number."""
    monkeypatch.setenv("COLUMNS", str(columns))
    app.broker.observe({"default": cell("a_package.of_tasks.with_a_long_name", took_ms=3000)})
    (line,) = [line for line in drawn(a_look(app), None).splitlines() if "a_package" in line]
    assert ("…" in line) == (columns == 80)
    assert " ".join(line.split()[-12:]) == "1 0 3.00 s 3.75 s 4.88 s 4.97 s <1 ms"


@pytest.mark.parametrize(("columns", "left_out"), [(80, ""), (60, "fail/s, retry/s"), (40, "no room for oldest, in/s")])
def test_where_there_is_no_room_for_a_name_the_last_numbers_give_way(
    app: App, monkeypatch: pytest.MonkeyPatch, columns: int, left_out: str
) -> None:
    """The queue was called "…", and the last numbers ran off the screen."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = drawn(a_look(app), None).splitlines()
    (line,) = [line for line in lines if line.strip().startswith("default")]
    assert "…" not in line
    told = [line for line in lines if "no room for" in line]
    assert (left_out in told[0]) if left_out else not told
    assert all(len(line) <= columns for line in lines)


def test_it_fits_the_screen(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, each table gets its share, and says how many are left out; work goes first."""
    monkeypatch.setenv("COLUMNS", "200")
    figures = a_look(app)
    (one,) = figures.queues
    counts = type(one.counts)
    many = tuple(
        QueueFigures(
            counts(
                **{**{name: getattr(one.counts, name) for name in counts.__slots__}, "queue": f"q{i}", "waiting": i}
            ),
            one.rates,
        )
        for i in range(100)
    )
    text = drawn(a_look(app, queues=many), 24)
    assert len(text.splitlines()) <= 24
    assert "q99" in text
    assert "q1 " not in text
    assert "more" in text
    assert len(drawn(a_look(app, queues=many), None).splitlines()) > 100


@pytest.mark.parametrize(
    ("room", "wanted", "shares"),
    [
        (None, [5, 50, 500], [5, 50, 500]),
        (30, [5, 10, 15], [5, 10, 15]),
        (30, [100, 2, 100], [14, 2, 14]),
        (10, [100, 100, 100], [3, 3, 4]),
        (0, [9, 9, 9], [3, 3, 3]),
    ],
)
def test_shares_of_the_screen(room: int | None, wanted: list[int], shares: list[int]) -> None:
    assert _shares(room, wanted) == shares
