"""Workers by HTTP, as a real one tells of itself; and a whole life of a task through one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server import ApiServer, refusal
from tests.conftest import WaitUntil
from tests.process.harness import Stage


@pytest.fixture
def stage(server: ApiServer, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Stage]:
    stage = Stage(server.app.broker.url, tmp_path, wait_until)
    yield stage
    stage.close()


def test_a_worker_and_what_it_runs(server: ApiServer, stage: Stage) -> None:
    assert server.client.get("/api/v1/workers").json() == {"workers": []}
    worker = stage.worker(children=2)

    def told() -> dict[str, object] | None:
        found = server.client.get("/api/v1/workers").json()["workers"]
        return found[0] if found and len(found[0]["children"]) == 2 else None

    seen = stage.wait_until(told, 10, "both children")
    assert seen is not None
    assert (seen["pid"], seen["draining"], seen["restarts"]) == (worker.pid, False, [])
    assert server.client.get(f"/api/v1/workers/{seen['id']}").json()["host"] == seen["host"]
    assert refusal(server.client.get("/api/v1/workers/nobody")) == (404, "WORKER_NOT_FOUND")
    task_id = server.accepted("until", {"name": "slow"})
    stage.started("slow")
    (child,) = [child for child in told()["children"] if child["tasks"]]  # type: ignore[index, attr-defined]
    (task,) = child["tasks"]
    assert (task["task_id"], task["task_type"], task["attempt"]) == (task_id, "until", 1)
    running = server.client.get("/api/v1/tasks", params={"worker_id": str(seen["id"])}).json()["tasks"]
    assert [task["task_id"] for task in running] == [task_id]
    (stage.effects_path.parent / f"{stage.effects_path.name}.slow").touch()
    answer = server.client.get(f"/api/v1/tasks/{task_id}/result?wait=20")
    assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
