"""One site for all browser tests of a run, a browser for each file, a signed-in tab for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from tests.conftest import WaitUntil
from tests.dashboard.harness import CHROMIUM, KEY, Site, Tab
from tests.process.harness import Stage
from tests.servers import PrivateServer


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil) -> Iterator[Site]:
    """Redis, worker, API and dashboard."""
    directory = tmp_path_factory.mktemp("site")
    with PrivateServer() as server:
        stage = Stage(server.url, directory, wait_until)
        try:
            site = Site(server, stage, directory)
            try:
                yield site
            finally:
                site.close()
        finally:
            stage.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. Of a file only: the driver keeps a loop, which the asyncio tests of other files would meet."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def session(site: Site) -> str:
    """The cookie of a session of Ada's."""
    return site.sign_in(KEY)


@pytest.fixture(scope="module")
def context(site: Site, chromium: Browser, session: str) -> Iterator[BrowserContext]:
    """What the signed-in tabs of a file share: cookies, and a cache, so that the library is loaded once."""
    context = _context(chromium)
    context.add_cookies([{"name": "dtq_session", "value": session, "url": site.url}])
    yield context
    context.close()


@pytest.fixture
def tab(site: Site, context: BrowserContext) -> Iterator[Tab]:
    """A tab of Ada's. At the end it may not have complained."""
    tab = Tab(site, context)
    yield tab
    tab.page.close()
    assert tab.complaints == []
    assert "Traceback" not in site.log


@pytest.fixture
def stranger(site: Site, chromium: Browser) -> Iterator[Tab]:
    """A tab of a browser that has never been here."""
    tab = Tab(site, _context(chromium))
    yield tab
    tab.context.close()
    assert tab.complaints == []


def _context(chromium: Browser) -> BrowserContext:
    return chromium.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
