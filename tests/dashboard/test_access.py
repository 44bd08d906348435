"""Signing in with a key, the cookie, signing out, and what a wrong key costs."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest
from tests.dashboard.harness import KEY, OTHER_KEY, Site, Tab

from dtq.api.authentication import ApiKeys
from dtq.clock import Clock
from dtq.dashboard.access import LONGEST_WAIT_S, SESSION_S, Access, TooSoon


class Watch(Clock):
    """A clock that tests turn."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return super().now_ms() + round(self.now * 1000)


def test_sign_in_and_out(site: Site, stranger: Tab) -> None:
    page = stranger.page
    page.goto(f"{site.url}tasks?status=failed")
    assert urlsplit(page.url).path == "/dashboard/login"
    page.get_by_label("API key").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This is not one of the API keys").wait_for()
    stranger.complaints.clear()  # the browser tells of the 401
    page.get_by_label("API key").fill(OTHER_KEY)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/dashboard/tasks?status=failed")
    page.locator(".who", has_text="grace").wait_for()
    (cookie,) = [one for one in stranger.context.cookies() if one["name"] == "dtq_session"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/dashboard")
    assert OTHER_KEY not in cookie["value"]
    other = stranger.context.new_page()
    other.goto(f"{site.url}audit")
    other.locator(".empty .title:visible, tbody tr:visible").first.wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/dashboard/login")
    other.wait_for_url("**/dashboard/login*")  # a page left open in another tab shows nothing more
    stolen = httpx.get(f"{site.url}tasks", cookies={"dtq_session": cookie["value"]})
    assert stolen.status_code == 303


def test_nothing_is_served_without_a_session(site: Site, session: str) -> None:
    page = httpx.get(f"{site.url}", cookies={"dtq_session": session}).text
    static = page[page.index("/dashboard/_nicegui/") :].split('"')[0]
    root = site.url.removesuffix("/dashboard/")
    assert httpx.get(root + static, cookies={"dtq_session": session}).status_code == 200
    assert httpx.get(root + static).status_code == 401
    for address in ("", "tasks", "task?id=1", "queues", "workers", "dead-letters", "events", "audit", "nowhere/at/all"):
        answer = httpx.get(site.url + address)
        assert answer.status_code == 303
        assert answer.headers["location"].lstrip("./").startswith("login")
    for path in ("_nicegui_ws/socket.io/?EIO=4&transport=polling", "_nicegui/x"):
        assert httpx.get(site.url + path).status_code == 401
    assert httpx.post(f"{site.url}tasks").status_code == 401
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    asked = {**upgrade, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    socket = f"{site.url}_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    assert httpx.get(socket, headers=asked).status_code == 403
    foreign = {**asked, "Origin": "https://elsewhere.example"}
    assert httpx.get(socket, headers=foreign, cookies={"dtq_session": session}).status_code == 403
    forged = httpx.get(f"{site.url}tasks", cookies={"dtq_session": session[:-2] + "xx"})
    assert forged.status_code == 303


def test_headers(site: Site, session: str) -> None:
    for cookies, evaluates in (({}, False), ({"dtq_session": session}, True)):
        answer = httpx.get(site.url, cookies=cookies, follow_redirects=True)
        policy = answer.headers["content-security-policy"]
        assert ("unsafe-eval" in policy) is evaluates
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert "<script" not in httpx.get(f"{site.url}login").text


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "javascript:alert(1)", "tasks/../../x", "\\x"]
)
def test_the_way_back_leads_into_the_dashboard(site: Site, target: str) -> None:
    answer = httpx.post(f"{site.url}login", params={"next": target}, data={"key": KEY})
    assert (answer.status_code, answer.headers["location"]) == (303, "./")


def test_wrong_keys_cost_time() -> None:
    clock = Watch()
    access = Access(ApiKeys.parse(f"ada:{KEY}"), clock)
    waits = []
    for _ in range(12):
        try:
            assert access.sign_in("wrong", "10.0.0.1") is None
        except TooSoon as error:
            waits.append(error.wait_s)
            clock.now += error.wait_s
            assert access.sign_in("wrong", "10.0.0.1") is None
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]
    with pytest.raises(TooSoon):
        access.sign_in(KEY, "10.0.0.1")
    clock.now += LONGEST_WAIT_S
    assert access.sign_in(KEY, "10.0.0.2") is not None  # others do not pay for it
    assert access.sign_in(KEY, "10.0.0.1") is not None  # nor does the right key, after the wait
    for number in range(3):
        access.sign_in("wrong", f"2001:db8:0:1::{number:x}")
    with pytest.raises(TooSoon):
        access.sign_in(KEY, "2001:db8:0:1::ffff")


def test_a_key_that_is_taken_away_ends_its_sessions() -> None:
    clock = Watch()
    access = Access(ApiKeys.parse(f"ada:{KEY},grace:{OTHER_KEY}"), clock)
    cookie = access.sign_in(KEY, "")
    assert cookie is not None
    visitor = access.visitor({"dtq_session": cookie})
    assert visitor is not None
    assert visitor.name == "ada"
    restarted = Access(ApiKeys.parse(f"ada:{KEY}"), clock)
    assert restarted.visitor({"dtq_session": cookie}) == visitor
    assert restarted.still(visitor)
    clock.now += SESSION_S + 1  # a page that was left open shows nothing more
    assert not restarted.still(visitor)
    clock.now = 0
    for keys in (f"grace:{OTHER_KEY}", "ada:another-key"):
        assert Access(ApiKeys.parse(keys), clock).visitor({"dtq_session": cookie}) is None


def test_signing_out_is_remembered_as_long_as_the_session_lasts() -> None:
    clock = Watch()
    access = Access(ApiKeys.parse(KEY), clock)
    cookies = [access.sign_in(KEY, "") or "" for _ in range(2)]
    visitors = [access.visitor({"dtq_session": cookie}) for cookie in cookies]
    assert all(visitors)
    access.sign_out(visitors[0])  # type: ignore[arg-type]
    assert access.visitor({"dtq_session": cookies[0]}) is None
    assert access.visitor({"dtq_session": cookies[1]}) == visitors[1]
    clock.now += SESSION_S + 1
    access.sign_out(visitors[1])  # type: ignore[arg-type]
    assert list(access._left) == [visitors[1].session]  # type: ignore[union-attr]  # the other cookie is too old by itself


def test_without_keys_everybody_is_let_in() -> None:
    access = Access(ApiKeys.parse(None), Watch())
    visitor = access.visitor({})
    assert visitor is not None
    assert visitor.name is None
    access.sign_out(visitor)
    assert access.still(visitor)


def test_odd_forms(site: Site) -> None:
    for body in (b"", b"key=", b"key=%ff%fe", b"key=" + b"x" * 100_000, b"&" * 50):
        answer = httpx.post(f"{site.url}login", content=body, headers={"Content-Type": "x/y"})
        assert answer.status_code in (401, 429)
    assert httpx.put(f"{site.url}login").status_code == 405
