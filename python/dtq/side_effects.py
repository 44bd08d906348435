"""`once`: a handler's side effect runs at most once per key, however often its task runs (spec §7)."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dtq import _core
from dtq.errors import BrokerUnavailable, DtqError, OnceInProgress, from_core
from dtq.models import decode_json
from dtq.options import check_hold, check_key

if TYPE_CHECKING:
    from dtq.app import App
    from dtq.broker import Broker

T = TypeVar("T")

_TRIES = 3
_PAUSE_S = 0.05
_of_worker: list[Broker] = []


def use(broker: Broker) -> None:
    """Let `once` in this process speak through `broker`; a worker's child does so at its start."""
    _of_worker[:] = [broker]


def once(key: str, ttl: float | timedelta, effect: Callable[[], T], *, app: App | None = None) -> T:
    """Runs `effect()` unless it has run for this key, and gives what it returned then: its result, as JSON.

    At most once, not exactly once: if the process dies while `effect` runs, nobody can know whether it happened; the
    key stays taken until `ttl` is over, and until then this raises OnceInProgress. After `ttl` it may run again. An
    Exception from `effect` sets the key free: let it raise only where nothing has happened.

    key: 1 to 255 characters, shared by all apps under one prefix; build it from what names the effect, such as
    f"invoice-mail:{invoice_id}". ttl: seconds or a timedelta, counted from the start, and anew from the end. app: whose
    server; not needed in a handler that a worker runs.
    Raises OnceInProgress; InvalidTask for key, ttl, or a result that is no JSON, and PayloadTooLarge for a large one
    (the effect counts as done then, with the result None); BrokerUnavailable before `effect` is run.
    """
    run = _Run(key, ttl, app)
    standing = run.begin()
    if standing is not None:
        return cast(T, run.result_of(standing))
    try:
        result = effect()
    except Exception:
        run.let_go()
        raise
    return cast(T, run.end(result))


async def aonce(key: str, ttl: float | timedelta, effect: Callable[[], Awaitable[T]], *, app: App | None = None) -> T:
    """`once` for an async `effect`, without blocking the loop. A handler cancelled in it leaves the key taken."""
    from asyncio import to_thread

    run = _Run(key, ttl, app)
    standing = await to_thread(run.begin)
    if standing is not None:
        return cast(T, run.result_of(standing))
    try:
        result = await effect()
    except Exception:
        await to_thread(run.let_go)
        raise
    return cast(T, await to_thread(run.end, result))


class _Run:
    """One call of `once`. Its name is in the key, so that a repeated command is known, and a late end does nothing."""

    def __init__(self, key: str, ttl: float | timedelta, app: App | None) -> None:
        if app is None and not _of_worker:
            raise RuntimeError("once: this process is no worker's child; say which server is meant, with app=")
        self._broker = app.broker if app is not None else _of_worker[0]
        self._shown = key
        self._ttl_ms = check_hold(ttl, "ttl")
        self._key = self._broker.keys.once(check_key(key, "key"))
        self._mine = b"processing " + os.urandom(8).hex().encode()

    def begin(self) -> bytes | None:
        """Take the key; None when it is ours now, else what stands there."""
        standing = self._repeated(
            lambda: self._broker.command("SET", self._key, self._mine, "NX", "GET", "PX", self._ttl_ms)
        )
        return None if standing is None or standing == self._mine else bytes(standing)

    def result_of(self, standing: bytes) -> Any:
        """What an earlier run has left."""
        state, _, result = standing.partition(b" ")
        if state == b"done":
            return decode_json(result)
        raise OnceInProgress(
            f"key: the side effect of {self._shown!r} runs elsewhere, or a run of it died; wait until its ttl is over"
        )

    def let_go(self) -> None:
        """The effect did not happen."""
        self._settle(b"")

    def end(self, result: object) -> Any:
        """Keep the result; as JSON gives it back."""
        refused: DtqError | None = None
        try:
            encoded = _core.encode_json(result, "result", self._broker.settings.result_max_bytes)
        except _core.CoreError as error:
            encoded, refused = b"null", from_core(error)
        self._settle(b"done " + encoded)
        if refused is not None:
            raise refused
        return decode_json(encoded)

    def _settle(self, value: bytes) -> None:
        with suppress(BrokerUnavailable):  # what has happened has happened: the key stays taken until its ttl is over
            self._repeated(lambda: self._broker.run_global("once", [self._key], self._mine, value, self._ttl_ms))

    def _repeated(self, call: Callable[[], Any]) -> Any:
        for _ in range(_TRIES - 1):
            try:
                return call()
            except BrokerUnavailable:
                time.sleep(_PAUSE_S)
        return call()
