"""The protocol's model in short: small scenarios whole, the first states of the others, and a counterexample a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocol import protocol
from tests.protocol.check import SCENARIOS, search

WHOLE = ("loss", "loss-batch", "handback", "handback-cancel", "unique")
FIRST_STATES = 2_000
# Without this rule, this scenario goes wrong; only those that are found within a second or so.
NEEDED = {
    "producer_seq": "loss",
    "recover_after_loss": "loss",
    "kill_connection": "loss",
    "repeat_is_known": "optimistic-loss",
    "adopt_checks_owner,absorb_spares_live": "pause",
    "dead_is_final": "pause",
    "fresh_ids": "crash",
    "sweep": "pause",
    "revoke_first": "handback",
    "flag_survives": "handback-cancel",
    "release_compares": "unique",
    "give_to_owner": "group-lost",
    "opt_counts_delivered": "optimistic",
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_small_scenario_is_clean_in_every_state(name: str) -> None:
    """All invariants hold, and from every state everything can still end."""
    verdict, why, trace, _ = search(protocol.config(**SCENARIOS[name]))
    assert verdict == "CLEAN", (why, trace)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in WHOLE])
def test_the_first_states_of_a_scenario_are_clean(name: str) -> None:
    """Shortest traces first; `python -m tests.protocol.check` goes on from here."""
    verdict, why, trace, _ = search(protocol.config(**SCENARIOS[name]), limit=FIRST_STATES)
    assert verdict == "PARTIAL", (why, trace)


@pytest.mark.parametrize(("rules", "name"), NEEDED.items(), ids=list(NEEDED))
def test_without_the_rule_something_breaks(rules: str, name: str) -> None:
    """The model can tell: a rule left out gives a counterexample."""
    left = protocol.ALL._replace(**dict.fromkeys(rules.split(","), False))
    assert search(protocol.config(rules=left, **SCENARIOS[name]))[0] == "BROKEN"


def test_the_table_of_rules_names_scripts_and_tests_that_exist() -> None:
    """README.md: rule, script, test."""
    here = Path(__file__).parent
    root = here.parent.parent
    rows = re.findall(r"^\| *(\d+)[^|]*\|([^|]*)\|([^|]*)\|$", (here / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 20))
    for number, places, tests in rows:
        for place in re.findall(r"`([^`]+)`", places):
            assert (root / "python" / "dtq" / place).exists(), f"rule {number}: {place}"
        named = re.findall(r"`([^`:]+)::([^`]+)`", tests)
        assert named, f"rule {number} names no test"
        for file, function in named:
            assert f"def {function}(" in (root / "tests" / file).read_text(), f"rule {number}: {file}::{function}"
