"""What a task carries stays text: markup, control characters, 256 KiB, right to left; on every page that shows it."""

from __future__ import annotations

import json
from typing import Any

from tests.dashboard.harness import Site, Tab

from dtq.handles import Handle

MARKUP = (
    "<img src=x onerror=window.hit=1><script>window.hit=2</script><svg onload=window.hit=3>"
    "{{ constructor.constructor('window.hit=4')() }} ${window.hit=5} `${window.hit=6}` </script>"
    '"><a href="javascript:window.hit=7">x</a> &lt;b&gt; <b>bold</b>'
)
CONTROL = "a\x00b\x1b[31mred\x07\rc\u2028d\u009fe\ufefff"
TURNED = "\u202eabc\u202c \u2067שלום\u2069 مرحبا"
HUGE = "x" * 200_000 + "<b>end</b>"


def show(tab: Tab, handle: Handle[Any]) -> None:
    tab.open(f"task?queue={handle.queue}&id={handle.id}", ".fact")


def untouched(tab: Tab) -> None:
    """No script of a task ran, and none of its markup became an element."""
    assert tab.page.evaluate("window.hit") is None
    assert tab.page.locator("img[src=x], svg[onload], .json b, pre b, td b, a[href^=javascript]").count() == 0
    tab.fits()


def test_markup_is_text_on_every_page(site: Site, tab: Tab) -> None:
    queue = site.room()
    tab.open("events")
    fine = site.enqueue("echo", queue, {"value": {MARKUP: [MARKUP]}}, metadata={"note": MARKUP}, headers={"h": MARKUP})
    bad = site.enqueue("fail", queue, {"text": MARKUP}, max_attempts=1)
    strange = site.enqueue("<img><b>type<", queue, {"text": MARKUP}, max_attempts=1)
    tab.until(lambda: all(handle.status().terminal for handle in (fine, bad, strange)))
    untouched(tab)
    show(tab, fine)
    tab.page.wait_for_selector(".json")
    assert "<img src=x onerror=window.hit=1>" in tab.text(".json >> nth=0")
    untouched(tab)
    tab.page.get_by_role("button", name="Show as text").first.click()
    tab.page.locator(".dialog-card pre", has_text="<b>bold</b>").wait_for()
    untouched(tab)
    show(tab, bad)
    assert MARKUP in tab.text(".attempt .error")
    tab.page.get_by_text("Traceback", exact=True).click()
    untouched(tab)
    tab.press("Edit and requeue")
    assert "<b>bold</b>" in tab.page.get_by_label("Payload (JSON object)").input_value()
    untouched(tab)
    for address in (f"tasks?queue={queue.name}", f"dead-letters?queue={queue.name}", f"queues?queue={queue.name}"):
        tab.open(address, "tbody tr:visible")
        untouched(tab)
    tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    assert "<img><b>type<" in tab.row(strange.id).inner_text()
    tab.row(bad.id).get_by_text("<img src=x onerror=window.hit=1>").wait_for()
    tab.page.set_viewport_size({"width": 390, "height": 844})
    untouched(tab)


def test_markup_in_addresses_is_text(tab: Tab) -> None:
    for page in (
        "task?queue=q&id=",
        "tasks?queue=",
        "tasks?worker_id=",
        "queues?queue=",
        "dead-letters?queue=",
        "?queue=",
    ):
        tab.open(
            page + "%3Cimg%20src=x%20onerror=window.hit=1%3E%22'%3C/script%3E",
            ".banner:visible, .empty .title:visible, tbody tr:visible",
        )
        untouched(tab)


def test_control_characters_are_visible(site: Site, tab: Tab) -> None:
    queue = site.room()
    bad = site.enqueue("fail", queue, {"text": CONTROL}, max_attempts=1)
    fine = site.enqueue("echo", queue, {"value": CONTROL})
    tab.until(lambda: bad.status().terminal and fine.status().terminal)
    show(tab, bad)
    error = tab.text(".attempt .error")
    assert r"a\x00b\x1b[31mred\x07\rc\u2028d\x9fe\ufefff" in error
    tab.page.get_by_text("Traceback", exact=True).click()
    assert r"\x1b[31mred" in tab.page.locator("pre", has_text="ValueError").inner_text()
    show(tab, fine)
    assert r'"a\u0000b\u001b[31mred\u0007\rc\u2028d\u009fe\ufefff"' in tab.text(".json >> nth=1")
    tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    shown = tab.row(bad.id).inner_text()
    assert r"\x1b[31mred" in shown
    assert all(character.isprintable() or character in "\n\t" for character in shown)


def test_right_to_left_turns_nothing(site: Site, tab: Tab) -> None:
    queue = site.room()
    bad = site.enqueue("fail", queue, {"text": TURNED}, max_attempts=1)
    fine = site.enqueue("echo", queue, {"value": {TURNED: TURNED}})
    tab.until(lambda: bad.status().terminal and fine.status().terminal)
    show(tab, bad)
    error = tab.text(".attempt .error")
    assert "\\u202eabc\\u202c" in error
    assert "שלום" in error
    show(tab, fine)
    assert "\u202e" not in tab.text()
    isolated = tab.page.evaluate("getComputedStyle(document.querySelector('.json .string')).unicodeBidi")
    assert isolated == "isolate"
    # Names and punctuation around it stay where they are: the attempt stands left of what failed.
    tab.open(f"dead-letters?queue={queue.name}", "tbody tr:visible")
    boxes = [tab.row(bad.id).locator("td").nth(place).bounding_box() for place in range(1, 5)]
    lefts = [box["x"] for box in boxes if box is not None]
    assert lefts == sorted(lefts)


def test_a_quarter_of_a_megabyte_is_cut_and_can_be_seen(site: Site, tab: Tab) -> None:
    queue = site.room()
    fine = site.enqueue("echo", queue, {"value": HUGE})
    bad = site.enqueue("fail", queue, {"text": HUGE}, max_attempts=1)
    tab.until(lambda: bad.status().terminal and fine.status().terminal)
    show(tab, fine)
    tree = tab.page.locator(".json").first
    assert len(tree.inner_text()) < 1000
    tree.get_by_role("button", name="Show all 200").click()
    whole = tab.page.locator(".dialog-card pre")
    whole.wait_for()
    assert whole.text_content() == HUGE
    untouched(tab)
    show(tab, bad)
    assert len(tab.text()) < 30_000
    for address in (f"tasks?queue={queue.name}", f"dead-letters?queue={queue.name}"):
        tab.open(address, "tbody tr:visible")
        assert len(tab.page.content()) < 200_000
        untouched(tab)
    queue.pause()
    tab.press("Edit and requeue")
    edited = {"text": 'y"<' * 60_000}
    tab.page.get_by_label("Payload (JSON object)").fill(json.dumps(edited))
    tab.press("Requeue", tab.page.locator(".dialog-card"))
    tab.told("is queued again with another payload")
    assert bad.task().payload == edited


def test_many_members_open_piece_by_piece(site: Site, tab: Tab) -> None:
    queue = site.room()
    value: Any = {f"key{number}": {"n": number, "list": list(range(20))} for number in range(2000)}
    for _ in range(45):
        value = [value]
    handle = site.enqueue("echo", queue, {"value": value})
    handle.result(timeout=10)
    show(tab, handle)
    tree = tab.page.locator(".json").first
    summaries = tree.locator("summary")
    for depth in range(1, 47):
        summaries.nth(depth).click()
        summaries.nth(depth + 1).wait_for()
    assert summaries.count() < 110
    tree.get_by_role("button", name="Show 50 more of 1").click()
    tab.until(lambda: summaries.count() > 130)
    tab.fits()


def test_keys_and_sessions_are_neither_in_pages_nor_in_the_log(site: Site, tab: Tab) -> None:
    tab.open("")
    assert "the-key-of" not in tab.page.content()
    assert "The dashboard is at http://127.0.0.1:" in site.log
    for secret in ("the-key-of", "client_id", "dtq_session", "Traceback"):
        assert secret not in site.log
