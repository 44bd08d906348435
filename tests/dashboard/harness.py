"""A dashboard as people run it: `dtq dashboard` on a real Redis with a real worker, looked at with a real Chromium."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, Page, Response
from tests.dashboard.handlers import ROOMS
from tests.process.harness import Stage
from tests.servers import PrivateServer, free_port

from dtq.app import App
from dtq.handles import Handle
from dtq.queues import Queue

ROOT = Path(__file__).resolve().parents[2]
KEY, OTHER_KEY = "the-key-of-ada-0001", "the-key-of-grace-0002"
KEYS = f"ada:{KEY},grace:{OTHER_KEY}"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


class Site:
    """One Redis, one worker with two children, one process with API and dashboard. `url` ends at the dashboard."""

    def __init__(self, server: PrivateServer, stage: Stage, directory: Path) -> None:
        self.server = server
        self.stage = stage
        self.app: App = stage.app
        self._rooms = iter(ROOMS)
        self._count = count()
        self.log_path = directory / "dashboard.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/dashboard/"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dtq", "dashboard", "--port", str(port)],
                cwd=ROOT,
                env={**stage.environment, "DTQ_API_KEY": KEYS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        stage.worker(app="tests.dashboard.handlers:app", queues=ROOMS)
        stage.wait_until(self._answers, 30, "the dashboard answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log_path.read_text()
        try:
            return httpx.get(self.url + "login").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def log(self) -> str:
        """What the process has written."""
        return self.log_path.read_text()

    def room(self) -> Queue:
        """A queue that the worker serves, for one test."""
        return self.app.queue(next(self._rooms))

    def still(self) -> Queue:
        """A queue that nobody serves, for one test."""
        return self.app.queue(f"still{next(self._count)}")

    def enqueue(self, name: str, queue: Queue, payload: dict[str, Any], **options: Any) -> Handle[Any]:
        """One task."""
        return self.app.enqueue(name, payload, queue=queue.name, **options)

    def sign_in(self, key: str = KEY) -> str:
        """The session cookie for a key."""
        answer = httpx.post(self.url + "login", data={"key": key})
        while answer.status_code == 429:  # a test has tried wrong keys from this address
            time.sleep(float(answer.headers["Retry-After"]))
            answer = httpx.post(self.url + "login", data={"key": key})
        assert answer.status_code == 303, answer.text
        return str(answer.cookies["dtq_session"])

    def audit(self, action: str) -> list[Any]:
        """The acts of this name, the newest first."""
        return [entry for entry in self.app.audit(1000) if entry.action == action]

    def close(self) -> None:
        """Stops it in good order; it must be able to."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the dashboard did not stop; its log:\n{self.log}") from None
        assert code == 0, f"it ended with {code}; its log:\n{self.log}"


class Tab:
    """One tab of a browser that is signed in. What the console says, and what fails to load, is kept."""

    def __init__(self, site: Site, context: BrowserContext) -> None:
        self.site = site
        self.context = context
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        self.page.on("response", self._answered)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _failed(self, url: str, failure: str | None) -> None:
        if failure != "net::ERR_ABORTED":  # what was under way when the page was left
            self.complaints.append(f"failed: {url}: {failure}")

    def _answered(self, response: Response) -> None:
        self.hosts.add(response.url.split("/")[2])
        if response.status >= 400:
            self.complaints.append(f"status {response.status}: {response.url}")

    def open(self, address: str, wait_for: str | None = None) -> Page:
        """Opens a page of the dashboard, and waits for what it read: a row or an empty state, or what is said."""
        self.page.goto(self.site.url + address)
        self.page.wait_for_selector(wait_for or "tbody tr:visible, .empty .title:visible, .fact:visible")
        return self.page

    def text(self, selector: str = "body") -> str:
        """The text that is seen."""
        return self.page.inner_text(selector)

    def row(self, text: str) -> Any:
        """The row of a table that holds a text."""
        return self.page.locator("tbody tr", has_text=text)

    def press(self, name: str, within: Any = None) -> None:
        """Clicks the button of this name."""
        (within or self.page).get_by_role("button", name=name, exact=True).click()

    def fits(self, width: int | None = None) -> None:
        """Waits until nothing of the page stands beyond its width, which may still be changing."""
        script = f"{width or 'innerWidth'} == innerWidth && document.documentElement.scrollWidth <= innerWidth"
        self.until(lambda: self.page.evaluate(script), "the page fits into its width")

    def told(self, text: str) -> None:
        """Waits for a notice that holds this text."""
        self.page.locator(".q-notification", has_text=text).first.wait_for()

    def until(self, condition: Callable[[], Any], description: str = "", timeout: float = 10.0) -> Any:
        """Waits for a condition while the browser goes on."""
        deadline = time.monotonic() + timeout
        while True:
            if found := condition():
                return found
            assert time.monotonic() < deadline, f"after {timeout:g} s still not so: {description or condition}"
            self.page.wait_for_timeout(30)
