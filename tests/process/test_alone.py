"""Redelivered tasks run alone, also in children that run async handlers beside each other (protocol 19)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtq._core import Outcomes
from tests.broker.driver import Child, live
from tests.process.harness import Stage, now


class Doomed:
    """A task that a stranger has claimed, before any worker could; when that dies, it waits for its second attempt."""

    def __init__(self, stage: Stage, kind: str, **payload: Any) -> None:
        self.handle = stage.app.enqueue(kind, payload)
        self._broker = stage.app.broker
        self._broker.prepare_queue("default")
        self._stranger = Child(self._broker, worker="host-stranger", queue="default")
        (self._claim,) = self._stranger.claim(1)

    def die(self) -> float:
        """Its child is gone; answers when."""
        seq = self._claim.seq
        self._broker.hand_over("default", self._stranger.consumer, seq + 1, [seq], "signal SIGKILL")
        return now()


def company(stage: Stage) -> list[str]:
    """Starts and ends in the process of a second attempt, while that ran: there must be none."""
    found = []
    effects = stage.effects()
    for at, effect in enumerate(effects):
        if (effect.word, effect.attempt) != ("start", 2):
            continue
        after = [e for e in effects[at + 1 :] if e.pid == effect.pid]
        if after and (after[0].word, after[0].name) != ("end", effect.name):
            found.append(f"{after[0].word} of {after[0].name} while {effect.name} ran")
        begun = {e.name for e in effects[:at] if (e.word, e.pid) == ("start", effect.pid)}
        ended = {e.name for e in effects[:at] if (e.word, e.pid) == ("end", effect.pid)}
        found += [f"{name} ran when {effect.name} began" for name in begun - ended - {effect.name}]
    return found


@pytest.mark.parametrize(("kind", "payload"), [("async_die", {}), ("die", {"how": "SIGKILL"})])
def test_what_runs_beside_a_poison_is_charged_once(stage: Stage, kind: str, payload: dict[str, str]) -> None:
    """Nobody can know which of the handlers in one process killed it: each is tried alone from then on."""
    stage.worker(children=1)
    others = [stage.app.enqueue("async_sleep", {"name": f"o{i}", "seconds": 0.2}, max_attempts=2) for i in range(20)]
    poison = stage.app.enqueue(kind, {"name": "poison", **payload}, max_attempts=2)
    task = stage.ended(poison, 20)
    assert (task.status, task.cause) == ("dead_lettered", "signal SIGKILL")
    for other in others:
        ended = stage.ended(other, 20)
        assert ended.status == "succeeded"
        assert ended.attempt <= 2
    assert company(stage) == []


@pytest.mark.parametrize("children", [1, 2])
@pytest.mark.parametrize("kind", ["async_sleep", "sleep"])
def test_it_runs_soon_though_every_child_is_always_busy(
    open_stage: Callable[..., Stage], kind: str, children: int
) -> None:
    """One child takes nothing more until it is empty, the other goes on; then all is as before."""
    stage = open_stage(concurrency=4)
    solo = Doomed(stage, kind, name="solo", seconds=0.5)
    stream = [{"name": f"o{i}", "seconds": 0.1 + 0.03 * (7 * i % 10)} for i in range(120)]  # never at one time
    items = list(stage.app.enqueue_many("async_sleep", stream))
    stage.worker(children=children)
    stage.started(f"o{4 * children}")
    at = solo.die()
    begun = stage.started("solo", 2)
    assert begun.at - at < 3
    assert stage.ended(solo.handle).status == "succeeded"
    (ended,) = stage.effects("end", "solo")
    assert len(stage.effects("start")) < 120, "the stream was over, and showed nothing"
    for item in items:
        assert (task := stage.ended(item.handle, 20)).status == "succeeded"
        assert task.attempt == 1
    assert company(stage) == []
    elsewhere = [e for e in stage.effects("start") if begun.at < e.at < ended.at and e.pid != begun.pid]
    assert len(elsewhere) >= 2 * (children - 1)


def test_sync_handlers_wait_for_it_too(open_stage: Callable[..., Stage]) -> None:
    """While it is in the loop, the main thread begins nothing."""
    stage = open_stage(concurrency=3)
    solo = Doomed(stage, "async_sleep", name="solo", seconds=0.4)
    stage.worker(children=1)
    stage.app.enqueue("async_sleep", {"name": "busy", "seconds": 0.5})
    stage.started("busy")
    solo.die()
    stage.started("solo", 2)
    marks = [stage.app.enqueue("mark", {"name": f"m{i}"}) for i in range(3)]
    for handle in [solo.handle, *marks]:
        assert stage.ended(handle).status == "succeeded"
    assert company(stage) == []


def test_cancelled_while_it_waits_it_holds_nobody_up(open_stage: Callable[..., Stage]) -> None:
    """The child that has yielded to it claims again."""
    stage = open_stage(concurrency=3)
    solo = Doomed(stage, "async_sleep", name="solo", seconds=0)
    stage.worker(children=1)
    long = stage.app.enqueue("async_until", {"name": "long"})
    stage.started("long")
    solo.die()
    meta = stage.app.broker.keys.meta("default")
    stage.wait_until(lambda: stage.app.broker.command("HGET", meta, "yielded"), 5, "a child that yields")
    assert solo.handle.cancel() == "cancelled"
    assert stage.ended(stage.app.enqueue("async_sleep", {"name": "next", "seconds": 0}), 2).status == "succeeded"
    assert solo.handle.status() == "cancelled"
    Path(f"{stage.effects_path}.long").touch()
    assert stage.ended(long).attempt == 1
    assert not stage.effects("start", "solo")


def test_recovered_beside_others_it_is_handed_back(stage: Stage) -> None:
    """A reply with it was lost; by now a long handler runs. It does not begin, and is not held until that ends."""
    solo = Doomed(stage, "async_sleep", name="solo", seconds=0)
    worker = stage.worker(children=1)
    long = stage.app.enqueue("async_until", {"name": "long"})
    stage.started("long")
    broker, consumer = stage.app.broker, re.findall(r"child (\S+) is ready", worker.log)[0]
    solo.die()

    def lost_send() -> bool:
        """What a lost send of this child would have done: its next turn that looks for strays finds the claim."""
        broker.command("HDEL", broker.keys.sends("default"), consumer)
        reply = broker.turn("default", Outcomes(""), consumer=consumer, send=0, first_seq=900, want=1)
        return [claim.id for claim in reply.claims] == [solo.handle.id]

    stage.wait_until(lost_send, 5, "a claim between two turns of the child")
    stage.wait_until(lambda: live(broker, solo.handle.id, "default").startswith("q:2:"), 10, "its hand-back")
    assert stage.ended(stage.app.enqueue("async_sleep", {"name": "next", "seconds": 0})).status == "succeeded"
    assert not stage.effects("start", "solo")
    Path(f"{stage.effects_path}.long").touch()
    assert (stage.ended(long).attempt, stage.ended(solo.handle).attempt) == (1, 2)
    assert company(stage) == []


def test_an_idle_child_is_found_at_once(open_stage: Callable[..., Stage]) -> None:
    """Children with a long handler and places to spare read as well, and are woken first; none of them gives way."""
    stage = open_stage(concurrency=20)
    solos = [Doomed(stage, "async_sleep", name=f"solo{i}", seconds=0) for i in range(5)]
    worker = stage.worker(children=3)
    longs: dict[int, str] = {}
    while len(longs) < 2:
        name = f"long{len(stage.effects('start'))}"
        stage.app.enqueue("async_until", {"name": name})
        longs.setdefault(stage.started(name).pid, name)
    for i, solo in enumerate(solos):
        at = solo.die()
        stage.ended(solo.handle)
        begun = stage.started(f"solo{i}", 2)
        assert begun.at - at < 0.5
        assert begun.pid not in longs
    assert len(worker.ready_pids()) == 3
    for effect in stage.effects("start"):
        Path(f"{stage.effects_path}.{effect.name}").touch()
    stage.wait_until(stage.empty, 5, "nothing left")
