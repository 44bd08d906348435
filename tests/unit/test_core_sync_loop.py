"""dtq._core: the loop of sync handlers by itself, with claims that no turn brought and a clock of the test's own."""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

import dtq
from dtq._core import Average, Claim, EnvelopeHead, Outcomes, Slots, SyncLoop, parse_claims
from dtq.executor import Executor
from dtq.models import Outcome
from dtq.settings import Settings

START_NS = 1_000_000_000
STEP_NS = 1_000
CLAIM_MAX = 10


class Stage:
    """A loop over the handlers of an app; each look at the clock finds it `step_ns` later."""

    def __init__(self, app: dtq.App, *, collects: bool = True, inlines: bool = True) -> None:
        self.memory = os.memfd_create("slots")
        self.slots = Slots(self.memory, 1, 1, True)
        self.slots.set_safe_until(2**63)
        self.executor = Executor(app.registry, Settings(), "w")
        self.average = Average()
        self.outcomes = Outcomes("w")
        self.collected: list[tuple[int, str, object, int, int]] = []
        self.noted: list[Any] = []
        self.now_ns = START_NS
        self.step_ns = STEP_NS
        self.collect_ns = 0
        self.next_seq = 1
        self.loop = SyncLoop(
            slots=self.slots,
            child=0,
            average=self.average,
            executor=self.executor,
            routes=self.executor.routes,
            loads=orjson.loads,
            boottime_ns=self.boottime_ns,
            collect=self.collect,
            collects=collects,
            inlines=inlines,
            timeout_ns=0,
            claim_max=CLAIM_MAX,
            result_max_bytes=100,
        )

    def boottime_ns(self) -> int:
        """Time goes by looking."""
        self.now_ns += self.step_ns
        return self.now_ns

    def collect(self, index: int, claim: Claim, result: object, ended_ms: int, took_ns: int) -> None:
        """What a child gives to its turns."""
        self.now_ns += self.collect_ns
        self.collected.append((index, claim.id, result, ended_ms, took_ns))

    def claims(self, *tasks: tuple[str, object]) -> deque[Claim]:
        """Claims of these types and payloads, offered to the slot as a child does."""
        reply: list[object] = [b"", b"1000"]
        for seq, (name, payload) in enumerate(tasks, self.next_seq):
            envelope = EnvelopeHead(name, 5, 3, 0, 0).encode_raw(orjson.dumps(payload))
            reply += [b"1-%d" % seq, b"id-%d" % seq, 5, envelope]
        found = parse_claims(reply, "w.0.1", self.next_seq).claims
        assert self.slots.offer(0, self.next_seq, len(tasks))
        self.next_seq += len(tasks)
        return deque(found)

    def run(self, claims: deque[Claim], most: int = 1000) -> str:
        """One call, for the first of some queues."""
        return self.loop.run(claims, 0, "default", self.outcomes, self.noted, 0, most)

    def know(self, *names: str) -> None:
        """As if these handlers had run before, quickly: before one that was never seen, outcomes are settled."""
        for name in names:
            self.executor.routes[name].recent_ns = STEP_NS


@pytest.fixture
def open_stage() -> Iterator[Callable[..., Stage]]:
    """Make a stage for an app."""
    stages: list[Stage] = []

    def opened(app: dtq.App, **options: bool) -> Stage:
        stages.append(Stage(app, **options))
        return stages[-1]

    yield opened
    for stage in stages:
        os.close(stage.memory)


@pytest.fixture
def app() -> Iterator[dtq.App]:
    """Handlers of every kind."""
    with dtq.App() as app:

        @app.task(name="add")
        def add(a: int, b: int = 0) -> int:
            return a + b

        @app.task(name="number")
        def number(context: dtq.Context) -> list[object]:
            return [context.task_id, context.attempt, context.queue]

        @app.task(name="fail")
        def fail() -> None:
            raise ValueError("no")

        @app.task(name="later")
        async def later() -> None: ...

        @app.task(name="large")
        def large() -> str:
            return "x" * 101

        yield app


def test_all_of_a_batch(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """Each success is added where the turn takes it from, noted for the log, timed, and counted."""
    stage = open_stage(app)
    stage.know("number")
    claims = stage.claims(("add", {"a": 1}), ("add", {"a": 1, "b": 2}), ("number", {}))
    ids = [claim.id for claim in claims]
    listed = list(claims)
    assert stage.run(claims) == "used"
    assert (list(claims), stage.outcomes.ids, stage.collected) == ([], ids, [])
    assert stage.noted == [(place, claim, None, STEP_NS) for place, claim in enumerate(listed)]
    assert (stage.loop.done, stage.loop.oldest_ns, stage.loop.executing) == (3, START_NS + 2 * STEP_NS, 0)
    assert stage.executor.routes["add"].recent_ns == STEP_NS
    assert stage.average.ns == pytest.approx(500 + 250 + 125)
    assert stage.slots.rows(0) == []


@pytest.mark.parametrize("inlines", [True, False])
def test_what_is_no_plain_success_is_collected(
    app: dtq.App, open_stage: Callable[..., Stage], *, inlines: bool
) -> None:
    """A failure, a payload that does not fit or is no object, a result that is too large."""
    stage = open_stage(app, inlines=inlines)
    stage.know("add", "large")
    assert stage.run(stage.claims(("fail", {}), ("add", {"z": 1}), ("add", [1]), ("large", {}))) == "used"
    results = [result for _, _, result, _, _ in stage.collected]
    found = [(result.letter, result.error_class) for result in results if isinstance(result, Outcome)]
    assert found == [("R", "ValueError"), ("D", "InvalidPayload"), ("D", "InvalidPayload")]
    assert results[3] == "x" * 101, "whoever keeps results says what is wrong with it"
    assert (len(stage.outcomes), stage.loop.done) == (0, 4)
    assert [(index, ended_ms, took_ns) for index, _, _, ended_ms, took_ns in stage.collected] == [(0, 1000, 1000)] * 4


@pytest.mark.parametrize("inlines", [True, False])
def test_a_traceback_begins_with_the_handler(app: dtq.App, open_stage: Callable[..., Stage], *, inlines: bool) -> None:
    """Whoever calls it: its own frame and those below, nothing of dtq's."""

    def inner() -> None:
        raise ValueError("no")

    @app.task(name="outer")
    def outer() -> None:
        inner()

    stage = open_stage(app, inlines=inlines)
    assert stage.run(stage.claims(("outer", {}))) == "used"
    outcome = stage.collected[0][2]
    assert isinstance(outcome, Outcome)
    assert re.findall(r"in (\w+)\n", outcome.traceback) == ["outer", "inner"]


def test_where_another_thread_takes_part_all_is_collected(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """The core has no lock: whoever collects takes it."""
    stage = open_stage(app, collects=False)
    assert stage.run(stage.claims(("add", {"a": 1}))) == "used"
    assert [result for _, _, result, _, _ in stage.collected] == [1]
    assert len(stage.outcomes) == 0


def test_a_wait_of_whoever_collects_is_nobodys_time(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """For the lock of another thread: the next handler has not begun meanwhile, and the lease may be over."""
    stage = open_stage(app, collects=False)
    stage.collect_ns = 3_000_000
    assert stage.run(stage.claims(("add", {"a": 1}), ("add", {"a": 2}))) == "used"
    assert [took_ns for _, _, _, _, took_ns in stage.collected] == [STEP_NS, STEP_NS]


def test_as_many_as_are_asked_for(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    stage = open_stage(app)
    claims = stage.claims(*[("add", {"a": n}) for n in range(4)])
    assert stage.run(claims, most=3) == "used"
    assert (len(claims), stage.loop.done) == (1, 3)
    for none in (0, -1):
        assert stage.run(claims, most=none) == "used"
    assert (len(claims), stage.loop.done) == (1, 3)


def test_what_is_for_no_sync_handler_is_left(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """An async one, one of an unknown type, a damaged one; the one before has run."""
    stage = open_stage(app)
    claims = stage.claims(("add", {"a": 1}), ("later", {}), ("unknown", {}))
    stage.loop.oldest_ns = 0
    assert stage.run(claims) == "settle", "it was never seen: how long it takes is not known"
    stage.loop.oldest_ns = 0
    assert stage.run(claims) == "elsewhere"
    claims.popleft()
    assert stage.run(claims) == "elsewhere"
    damaged = parse_claims([b"", b"1", b"1-1", b"x", b"r:1:0:1-1:w.0.1:9:1:", 5, b"\x01no envelope"]).claims[0]
    assert damaged.error is not None
    assert stage.run(deque([damaged])) == "elsewhere"
    assert stage.loop.done == 1


@pytest.mark.parametrize("why", ["first of its type", "slow", "old", "many"])
def test_when_outcomes_are_settled_before_the_next(app: dtq.App, open_stage: Callable[..., Stage], why: str) -> None:
    """Only where some wait; and the claim is left as it was."""
    stage = open_stage(app)
    if why == "many":
        stage.run(stage.claims(*[("add", {"a": n}) for n in range(CLAIM_MAX)]))
    else:
        stage.run(stage.claims(("add", {"a": 1})))
    claims = stage.claims(("number" if why == "first of its type" else "add", {"a": 1}))
    if why == "slow":
        stage.executor.routes["add"].recent_ns = 1_000_001
    if why == "old":
        stage.now_ns += 5_000_000
    assert stage.run(claims) == "settle"
    assert len(claims) == 1
    stage.loop.oldest_ns = 0
    stage.outcomes.clear()
    assert stage.run(claims) == "used"


def test_nothing_begins_past_the_lease_or_while_leaving(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    stage = open_stage(app)
    claims = stage.claims(("add", {"a": 1}))
    stage.slots.set_safe_until(stage.now_ns)
    assert stage.run(claims) == "stop"
    stage.slots.set_safe_until(2**63)
    stage.loop.leaving = True
    assert stage.run(claims) == "stop"
    stage.loop.leaving = False
    assert stage.run(claims) == "used"


def test_nothing_begins_that_was_revoked(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """The one taken out does not run."""
    stage = open_stage(app)
    claims = stage.claims(("add", {"a": 1}), ("add", {"a": 2}))
    stage.slots.revoke(0)
    assert stage.run(claims) == "revoked"
    assert (stage.loop.done, stage.loop.executing, len(claims)) == (0, 0, 1)


def test_a_handler_stands_in_its_row_and_an_interruption_hits_it_alone(
    app: dtq.App, open_stage: Callable[..., Stage]
) -> None:
    """A signal's handler finds which claim executes; its exception ends that attempt, and the next one begins."""
    seen: list[tuple[int, list[int]]] = []

    def on_signal(*_: object) -> None:
        seen.append((stage.loop.executing, [row.seq for row in stage.slots.rows(0)]))
        stage.loop.executing = 0
        raise dtq.TaskTimeout("late")

    @app.task(name="signal")
    def send() -> str:
        signal.raise_signal(signal.SIGUSR1)
        return "not reached"

    stage = open_stage(app)
    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        assert stage.run(stage.claims(("add", {"a": 1}), ("signal", {}))) == "settle"
        stage.loop.oldest_ns = 0
        stage.slots.reset(0)
        stage.next_seq = 7
        assert stage.run(stage.claims(("signal", {}), ("add", {"a": 1}))) == "used"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [(7, [7])]
    (collected,) = stage.collected
    assert isinstance(collected[2], Outcome)
    assert (collected[2].letter, collected[2].cause) == ("R", "timeout")
    assert stage.loop.done == 3


def test_an_interruption_may_come_before_the_handler_is_called(
    app: dtq.App, open_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the arguments are compared by Python code: it ends that attempt, not the child."""
    stage = open_stage(app)

    class Interrupted:
        """A handler whose check of the arguments takes too long."""

        def problem(self, arguments: dict[str, object]) -> None:
            """As Handler.problem."""
            raise dtq.TaskTimeout("late")

    monkeypatch.setattr(stage.executor.routes["add"], "handler", Interrupted())
    assert stage.run(stage.claims(("add", {"a": 1, "b": 2}), ("add", {"a": 1}))) == "used"
    (outcome,) = [result for _, _, result, _, _ in stage.collected]
    assert isinstance(outcome, Outcome)
    assert (outcome.letter, outcome.cause, stage.loop.executing, stage.loop.done) == ("R", "timeout", 0, 2)


def test_a_signal_is_heard_before_each_handler(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """One written in C lets none through: nobody could make such a child leave before its batch is done."""
    stage = open_stage(app)
    claims = stage.claims(("add", {"a": 1}), ("add", {"a": 2}))

    def on_signal(*_: object) -> None:
        stage.loop.leaving = True

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stage.run(claims) == "stop"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(claims) == 2


@pytest.mark.parametrize("inlines", [True, False])
def test_a_process_that_a_handler_forks_ends_with_it(
    app: dtq.App, open_stage: Callable[..., Stage], *, inlines: bool
) -> None:
    """It must not go on as the child, whose connections it shares; nor where the handler raises."""
    pids: list[int] = []

    @app.task(name="fork")
    def fork(fails: bool) -> None:
        pids.append(os.fork())
        if fails and not pids[-1]:
            os.close(2)  # it would print its traceback here
            raise RuntimeError("in the copy")

    stage = open_stage(app, inlines=inlines)
    assert stage.run(stage.claims(("fork", {"fails": False}), ("fork", {"fails": True}))) == "used"
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 256]
    assert len(stage.outcomes) == 2


def test_what_a_callable_raises_comes_through(app: dtq.App, open_stage: Callable[..., Stage]) -> None:
    """Such as a collect without memory; what was learned of the route is kept."""
    stage = open_stage(app)

    stage.collected = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        stage.run(stage.claims(("fail", {})))
    assert stage.executor.routes["fail"].recent_ns == STEP_NS
    assert stage.loop.executing == 0
