"""Every page loads, in both themes and sizes, from this server alone; and shows what there is."""

from __future__ import annotations

import re
import time

import pytest
from tests.dashboard.harness import Site, Tab

from dtq.dashboard.charts import BAD
from dtq.queues import Queue

PAGES = {
    "": "Overview",
    "tasks": "Tasks",
    "queues": "Queues",
    "workers": "Workers",
    "dead-letters": "Dead letters",
    "events": "Events",
    "audit": "Audit",
}


def hues(tab: Tab) -> tuple[int, int]:
    """How bright the ground and the writing are, 0 to 255."""
    ground, ink = (
        tab.page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
    )
    bright = [max(int(part) for part in re.findall(r"\d+", colour)[:3]) for colour in (ground, ink)]
    return bright[0], bright[1]


@pytest.mark.parametrize(("address", "title"), PAGES.items())
def test_a_page_loads_in_both_themes_and_sizes(site: Site, tab: Tab, address: str, title: str) -> None:
    queue = site.still()
    site.enqueue("echo", queue, {"value": 1})
    page = tab.open(address)
    assert page.title() == f"{title} · dtq"
    assert page.inner_text("h1") == title
    assert page.locator(".navigation-link.here").inner_text().strip().endswith(title)
    for scheme, dark in (("light", False), ("dark", True)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        tab.until(lambda dark=dark: (hues(tab)[0] < 60) is dark, f"{scheme} ground")
        ground, ink = hues(tab)
        assert abs(ground - ink) > 180
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            tab.fits(width)
    assert tab.hosts == {site.url.split("/")[2]}


def test_a_theme_is_kept(stranger: Tab, session: str) -> None:
    tab = stranger
    tab.context.add_cookies([{"name": "dtq_session", "value": session, "url": tab.site.url}])
    page = tab.open("audit")
    page.get_by_role("button", name="Theme").click()
    with page.expect_navigation():
        page.get_by_text("Dark", exact=True).click()
    page.wait_for_selector("body.body--dark")
    tab.open("workers")
    assert hues(tab)[0] < 60


def test_pages_lead_to_each_other(site: Site, tab: Tab) -> None:
    queue = site.still()
    handle = site.enqueue("echo", queue, {"value": 1})
    page = tab.open("")
    page.get_by_role("link", name="Tasks").click()
    page.wait_for_url("**/dashboard/tasks")
    page.get_by_label("Task id").fill(handle.id)
    page.get_by_label("Task id").press("Enter")
    page.wait_for_url("**/dashboard/task?**")
    page.wait_for_selector(".fact")
    assert handle.id in tab.text()
    page.locator(".fact a", has_text=queue.name).click()
    page.wait_for_url(f"**/dashboard/tasks?queue={queue.name}")
    tab.row(handle.id).wait_for()


def test_the_menu_of_a_narrow_page(tab: Tab) -> None:
    page = tab.open("audit")
    page.set_viewport_size({"width": 390, "height": 844})
    entry = page.get_by_role("link", name="Queues")
    entry.wait_for(state="hidden")
    page.get_by_role("button", name="Menu").click()
    entry.click()
    page.wait_for_url("**/dashboard/queues")


def test_an_id_that_is_not_known_is_told(tab: Tab) -> None:
    page = tab.open("tasks")
    page.get_by_label("Task id").fill("nowhere")
    page.get_by_label("Task id").press("Enter")
    tab.told("'nowhere' is not known in any known queue")
    tab.open("task?id=nowhere&queue=still0")
    assert "This task is not known" in tab.text()
    tab.open("task?id=%3Cb%3E&queue=%2e%2e%2f")
    assert "This task is not known" in tab.text()


def test_the_overview_counts(site: Site, tab: Tab) -> None:
    queue = site.room()
    site.enqueue("fail", queue, {"text": "no"}, max_attempts=1)
    site.enqueue("echo", queue, {"value": 1}, delay=3600)
    tab.until(lambda: queue.counts().dead == 1)
    page = tab.open("")
    wanted = [queue.name, "0", "0", "1", "1"]
    tab.until(lambda: tab.row(queue.name).first.locator("td").all_inner_texts()[:5] == wanted)
    assert page.locator(".chart svg").count() == 4
    page.locator(f'.chart path[fill="{BAD}"]').first.wait_for(state="attached")  # a column of dead letters
    tab.row(queue.name).first.locator("td").nth(4).get_by_role("link").click()
    page.wait_for_url(f"**/dead-letters?queue={queue.name}")


def test_tasks_are_filtered(site: Site, tab: Tab) -> None:
    queue = site.still()
    waiting = site.enqueue("echo", queue, {"value": 1})
    later = site.enqueue("fail", queue, {"text": "x"}, delay=3600)
    page = tab.open(f"tasks?queue={queue.name}", f"text={waiting.id}")
    assert later.id in tab.text()
    page.get_by_label("Status").click()
    page.get_by_role("option", name="pending").click()
    tab.until(lambda: waiting.id not in tab.text())
    assert later.id in tab.text()
    assert "status=pending" in page.url
    page.reload()
    tab.row(later.id).wait_for()
    assert waiting.id not in tab.text()
    page.get_by_label("Task type").fill("echo")
    page.get_by_label("Task type").press("Enter")
    page.locator(".empty .title", has_text="No task matches").wait_for()
    page.get_by_label("Task type").fill("")
    page.get_by_label("Created after").fill("soon")
    page.get_by_label("Created after").press("Enter")
    page.locator(".banner", has_text="created_after: 'soon' is no time").wait_for()
    page.get_by_label("Created after").fill("2020-01-01 00:00")
    page.get_by_label("Created after").press("Enter")
    tab.row(later.id).wait_for()
    page.locator(".banner").wait_for(state="hidden")


def test_a_list_lives(site: Site, tab: Tab) -> None:
    queue = site.still()
    page = tab.open(f"tasks?queue={queue.name}")
    assert "No task matches" in tab.text()
    first = site.enqueue("echo", queue, {"value": 1})
    tab.row(first.id).wait_for()
    beside = Tab(site, tab.context)  # lives on, and shows how time goes by for a list
    beside.open(f"tasks?queue={queue.name}")
    page.get_by_role("switch", name="Live").click()
    later = []
    for value in range(4):
        later.append(site.enqueue("echo", queue, {"value": value}).id)
        beside.row(later[-1]).wait_for()
    assert tab.row(first.id).count() == 1
    assert tab.row(later[1]).count() == 0  # the one before may have come before the word had arrived
    beside.page.close()
    page.get_by_role("switch", name="Live").click()
    for task_id in later:
        tab.row(task_id).wait_for()


def test_one_task_has_its_attempts(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("flaky", queue, {})
    assert handle.result(timeout=20) == "third time"
    page = tab.open(f"task?queue={queue.name}&id={handle.id}")
    attempts = page.locator(".attempt").all_inner_texts()
    assert len(attempts) == 3
    assert "no answer at attempt 1" in attempts[0]
    assert "no answer at attempt 2" in attempts[1]
    assert attempts[2].startswith("Attempt 3: succeeded")
    assert all("took" in text and "worker" in text for text in attempts)
    assert '"third time"' in tab.text()


def test_a_traceback_opens(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("fail", queue, {"text": "the reason"}, max_attempts=1)
    tab.until(lambda: handle.status().terminal)
    page = tab.open(f"task?queue={queue.name}&id={handle.id}")
    assert page.locator("pre", has_text="Traceback").is_hidden()
    page.get_by_text("Traceback", exact=True).click()
    page.locator("pre", has_text="raise ValueError(text)").wait_for(state="visible")


def test_workers_and_what_they_run(site: Site, tab: Tab) -> None:
    queue = site.room()
    handle = site.enqueue("wait", queue, {})
    tab.until(lambda: handle.status() == "running")
    page = tab.open("workers", ".card-head .status")
    (worker,) = site.app.workers()
    tab.row(handle.id).wait_for()
    text = tab.text()
    assert worker.id in text
    assert f"{worker.pid}" in text
    assert all(f"{child.pid}" in text for child in worker.children)
    assert "MiB" in text
    tab.row(handle.id).get_by_role("link").click()
    page.wait_for_url("**/task?**")
    handle.cancel()
    page.locator(".status", has_text="cancelled").wait_for()


def test_events_as_they_come(site: Site, tab: Tab) -> None:
    queue = site.room()
    page = tab.open("events")
    handle = tab.until(lambda: _heard(site, tab, queue), "an event")
    assert tab.row(handle).first.is_visible()
    page.get_by_label("Queue").fill("nobody")
    page.locator(".empty .title", has_text="Nothing has happened yet").wait_for()


def _heard(site: Site, tab: Tab, queue: Queue) -> str | None:
    """A task that the page of events shows as started; listening takes a moment to begin."""
    handle = site.enqueue("echo", queue, {"value": 1})
    tab.page.wait_for_timeout(700)
    return handle.id if tab.row(handle.id).filter(has_text="started").count() else None


def test_a_hundred_thousand_tasks_do_not_slow_a_page(site: Site, tab: Tab) -> None:
    queue = site.still()
    made = site.app.enqueue_many("echo", ({"value": n} for n in range(100_000)), queue=queue.name).run()
    assert made.accepted == 100_000
    for address in ("tasks", "", f"queues?queue={queue.name}"):
        began = time.monotonic()
        tab.open(address, "tbody tr:visible")
        assert time.monotonic() - began < 8
    with site.server.client() as client:
        client.config_resetstat()
        page = tab.open(f"tasks?queue={queue.name}", "tbody tr:visible")
        for number in (2, 3):
            tab.press("Next")
            page.get_by_text(f"Page {number}, 50 tasks").wait_for()
        spent = sum(stats["usec"] for stats in client.info("commandstats").values())
    assert page.locator("tbody tr").count() == 50
    assert spent < 500_000  # microseconds of Redis, with the worker's own
    tab.press("Previous")
    page.get_by_text("Page 2, 50 tasks").wait_for()


def test_an_outage_is_told_and_ends(site: Site, tab: Tab) -> None:
    queue = site.still()
    page = tab.open(f"tasks?queue={queue.name}")
    site.server.freeze()
    try:
        page.locator(".banner").wait_for(timeout=30_000)
        assert page.get_by_role("link", name="Workers").is_visible()
    finally:
        site.server.thaw()
    page.locator(".banner").wait_for(state="hidden", timeout=15_000)
    handle = site.enqueue("echo", queue, {"value": 1})
    tab.row(handle.id).wait_for()


def test_many_queues_stand_on_pages(site: Site, tab: Tab) -> None:
    """The last test of this file: the queues stay."""
    for number in range(110):
        site.app.broker.prepare_queue(f"many-{number:03}")
    names = site.app.queue_names()
    tab.open("queues", "tbody tr:visible")
    tab.page.get_by_text(f"1 to 100 of {len(names)}", exact=True).wait_for()
    # Bulk acts of other tests stand in a table of their own.
    assert tab.page.locator('tbody tr:has(a[href*="queue="])').count() == 100
    tab.press("Next")
    tab.page.get_by_text(f"101 to {len(names)} of {len(names)}", exact=True).wait_for()
    tab.row(names[-1]).wait_for()
    tab.press("Previous")
    tab.row(names[0]).first.wait_for()
