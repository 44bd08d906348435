"""A worker's lease, the lead among workers, and the end of workers that are gone (protocol 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson

from dtq._core import pack_command
from dtq.broker.values import WorkerInfo
from dtq.broker.working import Working
from dtq.errors import WorkerDeclaredDead
from dtq.keys import PARKED, SHELF

MARK_MS = 3_600_000  # how long a worker stays marked dead


def worker_of(consumer: str) -> str:
    """The worker id within a consumer name `<worker id>.<child>.<incarnation>`."""
    return consumer.rsplit(".", 2)[0]


class Leasing(Working):
    """Verbs of supervisors, and of the leader's reaper."""

    def renew(
        self, worker_id: str, facts: dict[str, Any], last_success_ms: int = 0, timeout_s: float | None = None
    ) -> int:
        """Take or renew the lease; answers Redis' time in ms, to be named at the next renewal.

        Raises:
            WorkerDeclaredDead: the id is dead for good; end the children and start anew under another id.
        """
        keys = [self.keys.workers(), self.keys.worker(worker_id)]
        lease_ms = int(self.settings.lease_s * 1000)
        now = self.run_global(
            "renew", keys, worker_id, lease_ms, orjson.dumps(facts), last_success_ms, MARK_MS, timeout_s=timeout_s
        )
        if now < 0:
            raise WorkerDeclaredDead(f"worker {worker_id}: its lease was lost and it was declared dead")
        return int(now)

    def leave(self, worker_id: str) -> None:
        """Give up the lease of a worker whose consumers hold nothing any more."""
        self.command("DEL", self.keys.worker(worker_id))
        self.command("SREM", self.keys.workers(), worker_id)

    def lead(self, worker_id: str, ttl_ms: int) -> bool:
        """Take or keep the lead for `ttl_ms`; False while another worker has it."""
        return bool(self.run_global("lead", [self.keys.leader()], worker_id, ttl_ms))

    def stop_leading(self, worker_id: str) -> None:
        """Let another worker lead at once."""
        if self.command("GET", self.keys.leader()) == worker_id.encode():
            self.command("DEL", self.keys.leader())

    def expired_workers(self) -> tuple[list[str], float]:
        """Known workers without a lease, or marked dead already; and in how many seconds the next lease may run out."""
        found = self.run_global("expired", [self.keys.workers()], self.keys.worker(""))
        return [worker.decode() for worker in found[1:]], max(0, int(found[0])) / 1000

    def declare_dead(self, worker_id: str) -> bool:
        """Mark a worker dead, only if its lease is absent; False where it has one."""
        return bool(self.run_global("declare", [self.keys.workers(), self.keys.worker(worker_id)], worker_id, MARK_MS))

    def ownerless(self, queue: str) -> dict[str, list[str]]:
        """Consumers of a queue by worker id, for workers without a lease. Shelf and parked have no owner."""
        owners: dict[str, list[str]] = {}
        for consumer in self.consumers(queue):
            if consumer not in (SHELF, PARKED):
                owners.setdefault(worker_of(consumer), []).append(consumer)
        if not owners:
            return {}
        ids = list(owners)
        leases = self.command("MGET", *(self.keys.worker(worker) for worker in ids))
        return {w: owners[w] for w, lease in zip(ids, leases, strict=True) if lease is None or lease == b"dead"}

    def reap(self, queue: str, sure: Callable[[], bool] = lambda: True) -> int:
        """Declare and take over every consumer of a queue whose worker has no lease; answers the entries moved.

        sure: asked when the leases have been read; nobody is declared dead unless it says True.
        """
        moved = 0
        ownerless = self.ownerless(queue)
        if ownerless and not sure():
            return 0
        for worker_id, consumers in ownerless.items():
            if not self.declare_dead(worker_id):
                continue  # it renewed in between
            for consumer in consumers:
                moved += self.reap_consumer(queue, consumer)
        return moved

    def forget_worker(self, worker_id: str) -> None:
        """Take a dead worker off the list once all it held is taken over; its mark stays until it runs out."""
        self.command("SREM", self.keys.workers(), worker_id)

    def leader(self) -> str | None:
        """The id of the worker that has the lead; None where none has."""
        found = self.command("GET", self.keys.leader())
        return None if found is None else found.decode("utf-8", "replace")

    def workers(self) -> list[WorkerInfo]:
        """The workers that have a lease, by id, in two round trips; without facts where those are no JSON object."""
        ids = sorted(worker.decode() for worker in self.command("SMEMBERS", self.keys.workers()))
        commands = [pack_command([verb, self.keys.worker(worker)]) for worker in ids for verb in ("GET", "PTTL")]
        replies = self.transport.call_many(b"".join(commands), len(commands)) if ids else []
        out: list[WorkerInfo] = []
        for worker, lease, expires_ms in zip(ids, replies[::2], replies[1::2], strict=True):
            if isinstance(lease, bytes) and lease != b"dead":
                out.append(WorkerInfo(worker, int(expires_ms), _facts(lease)))
        return out


def _facts(lease: bytes) -> dict[str, Any]:
    try:
        facts: object = orjson.loads(lease)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
