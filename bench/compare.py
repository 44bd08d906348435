"""This tree beside another revision, in alternating runs: the ratio of every figure, with its spread.

    make bench-check BASE=rev                                the whole of it, some minutes
    make bench-check BASE=rev ARGS="--quick"                 about a minute after the build
    make bench-check BASE=rev ARGS="--kinds drain_kept claim --rounds 20"

The revision is checked out as a git worktree in .compare/ and built there, once, with an environment of its own. In
each round every kind of run is done on both trees, one right after the other, in an order that is drawn anew. What is
told is the ratio within a pair (this tree / base), which the moods of a machine hardly move: its median, quartiles,
least and most. `slower` and `faster` stand where the median is off by more than 3 % and nine pairs of ten lie on its
side of 1. The table is printed, all samples are written to bench/results/compare.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.report import rounded

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "bench" / "sample.py"
RESULT = ROOT / "bench" / "results" / "compare.json"
STORE = ROOT / ".compare"
KINDS = ("drain_kept", "drain_retention_0", "enqueue_one", "start", "claim")
NOTICED = 0.03
AGREED = 0.9
"""Of ten pairs of equal trees, nine lie on one side by chance twice in a hundred comparisons."""
RUN_TIMEOUT_S = 300


@dataclass
class Tree:
    """A checkout with an interpreter that imports its dtq."""

    name: str
    root: Path
    python: str
    environment: dict[str, str]

    def run(self, kind: str, quick: bool) -> dict[str, float]:
        """Figures of one run.

        Raises:
            RuntimeError: it failed, or measured the dtq of another tree; the message says which and why.
        """
        command = [self.python, str(SAMPLE), kind, *(["--quick"] if quick else [])]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.name}: {kind} has not ended within {RUN_TIMEOUT_S} s") from None
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
            raise RuntimeError(f"{self.name}: {kind} failed: {reason}")
        answer = json.loads(done.stdout)
        if not Path(answer["dtq"]).is_relative_to(self.root):
            raise RuntimeError(f"{self.name}: its Python imports dtq from {answer['dtq']}; run `make build`")
        return dict(answer["figures"])


@dataclass
class Comparison:
    """Pairs of one figure, in the order they were measured."""

    this: list[float] = field(default_factory=list[float])
    base: list[float] = field(default_factory=list[float])

    def summary(self, name: str) -> dict[str, Any]:
        """Medians, the spread of the ratios, and a verdict."""
        ratios = [this / base for this, base in zip(self.this, self.base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        more_is_better = name.endswith("_per_s")
        verdict = "same"
        agreeing = sum((ratio > 1) == (middle > 1) for ratio in ratios)
        if abs(middle - 1) > NOTICED and agreeing >= AGREED * len(ratios):
            verdict = "faster" if (middle > 1) == more_is_better else "slower"
        return {
            "base": statistics.median(self.base),
            "this": statistics.median(self.this),
            "ratio": middle,
            "quartiles": [low, high],
            "range": [min(ratios), max(ratios)],
            "better": "more" if more_is_better else "less",
            "verdict": verdict,
        }


def main() -> int:
    """Compare; 1 when this tree could not be measured."""
    options = _arguments()
    base = _base(options.base)
    this = Tree("this tree", ROOT, sys.executable, dict(os.environ))
    comparisons, skipped = compare(this, base, options.kinds, options.rounds, options.quick)
    summaries = {name: found.summary(name.rpartition(" ")[2]) for name, found in sorted(comparisons.items())}
    _print(base.name, options.rounds, summaries, skipped)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "base": base.name,
        "this": _git("describe", "--always", "--dirty"),
        "rounds": options.rounds,
        "quick": options.quick,
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[1],
        "skipped": skipped,
        "figures": rounded(summaries),
        "samples": {name: rounded({"this": pairs.this, "base": pairs.base}) for name, pairs in comparisons.items()},
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\nall samples: {RESULT.relative_to(ROOT)}")
    return 1 if any(reason.startswith(this.name) for reason in skipped.values()) else 0


def compare(
    this: Tree, base: Tree, kinds: list[str], rounds: int, quick: bool
) -> tuple[dict[str, Comparison], dict[str, str]]:
    """Pairs by `kind figure`, and why kinds were left out: a base may lack what a run of this tree needs."""
    comparisons: dict[str, Comparison] = {}
    skipped: dict[str, str] = {}
    for number in range(rounds):
        for kind in random.sample(kinds, len(kinds)):
            if kind in skipped:
                continue
            print(f"round {number + 1} of {rounds}: {kind:<20}", end="\r", file=sys.stderr, flush=True)
            try:
                figures = {tree.name: tree.run(kind, quick) for tree in random.sample([this, base], 2)}
            except RuntimeError as error:
                skipped[kind] = str(error)
                continue
            for name in figures[this.name].keys() & figures[base.name].keys():
                pairs = comparisons.setdefault(f"{kind} {name}", Comparison())
                pairs.this.append(figures[this.name][name])
                pairs.base.append(figures[base.name][name])
    print(" " * 50, end="\r", file=sys.stderr)
    return comparisons, skipped


def _base(revision: str) -> Tree:
    """The revision's worktree, built; SystemExit where there is none or it cannot be built."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        sys.exit(f"{revision} is no revision of this repository; give a commit, a tag or a branch with BASE=")
    root = STORE / commit[:12]
    if not root.exists():
        _git("worktree", "prune")  # `make clean` removes worktrees behind git's back
        _git("worktree", "add", "--detach", str(root), commit)
    prepare = root / ".ci" / "prepare"
    if not prepare.exists():
        sys.exit(f"{revision} has no .ci/prepare to build it; give a later one")
    # Its own environment: neither modules nor options of this tree's may reach it.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    built = {
        **environment,
        "CARGO_TARGET_DIR": str(STORE / "target"),
        "PYTHON": os.path.realpath(sys.executable),
    }
    print(f"building {revision} in {root.relative_to(ROOT)}", file=sys.stderr)
    if subprocess.run([prepare], env=built, check=False).returncode:
        sys.exit(f"{revision} could not be built; the lines above say why")
    name = revision if commit.startswith(revision) else f"{revision} ({commit[:12]})"
    return Tree(name, root, str(root / ".venv" / "bin" / "python"), environment)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _print(base: str, rounds: int, summaries: dict[str, dict[str, Any]], skipped: dict[str, str]) -> None:
    print(f"this tree / {base}, {rounds} pairs\n")
    head = ("figure", "base", "this", "ratio", "quartiles", "range", "better", "")
    rows = [head]
    for name, found in rounded(summaries).items():
        spread = [f"{low:.3f} - {high:.3f}" for low, high in (found["quartiles"], found["range"])]
        values = [f"{found[tree]:,.4g}" if found[tree] < 1000 else f"{found[tree]:,.0f}" for tree in ("base", "this")]
        rows.append((name, *values, f"{found['ratio']:.3f}", *spread, found["better"], found["verdict"]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = [
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    for kind, reason in skipped.items():
        print(f"\n{kind} was left out: {reason}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the revision to compare with")
    parser.add_argument("--quick", action="store_true", help="3 rounds of short runs")
    parser.add_argument("--rounds", type=int, help="pairs of each kind (10, or 3)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="which runs (all)")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 10)
    return options


if __name__ == "__main__":
    sys.exit(main())
