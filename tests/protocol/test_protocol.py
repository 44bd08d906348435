"""The protocol's model in short: small scenarios whole, the first states of the others, and a counterexample a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocol.check import main, search
from tests.protocol.rules import ALL, Config, without
from tests.protocol.scenarios import NAIVE, SCENARIOS

# Their states are few: all are seen, and the verdict is final.
WHOLE = (
    "loss", "loss-kept", "loss-batch", "handback", "handback-cancel", "unique", "repeat", "repeat-purge", "reuse",
    "order-one", "order-retry", "bands", "bands-loss", "key", "key-loss", "key-requeue", "key-reuse",
    "purge-schedule", "requeue-loss", "requeue-unique", "requeue-reuse",
)  # fmt: skip
FIRST_STATES = 1_000
# Their counterexamples are deep: `python -m tests.protocol.check naive` finds them.
DEEP = {
    "recover_renumbers", "full_token", "slot_watermark", "start_checks_lease", "send_numbers,kill_connection",
    "adopt_checks_owner,kill_connection,shelf_before_adopted", "shelf_before_adopted",
}  # fmt: skip
NEEDED = {rules: scenarios.split()[0] for rules, scenarios in NAIVE.items() if rules not in DEEP}


@pytest.mark.parametrize("name", WHOLE)
def test_a_small_scenario_is_clean_in_every_state(name: str) -> None:
    """All invariants hold, and from every state everything can still end."""
    result = search(Config(**SCENARIOS[name]))
    assert result.verdict == "CLEAN", (result.why, result.trace)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in WHOLE])
def test_the_first_states_of_a_scenario_are_clean(name: str) -> None:
    """Shortest traces first; `python -m tests.protocol.check` goes on from here."""
    result = search(Config(**SCENARIOS[name]), limit=FIRST_STATES)
    assert result.verdict != "BROKEN", (result.why, result.trace)


@pytest.mark.parametrize(("rules", "name"), NEEDED.items(), ids=list(NEEDED))
def test_without_the_rule_something_breaks(rules: str, name: str) -> None:
    """The model can tell: a rule left out gives a counterexample."""
    assert search(Config(rules=without(*rules.split(",")), **SCENARIOS[name])).verdict == "BROKEN"


def test_every_rule_has_a_scenario_that_shows_what_it_is_for() -> None:
    """No rule of the model is there for nothing."""
    assert {rule for rules in NAIVE for rule in rules.split(",")} == set(ALL._fields)


@pytest.mark.parametrize(
    "words", [["--help"], ["5", "no-scenario"], ["naive", "no-rule"], ["naive", "full_token", "no-scenario"]]
)
def test_a_name_that_does_not_exist_is_said_with_those_that_do(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["check", *words])
    with pytest.raises(SystemExit, match=f"{words[-1]}.*; there are "):
        main()


def test_the_table_of_rules_names_scripts_and_tests_that_exist() -> None:
    """README.md: rule, script, test."""
    here = Path(__file__).parent
    root = here.parent.parent
    rows = re.findall(r"^\| *(\d+)[^|]*\|([^|]*)\|([^|]*)\|$", (here / "README.md").read_text(), re.MULTILINE)
    rules = re.findall(r"^(\d+)\. \*\*", (root / "docs" / "protocol.md").read_text(), re.MULTILINE)
    assert [number for number, _, _ in rows] == rules
    for number, places, tests in rows:
        for place in re.findall(r"`([^`]+)`", places):
            assert (root / "python" / "dtq" / place).exists(), f"rule {number}: {place}"
        named = re.findall(r"`([^`:]+)::([^`]+)`", tests)
        assert named, f"rule {number} names no test"
        for file, function in named:
            assert f"def {function}(" in (root / "tests" / file).read_text(), f"rule {number}: {file}::{function}"
