"""The log of a real worker: one line for each outcome, as text or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from dtq.logs import LONGEST_LINE
from tests.process.harness import Stage

SECRET = "SECRET-1234"


def outcomes(log: str) -> list[dict[str, Any]]:
    """Every line is JSON; those of outcomes."""
    return [line for line in map(json.loads, log.splitlines()) if "task_id" in line]


def test_each_attempt_is_one_line_of_json(stage: Stage) -> None:
    """Sync and async, in any number, with the fields of the events; nothing of what tasks carry (S122, S124)."""
    stage.environment["DTQ_LOG_JSON"] = "1"
    worker = stage.worker(children=2, log_level=20, ready=False)
    app = stage.app
    handles = [app.enqueue("mark", {"name": f"{SECRET}\n\u2028{number}"}) for number in range(300)]
    handles += [app.enqueue("async_sleep", {"name": SECRET, "seconds": 0.01}, metadata={"key": SECRET})]
    handles += [app.enqueue("second_time", {"name": SECRET}), app.enqueue("fail", {"name": "x"}, max_attempts=1)]
    handles += [app.enqueue("nobody", {SECRET: 1}), app.enqueue("raise_named", {"name": "x", "what": "Discard"})]
    tasks = [stage.ended(handle) for handle in handles]
    stage.wait_until(lambda: len(outcomes(worker.log)) >= len(tasks) + 1, 10, "every outcome is logged")
    found = outcomes(worker.log)
    assert Counter((line["task_id"], line["attempt"]) for line in found).most_common(1)[0][1] == 1
    assert {line["task_id"] for line in found} == {handle.id for handle in handles}
    assert Counter(line["type"] for line in found) == {
        "TASK_SUCCEEDED": 302, "TASK_RETRY_SCHEDULED": 1, "TASK_DEAD_LETTERED": 2, "TASK_CANCELLED": 1
    }  # fmt: skip
    by_id = {task.id: task for task in tasks}
    for line in found:
        task = by_id[line["task_id"]]
        assert (line["queue"], line["task_type"], line["worker_id"]) == ("default", task.task_type, task.worker_id)
        assert line["level"] == ("WARNING" if line["type"] == "TASK_DEAD_LETTERED" else "INFO")
        assert line["type"] != "TASK_SUCCEEDED" or line["took_ms"] >= 0
    assert SECRET not in worker.log


def test_odd_names_in_redis_forge_no_line(stage: Stage) -> None:
    """An id that the interface refuses, written by hand, with control characters and of 100 KB."""
    from dtq._core import Chunk, EnvelopeHead

    worker = stage.worker(children=1, log_level=20, ready=False)
    broker = stage.app.broker
    broker.prepare_queue("default")
    head, chunk = EnvelopeHead("noop", 5, 1, 30_000, 86_400_000), Chunk()
    odd = ["x\r\n2026-01-01 00:00:00,000 ERROR 1 forged", "y\x1b[31m\u2028\u202e\x85", "z" * 100_000]
    for task_id in odd:
        chunk.add_payload(task_id, head, {"i": 1}, 1000, b"5")
    broker.enqueue("default", chunk)
    stage.wait_until(lambda: worker.log.count(" (noop) attempt 1 succeeded") >= 2 and "zzz" in worker.log, 10, "logged")
    lines = worker.log.splitlines()
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert not [line for line in lines if not line[:4].isdigit()]
    assert max(map(len, lines)) < 2 * LONGEST_LINE
    assert "\x1b" not in worker.log
    assert "\u202e" not in worker.log


@pytest.mark.parametrize(("level", "lines"), [(20, 2), (30, 1)])
def test_from_warnings_on_only_what_failed_for_good_is_told(stage: Stage, level: int, lines: int) -> None:
    worker = stage.worker(children=1, log_level=level, ready=False)
    for handle in (stage.app.enqueue("noop"), stage.app.enqueue("fail", {"name": "x"}, max_attempts=1)):
        stage.ended(handle)
    stage.wait_until(lambda: "(fail) attempt 1 dead_lettered: error (ValueError)" in worker.log, 5, "logged")
    assert worker.log.count(" attempt 1 ") == lines


def test_a_wrong_switch_stops_the_start(stage: Stage) -> None:
    stage.environment["DTQ_LOG_JSON"] = "perhaps"
    worker = stage.worker(children=1, ready=False)
    assert worker.wait() == 2
    assert "DTQ_LOG_JSON: 'perhaps' is not a switch; use 1 or 0" in worker.log
