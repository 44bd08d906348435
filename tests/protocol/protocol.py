"""The storage protocol of dtq as a state machine: every Lua script is one atomic step.

`steps(c, s)` gives every step that a state allows as (label, next state or the broken invariant, is it a fault).
The scripts stand in entering.py and claiming.py; who calls them in children.py, supervisors.py and outside.py.
"""

from __future__ import annotations

from tests.protocol.children import child_steps, late_steps, renumber
from tests.protocol.outside import accident_steps, late_copy_steps, operator_steps, producer_steps, task_steps
from tests.protocol.rules import Config
from tests.protocol.state import Broken, State
from tests.protocol.stepping import Steps
from tests.protocol.supervisors import hand_back_steps, leader_steps, worker_steps


def steps(c: Config, s: State) -> list[tuple[str, State | Broken, bool]]:
    """Every enabled step."""
    found = Steps(c, s, renumber if c.numbers else None)
    for number in s.children:
        child_steps(c, s, number, found)
    if s.late:
        late_steps(c, s, found)
        late_copy_steps(c, s, found)
    hand_back_steps(c, s, found)
    for worker in s.supervised:
        worker_steps(c, s, worker, found)
    leader_steps(c, s, found)
    for task in s.producers:
        producer_steps(c, s, task, found)
        task_steps(c, s, task, found)
    operator_steps(c, s, found)
    accident_steps(c, s, found)
    return found.found
