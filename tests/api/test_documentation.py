"""The page of the description, in a real Chromium: it asks for the key, and needs nothing but this server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dtq.api import documentation
from tests.api.server import ApiServer
from tests.dashboard.harness import CHROMIUM
from tests.servers import PrivateServer

KEY = "k3y-of-ops"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Seen:
    """A tab, what its console complained of, and where it has been."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))


@pytest.fixture
def seen(chromium: Browser) -> Iterator[Seen]:
    context = chromium.new_context()
    yield Seen(context.new_page())
    context.close()


@pytest.fixture
def locked(clean_server: PrivateServer) -> Iterator[ApiServer]:
    with ApiServer(clean_server.url, api_key=f"ops:{KEY}") as server:
        yield server


def test_swagger_ui_comes_from_the_extra() -> None:
    """`make` installs it with dtq[api]; without it a table is shown."""
    assert documentation.swagger_ui() is not None


def test_the_page_shows_everything_from_this_server_alone(server: ApiServer, seen: Seen) -> None:
    seen.page.goto(f"{server.url}/docs")
    described = server.client.get("/openapi.json").json()
    seen.page.locator(".opblock").first.wait_for()
    assert seen.page.locator(".opblock").count() == sum(map(len, described["paths"].values()))
    assert seen.page.get_by_label("API key").is_hidden()
    assert seen.hosts == {f"127.0.0.1:{server.port}"}
    assert seen.complaints == []


def test_a_locked_server_is_opened_with_the_key(locked: ApiServer, seen: Seen) -> None:
    """Typed once, sent with what is tried out, and nowhere to be found afterwards."""
    page = seen.page
    page.goto(f"{locked.url}/docs")
    page.get_by_label("API key").fill("wrong")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("This is not one of the API keys.").wait_for()
    page.get_by_label("API key").fill("schlüssel")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("This is not one of the API keys.").wait_for()
    assert page.locator(".opblock").count() == 0
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Show").click()
    route = page.locator(".opblock", has_text=re.compile(r"/api/v1/queues\s*List queues"))
    route.click()
    route.get_by_role("button", name="Try it out").click()
    with page.expect_response("**/api/v1/queues*") as answered:
        route.get_by_role("button", name="Execute").click()
    assert answered.value.status == 200
    assert page.get_by_label("API key").is_hidden()
    assert [one for one in seen.complaints if "401" not in one] == []  # of which the browser tells
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
    assert KEY not in kept + json.dumps(page.context.cookies())
    assert page.locator("input[type=password]").first.input_value() == ""
    page.reload()
    page.get_by_label("API key").wait_for()


def test_without_swagger_ui_it_is_a_table(server: ApiServer, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "swagger_ui", lambda: None)
    assert server.client.get("/docs/swagger-ui.css").status_code == 404
    seen.page.goto(f"{server.url}/docs")
    seen.page.locator("table").wait_for()
    shown = seen.page.locator("tr").all_inner_texts()
    described = server.client.get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert any(row.startswith(f"{method.upper()}\t{path}\t{operation['summary']}.") for row in shown), (
                method,
                path,
            )
    assert seen.complaints == []


def test_what_is_open_holds_nothing_of_this_server(locked: ApiServer) -> None:
    for path in documentation.PAGES:
        answer = locked.client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "http" not in policy
        assert "unsafe" not in policy
        assert "x-frame-options" in answer.headers
        if "swagger" not in path:
            assert "/api/v1" not in answer.text
            assert "<script>" not in answer.text
            assert "https:" not in answer.text
    assert locked.client.get("/openapi.json").status_code == 401
    assert locked.client.post("/docs").status_code == 405
