"""Each act does in Redis what its button says, asks before what cannot be undone, and is audited by the key's name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dashboard.harness import Site, Tab

from dtq.errors import TaskNotFound
from dtq.handles import Handle
from dtq.models import TaskStatus
from dtq.queues import Queue


def show(tab: Tab, handle: Handle[Any]) -> None:
    """Opens the page of a task."""
    tab.open(f"task?queue={handle.queue}&id={handle.id}", ".fact")


def dead(site: Site, tab: Tab, queue: Queue, count: int = 1) -> list[Handle[Any]]:
    """Tasks that have failed for good."""
    handles = [site.enqueue("fail", queue, {"text": f"number {number}"}, max_attempts=1) for number in range(count)]
    tab.until(lambda: queue.counts().dead == count, "dead letters")
    return handles


def by_ada(site: Site, action: str, queue: Queue, task_id: str | None = None) -> bool:
    """Whether the audit names Ada for such an act."""
    return any(
        entry.actor == "ada" and entry.queue == queue.name and task_id in (None, entry.task_id)
        for entry in site.audit(action)
    )


# --- one task --------------------------------------------------------------------------------------------------------


def test_cancel_asks_first(site: Site, tab: Tab) -> None:
    queue = site.still()
    handle = site.enqueue("echo", queue, {"value": 1})
    show(tab, handle)
    tab.press("Cancel")
    tab.press("Keep things as they are")
    tab.page.locator(".dialog-card").wait_for(state="hidden")
    assert handle.status() is TaskStatus.QUEUED
    tab.press("Cancel")
    tab.press("Cancel the task")
    tab.told(f"Task {handle.id} is cancelled")
    assert handle.status() is TaskStatus.CANCELLED
    assert by_ada(site, "cancel", queue, handle.id)
    tab.page.locator(".status.large", has_text="cancelled").wait_for()
    assert tab.page.get_by_role("button", name="Cancel", exact=True).count() == 0


def test_cancel_of_a_running_task(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("wait", queue, {})
    tab.until(lambda: handle.status() is TaskStatus.RUNNING)
    show(tab, handle)
    tab.press("Cancel")
    assert "It runs: its handler is interrupted" in tab.text(".dialog-card")
    tab.press("Cancel the task")
    tab.told("its worker is told to stop it")
    tab.until(lambda: handle.status() is TaskStatus.CANCELLED)
    tab.page.locator(".status.large", has_text="cancelled").wait_for()


def test_run_now(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("echo", queue, {"value": "soon"}, delay=3600)
    show(tab, handle)
    tab.press("Run now")
    tab.told("is queued to run now")
    assert handle.result(timeout=10) == "soon"
    tab.page.locator(".status.large", has_text="succeeded").wait_for()


def test_an_act_that_comes_too_late_says_so(site: Site, tab: Tab) -> None:
    queue = site.still()
    handle = site.enqueue("echo", queue, {"value": 1})
    show(tab, handle)
    tab.press("Cancel")
    handle.cancel()
    tab.press("Cancel the task")
    tab.told("has ended as cancelled and cannot be cancelled")


def test_delete(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("echo", queue, {"value": 1})
    handle.result(timeout=10)
    show(tab, handle)
    tab.press("Delete")
    tab.press("Delete", tab.page.locator(".dialog-card"))
    tab.told("is deleted")
    tab.page.get_by_text("This task is not known").wait_for()
    with pytest.raises(TaskNotFound):
        handle.status()
    assert by_ada(site, "delete", queue, handle.id)


def test_requeue_of_one(site: Site, tab: Tab) -> None:
    queue = site.room()
    (handle,) = dead(site, tab, queue)
    show(tab, handle)
    queue.pause()
    tab.press("Requeue")
    tab.told("is queued to run now")
    assert handle.status() is TaskStatus.QUEUED
    assert queue.counts().dead == 0
    assert by_ada(site, "requeue", queue, handle.id)


def test_a_payload_is_edited(site: Site, tab: Tab) -> None:
    """The edit of a failed task: what is no JSON object is refused, and the field keeps what was typed."""
    queue = site.room()
    (handle,) = dead(site, tab, queue)
    queue.pause()
    show(tab, handle)
    tab.press("Edit and requeue")
    area = tab.page.get_by_label("Payload (JSON object)")
    assert area.input_value() == '{\n  "text": "number 0"\n}'
    area.fill('{"text": 1, "text": 2}')
    tab.press("Requeue", tab.page.locator(".dialog-card"))
    tab.page.locator(".dialog-card .banner", has_text="payload").wait_for()
    assert "twice" in tab.text(".dialog-card .banner")
    assert area.input_value() == '{"text": 1, "text": 2}'
    for wrong in ("-", "[1]", "", '{"a": NaN}'):
        area.fill(wrong)
        tab.press("Requeue", tab.page.locator(".dialog-card"))
        tab.until(lambda: "twice" not in tab.text(".dialog-card .banner"))
    area.fill('{"text": "<b>fresh</b>"}')
    tab.press("Requeue", tab.page.locator(".dialog-card"))
    tab.told("is queued again with another payload")
    assert handle.task().payload == {"text": "<b>fresh</b>"}
    assert handle.task().metadata["previous_attempts"] == 1


# --- queues ----------------------------------------------------------------------------------------------------------


def test_pause_and_resume(site: Site, tab: Tab) -> None:
    queue = site.room()
    site.enqueue("echo", queue, {"value": 1}).result(timeout=10)
    tab.open(f"queues?queue={queue.name}")
    row = tab.row(queue.name).first
    tab.press("Pause", row)
    tab.told(f"Queue {queue.name} is paused")
    assert queue.counts().paused
    row.get_by_text("paused").wait_for()
    assert by_ada(site, "pause", queue)
    tab.press("Resume", row)
    tab.told(f"Queue {queue.name} is resumed")
    assert not queue.counts().paused


def test_pause_of_a_task_type(site: Site, tab: Tab) -> None:
    queue = site.room()
    queue.pause("echo")
    tab.open(f"queues?queue={queue.name}")
    row = tab.page.locator("tbody tr").filter(has=tab.page.locator("td", has_text="echo")).last
    tab.press("Resume", row)
    tab.told(f"Task type echo of queue {queue.name} is resumed")
    assert queue.counts().paused_types == ()


def test_purge(site: Site, tab: Tab) -> None:
    queue = site.still()
    for number in range(3):
        site.enqueue("echo", queue, {"value": number})
    site.enqueue("echo", queue, {"value": 1}, delay=3600)
    tab.open(f"queues?queue={queue.name}")
    tab.press("Purge")
    assert "4 waiting or scheduled tasks" in tab.text(".dialog-card")
    tab.press("Keep things as they are")
    tab.page.locator(".dialog-card").wait_for(state="hidden")
    assert queue.counts().waiting == 3
    tab.press("Purge")
    tab.press("Purge 4 tasks")
    row = tab.row(f"Purge of queue {queue.name}")
    row.get_by_text("done").wait_for()
    assert (queue.counts().waiting, queue.counts().scheduled) == (0, 0)
    assert by_ada(site, "purge", queue)


def test_a_purge_of_nothing_asks_nothing(site: Site, tab: Tab) -> None:
    queue = site.still()
    queue.pause()  # so that it is known
    tab.open(f"queues?queue={queue.name}", "tbody tr:visible")
    tab.press("Purge")
    tab.told(f"Queue {queue.name} is empty")
    assert tab.page.locator(".dialog-card").count() == 0
    assert not by_ada(site, "purge", queue)


# --- dead letters ----------------------------------------------------------------------------------------------------


def test_selected_dead_letters(site: Site, tab: Tab) -> None:
    queue = site.room()
    handles = dead(site, tab, queue, 4)
    queue.pause()
    tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    for handle in handles[:2]:
        tab.row(handle.id).get_by_role("checkbox").click()
    tab.page.get_by_text("2 selected").wait_for()
    tab.press("Requeue")
    tab.until(lambda: queue.counts().dead == 2)
    assert [handle.status() for handle in handles[:2]] == [TaskStatus.QUEUED] * 2
    tab.row(handles[0].id).wait_for(state="detached")
    tab.row(handles[3].id).get_by_role("checkbox").click()
    tab.press("Discard")
    tab.press("Discard 1 dead letter")
    tab.until(lambda: queue.counts().dead == 1)
    assert handles[3].task().metadata["discarded"] is True
    assert handles[2].task().dead_letter_id is not None
    assert by_ada(site, "requeue", queue, handles[0].id)
    assert by_ada(site, "discard", queue, handles[3].id)


def test_dead_letters_are_filtered(site: Site, tab: Tab) -> None:
    queue = site.room()
    handles = dead(site, tab, queue, 3)
    page = tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    for label, value, seen in (
        ("Payload", "text=number 1", [1]),
        ("Payload", "text", [1]),  # refused, and told
        ("Payload", "", [0, 1, 2]),
        ("Dead for at least", "2 h", []),
        ("Dead for at least", "", [0, 1, 2]),
        ("Error class", "KeyError", []),
        ("Error class", "ValueError", [0, 1, 2]),
    ):
        page.get_by_label(label, exact=True).fill(value)
        page.get_by_label(label, exact=True).press("Enter")
        wanted = {handles[number].id for number in seen}
        tab.until(lambda wanted=wanted: _ids(tab) == wanted, f"{label} {value}")
    tab.told("where: 'text' has no value")


def _ids(tab: Tab) -> set[str]:
    return set(tab.page.locator("tbody:visible td.cell-head a").all_inner_texts())


def test_all_that_match_at_a_rate_and_stopped(site: Site, tab: Tab) -> None:
    queue = site.room()
    dead(site, tab, queue, 12)
    queue.pause()
    page = tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    tab.press("Requeue all …")
    page.get_by_label("Tasks a second").fill("1")
    tab.press("Requeue all")
    row = tab.row(f"Requeue of all dead letters of queue {queue.name}")
    tab.until(lambda: queue.counts().waiting >= 2)
    tab.press("Stop", row)
    row.get_by_text("stopped").wait_for()
    sent = queue.counts().waiting
    assert 2 <= sent < 12
    assert queue.counts().dead == 12 - sent
    tab.press("Discard all …")
    tab.press("Discard all")
    tab.until(lambda: queue.counts().dead == 0)
    assert by_ada(site, "requeue", queue)
    assert by_ada(site, "discard", queue)


def test_a_dead_letter_is_edited_where_it_stands(site: Site, tab: Tab) -> None:
    queue = site.room()
    (handle,) = dead(site, tab, queue)
    queue.pause()
    tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    tab.press("Edit and requeue")
    tab.page.get_by_label("Payload (JSON object)").fill('{"text": "edited"}')
    tab.press("Requeue", tab.page.locator(".dialog-card"))
    tab.until(lambda: handle.status() is TaskStatus.QUEUED)
    assert handle.task().payload == {"text": "edited"}


def test_the_audit_shows_acts(site: Site, tab: Tab) -> None:
    queue = site.still()
    handle = site.enqueue("echo", queue, {"value": 1})
    handle.cancel(actor="somebody@else")
    tab.open("audit", "tbody tr:visible")
    row = tab.row(handle.id)
    row.wait_for()
    assert {"cancel", "somebody@else", queue.name} <= set(row.first.locator("td").all_inner_texts())
