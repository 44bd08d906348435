"""What all verbs share: the transports, the packed front of each script's command, and the checks of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtq._core import pack_command
from dtq.broker.values import ServerInfo
from dtq.clock import SYSTEM
from dtq.errors import UnsupportedServer
from dtq.keys import BANDS, GROUP, LAYOUT, Keys
from dtq.scripts import QueueCall, Script, script
from dtq.settings import Settings
from dtq.spin import Spin
from dtq.transport import AsyncTransport, Transport, translate, translated

MINIMUM = {"redis": (7, 0), "valkey": (7, 2)}
EVICTING = ("allkeys", "volatile")

_QUEUES_A_CALL = 100
"""So many queues are asked of in one round trip: a server serves others in between."""
_BEFORE_ALL = -10_000_000
"""The last index that LTRIM keeps where nothing is to stay: -1 would be the last element, and all would stay."""


class Calls:
    """The base of the broker.

    Args:
        settings: where the server is, the key prefix, deadlines and bounds.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self._store: Any = None
        self._fronts: dict[tuple[str, str], QueueCall] = {}
        self._enqueue_fronts: dict[tuple[str, str], tuple[bytes, int]] = {}
        self._one_fronts: dict[str, bytes] = {}
        self._single_fronts: dict[tuple[str, bytes], bytes] = {}
        self.transport = Transport(self.resolve_url, settings.enqueue_deadline_s)
        self.spin = Spin()
        self.async_transport = AsyncTransport(self.resolve_url, settings.enqueue_deadline_s)
        retention_ms = max(60_000, int(settings.task_retention_s * 1000))
        recent_last = settings.recent - 1 if settings.recent else _BEFORE_ALL
        self._common = [self.keys.events(), str(retention_ms), str(recent_last), str(settings.dead_letter_max)]

    def resolve_url(self) -> str:
        """The server's URL: the setting, or the embedded store's, which is started (or found running) here.

        Raises:
            StoreError: the embedded store cannot start.
        """
        if self.settings.redis_url:
            return self.settings.redis_url
        if self._store is None:
            from pathlib import Path

            from dtq.embedded import open_store

            directory = Path(self.settings.data_dir) if self.settings.data_dir else None
            self._store = open_store(
                directory, self.settings.redis_server, fsync=self.settings.fsync, linger_s=self.settings.linger_s
            )
        return str(self._store.url)

    @property
    def url(self) -> str:
        """The server's URL (it may hold a password: never log it)."""
        return self.resolve_url()

    def mend_store(self) -> None:
        """After a lost connection: start the embedded store again if it died. Nothing for a server of others."""
        if self._store is not None:
            self._store.ensure_running()

    def close(self) -> None:
        """Close connections, and let go of the embedded store."""
        self.transport.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- commands

    def front(self, name: str, queue: str) -> QueueCall:
        """The packed front of a queue script's command, made once per script and queue."""
        call = self._fronts.get((name, queue))
        if call is None:
            call = self._fronts[name, queue] = QueueCall(name, self.keys, queue, self._common)
        return call

    def run(self, name: str, queue: str, *arguments: bytes | str | int, timeout_s: float | None = None) -> Any:
        """Call a queue script with its own arguments."""
        call = self.front(name, queue)
        return self.transport.call(call.pack(list(arguments)), call.script, timeout_s)

    def run_each(self, name: str, queues: Sequence[str], *arguments: bytes | str | int) -> list[Any]:
        """Call a queue script, whose repeat does no harm, on many queues, in a round trip for each hundred.

        Returns:
            The reply of each; where it was refused, the error.

        Raises:
            BrokerUnavailable: no answer. Some may have been done.
        """
        from redis.exceptions import NoScriptError

        replies: list[Any] = []
        for at in range(0, len(queues), _QUEUES_A_CALL):
            calls = [self.front(name, queue) for queue in queues[at : at + _QUEUES_A_CALL]]
            commands = [call.pack(list(arguments)) for call in calls]
            answers = self.transport.call_many(b"".join(commands), len(commands))
            if any(isinstance(answer, NoScriptError) for answer in answers):
                self.command("SCRIPT", "LOAD", calls[0].script.text)
                answers = self.transport.call_many(b"".join(commands), len(commands))
            for answer in answers:
                error = isinstance(answer, Exception)
                replies.append(translate(answer, self.transport.place()) if error else answer)
        return replies

    def run_global(
        self, name: str, keys: list[str], *arguments: bytes | str | int, timeout_s: float | None = None
    ) -> Any:
        """Call a script that touches no queue."""
        called: Script = script(name)
        command = pack_command(["EVALSHA", called.sha, len(keys), *keys, *arguments])
        return self.transport.call(command, called, timeout_s)

    def command(self, *arguments: bytes | str | int, timeout_s: float | None = None) -> Any:
        """One plain command."""
        return self.transport.call(pack_command(list(arguments)), None, timeout_s)

    # --- the server

    def check_server(self) -> ServerInfo:
        """Look at the server's kind, version, eviction policy and clock.

        Raises:
            UnsupportedServer: too old, or an evicting maxmemory-policy that was not allowed.
            BrokerUnavailable: no answer.
        """
        with translated(self.transport):
            client = self.transport.client()
            try:
                name, version = self._version(client.info("server"))  # first: an old one may not know the rest
                policy = self._policy(client)
                seconds, microseconds = client.time()
            finally:
                client.close()
        skew = int(seconds) * 1000 + int(microseconds) // 1000 - SYSTEM.now_ms()
        place = self.transport.place()
        if policy.startswith(EVICTING) and not self.settings.allow_eviction:
            raise UnsupportedServer(
                f"{name} {version} at {place} has maxmemory-policy {policy}, which may throw tasks away; "
                f"set it to noeviction, or allow_eviction (DTQ_ALLOW_EVICTION=1) to accept the loss"
            )
        return ServerInfo(name, version, policy, skew, place)

    def _version(self, info: dict[str, Any]) -> tuple[str, str]:
        name = "valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "redis"
        version = str(info.get("valkey_version") if name == "valkey" else info.get("redis_version", "0"))
        place = self.transport.place()
        if _numbers(version) < MINIMUM[name]:
            needed = ".".join(str(part) for part in MINIMUM[name])
            raise UnsupportedServer(
                f"{name} {version} at {place} is too old; dtq needs Redis 7.0 or Valkey 7.2 ({name} >= {needed})"
            )
        if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster":
            raise UnsupportedServer(f"{name} {version} at {place} is a cluster's node; dtq needs a single server")
        return name, version

    def _policy(self, client: Any) -> str:
        import redis

        try:
            return str(client.config_get("maxmemory-policy").get("maxmemory-policy", ""))
        except redis.ResponseError:
            return ""  # CONFIG is forbidden here (managed services): the worker warns once

    def check_layout(self, timeout_s: float | None = None) -> None:
        """Refuse a store that another layout has written.

        Raises:
            UnsupportedServer: the stored layout number is another one.
            BrokerUnavailable: no answer.
        """
        key = self.keys.layout()
        left = _Countdown(self.transport.timeout_s if timeout_s is None else timeout_s)
        self.command("SET", key, LAYOUT, "NX", timeout_s=left())
        stored = self.command("GET", key, timeout_s=left())
        if stored != str(LAYOUT).encode():
            shown = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
            raise UnsupportedServer(
                f"{key} says layout {shown!r}, this dtq reads {LAYOUT}; use another prefix or its own dtq version"
            )

    def prepare_queue(self, queue: str, timeout_s: float | None = None) -> None:
        """Make the queue known, and its consumer groups where they are missing (always with id 0, protocol 13).

        Args:
            queue: its name.
            timeout_s: how long all of it may take; the enqueue deadline unless given.

        Raises:
            UnsupportedServer: the store has another layout.
            BrokerUnavailable: no answer.
        """
        left = _Countdown(self.transport.timeout_s if timeout_s is None else timeout_s)
        self.check_layout(left())
        self.command("SADD", self.keys.queues(), queue, timeout_s=left())
        with translated(self.transport):
            import redis

            client = self.transport.client(left())
            try:
                pipeline = client.pipeline(transaction=False)
                for band in BANDS:
                    pipeline.xgroup_create(self.keys.stream(queue, band), GROUP, id="0", mkstream=True)
                for reply in pipeline.execute(raise_on_error=False):
                    if isinstance(reply, redis.RedisError) and "BUSYGROUP" not in str(reply):
                        raise reply
            finally:
                client.close()


class _Countdown:
    """What is left of a time, in seconds; never nothing, so that a time-out that has passed still ends its command."""

    def __init__(self, seconds: float) -> None:
        self._until = SYSTEM.monotonic() + seconds

    def __call__(self) -> float:
        return max(0.001, self._until - SYSTEM.monotonic())


def _numbers(version: str) -> tuple[int, ...]:
    """`7.0.15` as (7, 0, 15); what is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
