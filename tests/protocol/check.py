"""Breadth-first search over the steps of the protocol: every scenario with all rules, or with one rule left out.

python -m tests.protocol.check [seconds each] [naive [rule [scenarios]] | scenarios]: see README.md.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tests.protocol.invariants import check, goal
from tests.protocol.protocol import steps
from tests.protocol.rules import ALL, Config, without
from tests.protocol.scenarios import NAIVE, SCENARIOS
from tests.protocol.state import Broken, State, initial

# What leads to an end soonest is tried first.
RANK = [
    "applies",
    "receives",
    "starts t",
    "ends ok",
    "hands over",
    "sweeps",
    "resumed",
    "takes",
    "declares",
    "expires",
    "promote",
    "enqueues",
    "renews",
    "starts again",
    "ends itself",
    "hand-back",
    "sends turn",
    "vanishes",
    "ends err",
    "SIGCONT",
    "blocks",
    "times out",
]


Found = list[tuple[str, State | Broken, bool]]


class Result(NamedTuple):
    """verdict: CLEAN (all states seen), PARTIAL (bound reached, nothing found) or BROKEN, with a shortest trace."""

    verdict: str
    why: str
    trace: list[str]
    states: int


def rank(label: str) -> int:
    """Lower comes first."""
    return next((i for i, word in enumerate(RANK) if word in label), len(RANK))


def recoverable(c: Config, s: State, found: Found | None, good: set[int]) -> bool:
    """Is a terminal state reachable without another fault? Depth first, remembering what is known good.

    A step that breaks an invariant counts as good here: the search reports it by itself.
    """
    path: list[int] = []
    seen: set[int] = set()
    stack = [(s, 0, found)]
    while stack:
        s, depth, found = stack.pop()
        key = s.fingerprint()
        if key in seen:
            continue
        seen.add(key)
        del path[depth:]
        path.append(key)
        if key in good or goal(s):
            good.update(path)
            return True
        free = [(rank(label), i, n) for i, (label, n, fault) in enumerate(found or steps(c, s)) if not fault]
        if any(isinstance(n, Broken) for _, _, n in free):
            good.update(path)
            return True
        for _, _, n in sorted(free, key=lambda item: item[:2], reverse=True):
            stack.append((n, depth + 1, None))
    return False


def search(c: Config, limit: int = 4_000_000, seconds: float = 600) -> Result:
    """Explore breadth first, until `limit` states are known or `seconds` of processor time are over."""
    start = time.process_time()
    s = initial(c)
    parent: dict[int, tuple[int, str] | None] = {s.fingerprint(): None}
    todo, good = deque([s]), set[int]()
    terminal = 0

    def trace(key: int, *last: str) -> list[str]:
        lines = list(last)
        while (link := parent[key]) is not None:
            key, label = link
            lines.append(label)
        return lines[::-1]

    while todo:
        s = todo.popleft()
        key = s.fingerprint()
        found = steps(c, s)
        if not recoverable(c, s, found, good):
            return Result("BROKEN", "stuck: no terminal state reachable any more", trace(key), len(parent))
        terminal += goal(s)
        for label, n, _ in found:
            if isinstance(n, Broken):
                return Result("BROKEN", str(n), trace(key, label), len(parent))
            following = n.fingerprint()
            if following in parent:
                continue
            parent[following] = (key, label)
            try:
                check(c, n)
            except Broken as broken:
                return Result("BROKEN", str(broken), trace(following), len(parent))
            todo.append(n)
        if len(parent) > limit or time.process_time() - start > seconds:
            return Result("PARTIAL", f"bound reached, {len(todo)} states unexplored", [], len(parent))
    return Result("CLEAN", f"exhaustive, {terminal} terminal", [], len(parent))


def report(name: str, off: str, seconds: float) -> str:
    """Search one scenario and print what came of it; answers the verdict."""
    start = time.process_time()
    rules = without(*off.split(",")) if off else ALL
    result = search(Config(rules=rules, **SCENARIOS[name]), seconds=seconds)
    what = f"without {off}" if off else "all rules"
    passed = time.process_time() - start
    print(f"{result.verdict:8} {name:18} {what}: {result.states:,} states, {passed:.0f} s: {result.why}", flush=True)
    for i, line in enumerate(result.trace, 1):
        print(f"      {i:2}. {line}")
    return result.verdict


def known(names: Iterable[str], there: Collection[str], what: str) -> None:
    """Leave with a message where a name is none of those that there are."""
    for name in names:
        if name not in there:
            sys.exit(f"there is no {what} {name!r}; there are {', '.join(there)}")


def main() -> None:
    """Run what the command line asks for; exit 1 where a scenario with all rules is broken."""
    words = sys.argv[1:]
    seconds = int(words.pop(0)) if words and words[0].isdigit() else 60
    naive = words[:1] == ["naive"]
    if naive:
        known([rule for word in words[1:2] for rule in word.split(",")], ALL._fields, "rule")
    known(words[2:] if naive else words, SCENARIOS, "scenario")
    if naive:
        wanted = {words[1]: " ".join(words[2:]) or NAIVE.get(words[1], " ".join(SCENARIOS))} if words[1:] else NAIVE
        for off, names in wanted.items():
            for name in names.split():
                report(name, off, seconds)
        return
    verdicts = [report(name, "", seconds) for name in words or SCENARIOS]
    sys.exit("BROKEN" in verdicts)


if __name__ == "__main__":
    main()
