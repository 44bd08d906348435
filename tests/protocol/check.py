"""Breadth-first search over the steps of the protocol: every scenario with all rules, or with one rule left out.

python -m tests.protocol.check [seconds each] [naive [rule [scenarios]] | scenarios]: see README.md.
"""

# ruff: noqa: C408

import sys
import time
from collections import deque

from tests.protocol import protocol as p

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


def rank(label):
    return next((i for i, word in enumerate(RANK) if word in label), len(RANK))


def recoverable(c, s, nexts, good):
    """Is a terminal state reachable without another fault? Depth first, remembering what is known good.
    A step that breaks an invariant counts as good here: the search reports it by itself."""
    path, seen = [], set()
    stack = [(s, 0, nexts)]
    while stack:
        s, depth, nexts = stack.pop()
        key = s.key()
        if key in seen:
            continue
        seen.add(key)
        del path[depth:]
        path.append(key)
        free = [(rank(label), i, n) for i, (label, n, fault) in enumerate(nexts or p.steps(c, s)) if not fault]
        if key in good or p.goal(c, s) or any(isinstance(n, p.Broken) for _, _, n in free):
            good.update(path)
            return True
        for _, _, n in sorted(free, key=lambda x: x[:2], reverse=True):
            stack.append((n, depth + 1, None))
    return False


def search(c, limit=4_000_000, seconds=600):
    """Explore breadth first: (verdict, why, shortest trace, states). PARTIAL: bound reached, nothing found so far."""
    start = time.time()
    s = p.initial(c)
    parent = {s.key(): None}
    todo, good = deque([s]), set()
    terminal = 0

    def trace(key, *last):
        lines = list(last)
        while parent[key]:
            key, label = parent[key]
            lines.append(label)
        return lines[::-1]

    while todo:
        s = todo.popleft()
        key = s.key()
        nexts = p.steps(c, s)
        if not recoverable(c, s, nexts, good):
            return "BROKEN", "stuck: no terminal state reachable any more", trace(key), len(parent)
        terminal += p.goal(c, s)
        for label, n, _ in nexts:
            if isinstance(n, p.Broken):
                return "BROKEN", str(n), trace(key, label), len(parent)
            k2 = n.key()
            if k2 in parent:
                continue
            parent[k2] = (key, label)
            try:
                p.check(c, n)
            except p.Broken as b:
                return "BROKEN", str(b), trace(k2), len(parent)
            todo.append(n)
        if len(parent) > limit or time.time() - start > seconds:
            return "PARTIAL", f"bound reached, {len(todo)} states unexplored", [], len(parent)
    return "CLEAN", f"exhaustive, {terminal} terminal", [], len(parent)


SCENARIOS = {
    # name: settings. Two workers with one child each unless said.
    "crash": dict(crash=2, max_attempts=2),
    "crash-batch": dict(tasks=2, batch=2, kids=(0, 0), workers=(0,), crash=1, max_attempts=2),
    "loss": dict(loss=2),
    "loss-batch": dict(tasks=2, batch=2, kids=(0,), workers=(0,), loss=1),
    "pause": dict(pause=2, max_attempts=2),
    "pause-crash": dict(pause=1, crash=1, max_attempts=2),
    "pause-cancel": dict(pause=1, cancel=1, crash=1),
    "crash-loss": dict(crash=1, loss=1),
    "retry": dict(fail=True, crash=1, loss=1, retention=1, max_attempts=2),
    "cancel": dict(cancel=2, crash=1, fail=True, delayed=(0,), retention=1),
    "expire": dict(ttl=1, crash=1, pause=1),
    "handback": dict(tasks=2, batch=2, kids=(0, 0), workers=(0,), handback=True),
    "handback-loss": dict(tasks=2, batch=2, kids=(0, 0), workers=(0,), handback=True, loss=1),
    "handback-cancel": dict(tasks=2, batch=2, kids=(0, 0), workers=(0,), handback=True, cancel=1),
    "queue-pause": dict(qpause=1, crash=1),
    "requeue": dict(op=1, pause=1, crash=1, max_attempts=1, fail=True),
    "unique": dict(tasks=2, unique=True, crash=1, kids=(0,), workers=(0, 1), lockttl=1),
    "group-lost": dict(group=1, crash=1),
    "reconcile": dict(loss=1, crash=1, reconcile=True),
    "reconcile-handback": dict(tasks=2, batch=2, kids=(0, 0), workers=(0,), handback=True, loss=1, reconcile=True),
    "numbered": dict(loss=1, crash=1, reconcile=True, numbers=True),
    "numbered-handback": dict(
        tasks=2, batch=2, kids=(0, 0), workers=(0,), handback=True, loss=1, reconcile=True, numbers=True
    ),
    "three": dict(kids=(0, 0, 1), crash=1),
    "two-tasks": dict(tasks=2, crash=1),
    "optimistic": dict(optimistic=True, cancel=1, crash=1),
    "optimistic-pause": dict(optimistic=True, pause=1, cancel=1),
    "optimistic-crash": dict(optimistic=True, crash=2),
    "optimistic-loss": dict(optimistic=True, loss=1, crash=1),
}


# Which scenarios show what a missing amendment breaks.
NAIVE = {
    "producer_seq": "loss",
    "recover_after_loss": "loss",
    "recover_renumbers": "handback-loss",
    "repeat_is_known": "optimistic-loss",
    "kill_connection": "loss reconcile-handback numbered-handback",  # the last: send numbers instead, clean
    "adopt_checks_owner,kill_connection": "numbered",
    "adopt_checks_owner,absorb_spares_live": "pause",
    "dead_is_final": "pause",
    "fresh_ids": "crash",
    "sweep": "pause crash",
    "slot_watermark": "crash",
    "revoke_first": "handback",
    "full_token": "handback-loss",
    "flag_survives": "handback-cancel",
    "release_compares": "unique",
    "give_to_owner": "group-lost",
    "opt_counts_delivered": "optimistic optimistic-crash",
    "start_checks_lease": "pause pause-cancel",
}


def report(name, off, seconds):
    """Search one scenario and print what came of it; answers the verdict."""
    t = time.time()
    rules = p.ALL._replace(**{rule: False for rule in off.split(",") if rule})
    verdict, why, trace, n = search(p.config(rules=rules, **SCENARIOS[name]), seconds=seconds)
    print(
        f"{verdict:8} {name:17} {'without ' + off if off else 'all rules'}: {n:,} states, "
        f"{time.time() - t:.0f} s: {why}",
        flush=True,
    )
    for i, line in enumerate(trace, 1):
        print(f"      {i:2}. {line}")
    return verdict


def main():
    """Run what the command line asks for; exit 1 where a scenario with all rules is broken."""
    args = sys.argv[1:]
    seconds = int(args.pop(0)) if args and args[0].isdigit() else 60
    if args[:1] == ["naive"]:
        wanted = {args[1]: " ".join(args[2:]) or NAIVE.get(args[1], " ".join(SCENARIOS))} if args[1:] else NAIVE
        for off, names in wanted.items():
            for name in names.split():
                report(name, off, seconds)
    else:
        verdicts = [report(name, "", seconds) for name in args or SCENARIOS]
        sys.exit("BROKEN" in verdicts)


if __name__ == "__main__":
    main()
