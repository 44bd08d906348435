"""The API on a real socket: uvicorn in a thread of the test."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI

import dtq
from dtq.api.serving import server_config

START_TIMEOUT_S = 10.0


class ApiServer:
    """Serves the API of an App of its own. settings: of the App; the server listens on a free port of 127.0.0.1."""

    def __init__(self, redis_url: str, *, insecure: bool = False, **settings: Any) -> None:
        self.app = dtq.App(redis_url, **settings)
        config = server_config(self.app, host="127.0.0.1", port=0, insecure=insecure)
        config.log_config = None
        assert isinstance(config.app, FastAPI)
        self.api = config.app
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server took too long to start"
            time.sleep(0.005)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.api.state.served.close()
        self._server.should_exit = True
        self._thread.join(15)
        self.app.close()
        assert not self._thread.is_alive(), "the server did not stop"

    def submit(self, task_type: str = "noop", payload: dict[str, Any] | None = None, **fields: Any) -> httpx.Response:
        """Submit one task."""
        return self.client.post("/api/v1/tasks", json={"task_type": task_type, "payload": payload or {}, **fields})

    def accepted(self, task_type: str = "noop", payload: dict[str, Any] | None = None, **fields: Any) -> str:
        """Submit a task that is accepted; its id."""
        answer = self.submit(task_type, payload, **fields)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["task_id"])


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, whose body is whole."""
    body = answer.json()
    assert body.keys() == {"code", "message", "request_id", "details"}, body
    assert body["message"]
    assert body["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, body["code"]
