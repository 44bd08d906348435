"""Random lives of tasks on a real server, against the model of the lifecycle.

DTQ_MODEL_EXAMPLES=1000 (with DTQ_MODEL_STEPS=80) searches longer, and anew each time; the default run is always the
same. DTQ_MODEL_SHRINK=0 shows a failure as it was found: shrinking takes minutes.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import LifecycleMachine
from tests.servers import PrivateServer

EXAMPLES = int(os.environ.get("DTQ_MODEL_EXAMPLES", "0"))
SHRINK = os.environ.get("DTQ_MODEL_SHRINK", "1") == "1"
STEPS = int(os.environ.get("DTQ_MODEL_STEPS", "40"))


def _search(server: PrivateServer, examples: int, fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtq.broker.operating.SLICE", 2)  # so that other things happen between the slices of a purge
    profile = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=fixed,
        database=None,
        print_blob=not fixed,
        phases=(Phase.generate, Phase.shrink) if SHRINK else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    machine = type("LifecycleMachine", (LifecycleMachine,), {"url": server.url})
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.timeout(600)
def test_every_life_of_a_task_is_a_legal_one(redis_server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever producers, children, supervisors and accidents do in whatever order (spec §1-§7)."""
    _search(redis_server, EXAMPLES or 100, fixed=not EXAMPLES, monkeypatch=monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_long_search_finds_no_illegal_life(redis_server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with other seeds, longer."""
    _search(redis_server, 1000, fixed=False, monkeypatch=monkeypatch)
