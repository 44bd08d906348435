"""Long pauses instead of deaths: a worker, or the server, stands still for longer than the lease, and goes on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from tests.conftest import WaitUntil
from tests.process.harness import now
from tests.process.scene import LEASE_S, LOST, ONCE, RENEW_S, Fate, Scene


def test_a_paused_worker_that_wakes_is_refused_and_stops_its_handlers(scene: Scene, wait_until: WaitUntil) -> None:
    """Another one has taken over: what its child ends is stale, and at its first renewal the rest is stopped."""
    paused = scene.stage.worker(children=2)
    ends, lasts = scene.until("ends"), scene.until("lasts")
    pids = {name: scene.stage.started(name).pid for name in ("ends", "lasts")}
    for pid in (paused.pid, *paused.live_pids()):
        os.kill(pid, signal.SIGSTOP)
    scene.stage.worker(children=2)
    for name in ("ends", "lasts"):
        scene.stage.started(name, 2, 30)
    os.kill(pids["ends"], signal.SIGCONT)  # its supervisor stands still: nobody but Redis can refuse it
    scene.go("ends")
    assert replace(scene.fate(ends, "ends"), released=0) == Fate(2, 0, [1, 2], LOST)
    wait_until(lambda: "refused as stale" in paused.log, 30, "a stale outcome")
    at = now()
    for pid in (pids["lasts"], paused.pid):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: pids["lasts"] not in paused.live_pids(), 10, "the end of its handler")
    assert now() - at < RENEW_S + 1.5  # a renewal, and what a busy machine needs
    wait_until(lambda: "starts in its place" in paused.log, 10, "a new life")
    scene.go("lasts")
    assert replace(scene.fate(lasts, "lasts"), released=0) == Fate(2, 0, [1, 2], LOST)
    assert [effect.attempt for effect in scene.stage.effects("end", "lasts")] == [2]
    scene.check_nothing_left()


def test_a_frozen_server_runs_nothing_again(scene: Scene, wait_until: WaitUntil) -> None:
    """Longer than the lease: all leases are gone when it thaws, and the leader lets the others renew theirs first."""
    renew_s = 0.9
    workers = [scene.stage.worker(children=1, overrides={"renew_s": renew_s}) for _ in range(2)]
    tasks = {name: scene.until(name) for name in ("ends", "lasts")}
    for name in tasks:
        scene.stage.started(name)
    ids = {worker.id for worker in scene.stage.app.broker.workers()}
    wait_until(lambda: any("leads" in worker.log for worker in workers), 10, "a leader")
    last = next(worker for worker in workers if "leads" not in worker.log)
    scene.server.freeze()
    try:
        until = now() + 1.5 * LEASE_S
        scene.go("ends")  # while nobody can settle it
        wait_until(lambda: now() > until, 10, "the lease and more")
        assert scene.stage.effects("end", "ends")
        last.signal(signal.SIGSTOP)  # the slowest to renew
    finally:
        scene.server.thaw()
    wait_until(scene.stage.app.broker.workers, 10, "the leader's lease")
    until = now() + renew_s * 1.2  # more than a round of the reaper, less than two renewals
    wait_until(lambda: now() > until, 10, "a round of the reaper")
    last.signal(signal.SIGCONT)
    assert scene.fate(tasks["ends"], "ends") == ONCE
    scene.go("lasts")
    assert scene.fate(tasks["lasts"], "lasts") == ONCE
    wait_until(lambda: {worker.id for worker in scene.stage.app.broker.workers()} == ids, 10, "the leases of both")
    assert not any("starts in its place" in worker.log for worker in workers)
    scene.check_nothing_left()
