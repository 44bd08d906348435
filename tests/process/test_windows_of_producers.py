"""The windows of those who send: an enqueue, a bulk enqueue, a requeue of dead letters, killed in the middle.

The sender is a process of its own, killed between a call and its reply, with the call applied and not applied, or
between two calls; or its server is killed there, and the sender lives. Then it is all done again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from dtq.bulk import FIRST_CHUNK_TASKS
from tests.process.gate import Hold
from tests.process.harness import ROOT
from tests.process.scene import ONCE, Fate, Scene

APPLIED = pytest.mark.parametrize("applied", [False, True], ids=["not_applied", "applied"])
WHOM = pytest.mark.parametrize("whom", ["sender", "server"])

_SEND = """
import json, sys
import dtq
url, act, payload = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
app = dtq.App(url)
if act == "enqueue":
    try:
        print("new", app.enqueue("mark", payload, idempotency_key="key", unique=True).id)
    except dtq.IdempotencyInProgress as error:
        print("standing", error.task_id)
elif act == "bulk":
    print(app.enqueue_many("mark", ({"name": f"t{i}"} for i in range(payload))).run().accepted)
elif act == "requeue":
    print(app.queue("default").requeue(payload).id)
elif act == "requeue all":
    print(sum(item.error is None for item in app.queue("default").requeue_all()))
"""


class Sender:
    """A process that sends through the gate."""

    def __init__(self, scene: Scene, act: str, payload: Any = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SEND, scene.gate.url, act, json.dumps(payload)],
            cwd=ROOT,
            env=scene.stage.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> str:
        """What it printed, or the last line of its traceback."""
        printed, failed = self.process.communicate(timeout=20)
        return printed.strip() or failed.strip().splitlines()[-1]

    def kill_in(self, hold: Hold) -> None:
        """SIGKILL, once it waits for the reply that the hold keeps."""
        assert hold.wait() == self.process.pid
        self.process.kill()
        self.process.communicate(timeout=5)
        hold.release(deliver=False)


@pytest.fixture
def keys(scene: Scene) -> Any:
    """The names of all keys of the queue, but for those that stand for the queue itself."""

    def look() -> list[str]:
        found = sorted(key.decode() for key in scene.stage.app.broker.command("KEYS", "dtq:*{default}*"))
        return [key for key in found if not key.startswith(("dtq:stream:{default}", "dtq:queue:"))]

    return look


# --- enqueue -----------------------------------------------------------------------------------------------------


@WHOM
@APPLIED
def test_a_kill_in_the_middle_of_an_enqueue(scene: Scene, keys: Any, whom: str, applied: bool) -> None:
    """With a key and a lock: nothing at all is left of what was not applied, and what was applied is found again."""
    hold = scene.gate.hold("enqueue", applied=applied)
    sender = Sender(scene, "enqueue", {"name": "t"})
    hold.wait()
    assert bool(keys()) is applied
    if whom == "sender":
        sender.kill_in(hold)
        word, task_id = Sender(scene, "enqueue", {"name": "t"}).end().split()
        assert word == ("standing" if applied else "new")
    else:
        scene.kill_server(hold)
        word, task_id = sender.end().split()
        assert word == "new"
    scene.stage.worker(children=1)
    assert scene.fate(scene.stage.app.handle(task_id), "t") == ONCE
    assert len(scene.starts("t")) == 1
    scene.check_nothing_left()
    assert scene.stage.app.enqueue("mark", {"name": "t"}, unique=True).task().status is not None  # the lock is free


@WHOM
@APPLIED
def test_a_kill_in_the_middle_of_a_bulk_enqueue(scene: Scene, whom: str, applied: bool) -> None:
    """The second of several chunks: each chunk stands as a whole or not at all, and each of its tasks runs once."""
    hold = scene.gate.hold("enqueue", skip=1, applied=applied)
    sender = Sender(scene, "bulk", 1200)
    hold.wait()
    stands = scene.stage.app.broker.queue_counts("default").waiting
    assert stands == FIRST_CHUNK_TASKS * (4 if applied else 1)  # each chunk is twice as long as the last, and a bit
    if whom == "sender":
        sender.kill_in(hold)
        count = stands
    else:
        scene.kill_server(hold)
        assert sender.end() == "1200"
        count = 1200
    scene.stage.worker(children=2)
    scene.check_nothing_left()
    assert Counter(effect.name for effect in scene.stage.effects("start")) == {f"t{i}": 1 for i in range(count)}


# --- requeue of dead letters -------------------------------------------------------------------------------------


@pytest.fixture
def dead_letters(scene: Scene) -> list[Any]:
    """Five tasks that have failed for good."""
    scene.stage.worker(children=1)
    handles = [scene.stage.app.enqueue("fail_while_young", {"name": f"t{i}"}, max_attempts=1) for i in range(5)]
    for handle in handles:
        assert scene.stage.ended(handle).status == "dead_lettered"
    scene.go("old")
    return handles


@WHOM
@APPLIED
@pytest.mark.parametrize("act", [pytest.param("requeue", marks=pytest.mark.slow), "requeue all"])
def test_a_kill_in_the_middle_of_a_requeue(
    scene: Scene, dead_letters: list[Any], act: str, whom: str, applied: bool
) -> None:
    """A dead letter stands or its task is queued, never both or neither; done again, each runs once more.

    What is queued again has its audit entry by then.
    """
    before = 2 if act == "requeue all" else 0
    hold = scene.gate.hold("requeue", applied=applied, skip=before)
    sender = Sender(scene, act, dead_letters[0].id)
    hold.wait()
    done = before + applied
    queue = scene.stage.app.queue("default")
    scene.wait_until(lambda: len([h for h in dead_letters if h.task().status != "dead_lettered"]) == done, 5)
    assert queue.dead_letter_count() == 5 - done
    named = {name for entry in scene.stage.app.audit() for name in (entry.task_id, *entry.facts.get("ids", ()))}
    assert named >= {handle.id for handle in dead_letters if handle.task().status != "dead_lettered"}
    if whom == "sender":
        sender.kill_in(hold)
    else:
        scene.kill_server(hold)
        assert "BrokerUnavailable" in sender.end()
    assert Sender(scene, "requeue all").end() == str(5 - done)
    for i, handle in enumerate(dead_letters):
        assert scene.fate(handle, f"t{i}") == Fate(1, 0, [1, 1], ("error",))
    assert queue.dead_letter_count() == 0
    scene.check_nothing_left()
