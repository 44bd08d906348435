"""How a comparison of two trees is judged; the runs themselves are for quiet machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bench.compare import ROOT, Comparison, Tree, compare


@pytest.mark.parametrize(
    ("name", "ratios", "verdict"),
    [
        ("drain_per_s", [1.1] * 9 + [0.9], "faster"),
        ("drain_per_s", [0.9] * 9 + [1.1], "slower"),
        ("claim_1_p50_us", [1.1] * 10, "slower"),
        ("claim_1_p50_us", [0.9] * 10, "faster"),
        ("drain_per_s", [1.02] * 10, "same"),
        ("drain_per_s", [1.1] * 8 + [0.9] * 2, "same"),
    ],
)
def test_a_verdict_needs_nine_pairs_of_ten(name: str, ratios: list[float], verdict: str) -> None:
    comparison = Comparison(this=[100 * ratio for ratio in ratios], base=[100.0] * len(ratios))
    assert comparison.summary(name)["verdict"] == verdict


def test_the_ratio_is_that_of_pairs() -> None:
    """A machine that slows down in the middle of a comparison moves the figures and not their ratio."""
    summary = Comparison(this=[110.0, 55.0, 110.0, 55.0], base=[100.0, 50.0, 100.0, 50.0]).summary("drain_per_s")
    assert summary["ratio"] == pytest.approx(1.1)
    assert summary["range"] == pytest.approx([1.1, 1.1])
    assert (summary["this"], summary["base"]) == (82.5, 75.0)


def test_a_single_pair_has_no_spread() -> None:
    summary = Comparison(this=[2.0], base=[1.0]).summary("claim_1_p50_us")
    assert (summary["ratio"], summary["quartiles"], summary["verdict"]) == (2.0, [2.0, 2.0], "slower")


def test_a_run_of_another_tree_is_refused(tmp_path: Path) -> None:
    """A comparison of a tree with itself, unnoticed, would find no difference."""
    tree = Tree("base", tmp_path, sys.executable, dict(os.environ))
    with pytest.raises(RuntimeError, match=r"base: its Python imports dtq from .*__init__\.py; run `make build`"):
        tree.run("enqueue_one", quick=True)


def test_a_run_that_a_tree_cannot_do_is_left_out_with_the_reason(tmp_path: Path) -> None:
    this = Tree("this tree", ROOT, sys.executable, dict(os.environ))
    base = Tree("base", tmp_path, sys.executable, {**os.environ, "PATH": ""})
    comparisons, skipped = compare(this, base, ["enqueue_one"], rounds=2, quick=True)
    assert comparisons == {}
    assert list(skipped) == ["enqueue_one"]
    assert skipped["enqueue_one"].startswith("base: enqueue_one failed: FileNotFoundError: redis-server was not found")
