"""The audit stream: who did what that cannot be undone, written by a call of its own (spec §7)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import orjson

from dtq._core import pack_command
from dtq.broker.calls import Calls
from dtq.broker.values import AuditEntry

AUDIT_MAX = 10_000


class Auditing(Calls):
    """Writing and reading the audit stream."""

    def audit(
        self,
        action: str,
        queue: str,
        task_id: str = "",
        facts: Mapping[str, Any] | None = None,
        *,
        actor: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Write one act; the server gives the time.

        Args:
            action: `cancel`, `run`, `delete`, `requeue`, `discard`, `purge`, `purge_dead_letters`, `pause` or `resume`.
            queue: where.
            task_id: of which task, '' for an act on the whole queue.
            facts: what else is worth keeping (JSON values, small).
            actor: who; this process's user and host unless given.
            request_id: what ties the act to a request; a random one unless given.
        """
        self.command(*self._entry(action, queue, task_id, actor, request_id, facts or {}))

    async def aaudit(
        self, action: str, queue: str, task_id: str = "", *, actor: str | None = None, request_id: str | None = None
    ) -> None:
        """As audit, without blocking the loop."""
        await self.async_transport.call(pack_command(self._entry(action, queue, task_id, actor, request_id, {})))

    def _entry(
        self, action: str, queue: str, task_id: str, actor: str | None, request_id: str | None, facts: Mapping[str, Any]
    ) -> list[bytes | str | int]:
        return [
            *("XADD", self.keys.audit(), "MAXLEN", "~", AUDIT_MAX, "*"),
            *("actor", actor or this_actor(), "action", action, "queue", queue, "id", task_id),
            *("request_id", request_id or os.urandom(8).hex(), "facts", orjson.dumps(facts) if facts else b""),
        ]

    def audit_entries(self, count: int, before: str | None = None) -> list[AuditEntry]:
        """The newest acts first, at most `count`; before: the id of an entry to go on behind."""
        end = f"({before}" if before else "+"
        found = self.command("XREVRANGE", self.keys.audit(), end, "-", "COUNT", count)
        return [_audit_entry(entry, fields) for entry, fields in found]


def _audit_entry(entry: bytes, fields: list[bytes]) -> AuditEntry:
    texts = [field.decode("utf-8", "replace") for field in fields]
    named = dict(zip(texts[::2], texts[1::2], strict=False))
    return AuditEntry(
        entry=entry.decode(),
        time_ms=int(entry.split(b"-")[0]),
        actor=named.get("actor", ""),
        action=named.get("action", ""),
        queue=named.get("queue", ""),
        task_id=named.get("id", ""),
        request_id=named.get("request_id", ""),
        facts=orjson.loads(named["facts"]) if named.get("facts") else {},
    )


def this_actor() -> str:
    """Who acts where nobody is named: the user of this process and its host."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container's user without a name
    return f"{user}@{socket.gethostname()}"
