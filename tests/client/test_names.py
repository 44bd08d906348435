"""Names: refused with the allowed set, or working everywhere, never mixed up with others or with dtq's own keys."""

from __future__ import annotations

from typing import Any

import pytest

import dtq
from tests.broker.driver import Child
from tests.servers import PrivateServer

ODD = [
    "", " ", "a b", "a/b", "a+b", "a%2Fb", "a#b", "a?b", "..", ".", "{x}", "*", "[ab]", "é", "a\n", "a\x00", "a:b",
    "x" * 300, "\u202e", "a\ud800",
]  # fmt: skip
PLAIN = ["q", "Q", "-x", "a.b", "a_b", "0", "x" * 64, "dlq", "schedule", "workers", "p5", "meta", "dead-letter", "task"]


@pytest.mark.parametrize("name", ODD, ids=repr)
def test_odd_queue_names_are_refused_everywhere(app: dtq.App, name: str) -> None:
    """At the first use, with what is allowed, and nothing is stored (S126)."""
    uses: list[Any] = [
        lambda: app.enqueue("noop", queue=name),
        lambda: list(app.enqueue_many("noop", [{}], queue=name)),
        lambda: app.queue(name).counts(),
        lambda: app.handle("id", name).status(),
        lambda: app.task(name="t", queue=name)(print),
        lambda: app.queue(name).purge(),
    ]
    for use in uses:
        with pytest.raises(dtq.InvalidTask) as caught:
            use()
        assert "queue" in str(caught.value)
        assert "A-Z a-z 0-9" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 250
    with app.broker.transport.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "é", "x" * 129, "a\n", "*", "{id}", 7, None, b"x"], ids=repr)
def test_odd_ids_are_refused_everywhere(app: dtq.App, name: Any) -> None:
    """An id comes from outside: nothing of it reaches Redis unless it is one (S104)."""
    uses: list[Any] = [lambda: app.handle(name).status(), lambda: app.get(name)]
    if name is not None:
        uses.append(lambda: app.enqueue("noop", task_id=name))
    for use in uses:
        with pytest.raises(dtq.InvalidTask, match="task_id"):
            use()


@pytest.mark.parametrize("name", PLAIN)
def test_names_of_all_kinds_live_beside_each_other(app: dtq.App, name: str) -> None:
    """Counts, contents and purges of one queue never touch another, whatever it is called (S127)."""
    others = [other for other in PLAIN if other != name]
    for other in others:
        app.enqueue("noop", {"in": other}, queue=other, task_id=name)
    app.enqueue("noop", {"in": name}, queue=name, task_id=name)
    app.enqueue("noop", {"in": name}, queue=name, task_id="later", delay=60)
    app.enqueue("noop", {"in": name}, queue=name, task_id="dead", max_attempts=1)
    child = Child(app.broker, queue=name)
    claims = child.claim(2)
    assert [claim.id for claim in claims] == [name, "dead"]
    child.settle(claims[0])
    child.settle(claims[1], "D")
    counts = app.queue(name).counts()
    assert (counts.waiting, counts.scheduled, app.queue(name).dead_letter_count()) == (0, 1, 1)
    assert app.queue(name).purge() == 1
    assert app.queue(name).purge_dead_letters() == 1
    for other in others:
        assert app.queue(other).counts().waiting == 1
        assert app.handle(name, other).task().payload == {"in": other}


def test_two_applications_on_one_server(clean_server: PrivateServer) -> None:
    """Another prefix is another world, also with equal queues, ids and keys (S128)."""
    with dtq.App(clean_server.url, prefix="one") as one, dtq.App(clean_server.url, prefix="one:two") as two:
        for app in (one, two):
            for i in range(5):
                app.enqueue("noop", {"i": i}, task_id=f"t{i}", idempotency_key=f"k{i}", unique=True)
            app.enqueue("noop", {}, delay=60)
        child = Child(one.broker, queue="default")
        assert len(child.claim(10)) == 5
        assert (two.queue().counts().waiting, two.queue().counts().running) == (5, 0)
        assert one.queue().purge() == 1
        assert (two.queue().counts().waiting, two.queue().counts().scheduled) == (5, 1)
        one.queue().pause()
        assert len(Child(two.broker, queue="default").claim(10)) == 5
        with clean_server.client() as client:
            assert all(key.startswith(b"one") for key in client.scan_iter("*"))


def test_whatever_is_unknown_is_not_found(app: dtq.App) -> None:
    """Made up, or with a record that is gone: at once, never as pending (S104)."""
    gone = app.enqueue("noop", task_id="gone", retention=0)
    child = Child(app.broker, queue="default")
    child.settle(child.claim()[0])
    for handle in (app.handle("made-up"), app.handle("made-up", "default"), app.handle("made-up", "no-such-queue"),
                   app.handle(gone.id, "default")):  # fmt: skip
        for call in (handle.status, handle.task, lambda handle=handle: handle.result(timeout=30), handle.cancel):
            with pytest.raises((dtq.TaskNotFound, dtq.ResultNotKept)):
                call()
    with pytest.raises(dtq.TaskNotFound):
        app.get("made-up")


@pytest.mark.parametrize("odd", [["noop"], {}, 7, b"noop", {"noop"}])
def test_what_is_no_text_is_refused_by_name(app: dtq.App, odd: Any) -> None:
    with pytest.raises(dtq.InvalidTask, match=r"^task type: "):
        app.enqueue(odd)
    with pytest.raises(dtq.InvalidTask, match=r"^queue: "):
        app.enqueue("noop", queue=odd)
