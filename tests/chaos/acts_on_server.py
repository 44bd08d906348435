"""Kills and freezes of the server, lost connections, and all the ways in which it refuses for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.chaos.events import Acts, Chronicle
from tests.chaos.handlers import QUEUES
from tests.chaos.sabotage import DOUBLE, LOSE
from tests.chaos.stage import LEASE_S, Stage, now

_WORDS = (
    ("CONFIG", "SET", "requirepass", "another"),
    ("ACL", "SETUSER", "default", "resetpass", ">another"),
    ("ACL", "SETUSER", "default", "off"),
)
"""Ways to lock everybody out."""


class ServerActs(Acts):
    """Acts on the server. What lasts for a while excludes all others here; sabotage has no weight."""

    def __init__(self, stage: Stage, dice: random.Random, chronicle: Chronicle) -> None:
        super().__init__(stage, dice, chronicle)
        self._server_busy = False
        self.weighted = [
            (3, self._kill_server), (3, self._freeze_server), (4, self._cut_connections), (8, self._lose_replies),
            (4, self._flush_scripts), (6, self._destroy_group), (1.5, self._refuse_writes), (1.5, self._fill_memory),
            (1.5, self._forbid), (1.5, self._limit_connections), (1, self._keep_busy), (1.5, self._fail_snapshots),
            (1.5, self._change_password), (0, self._sabotage_away), (0, self._sabotage_twice),
        ]  # fmt: skip

    def _for_a_while(self, what: str, seconds: float, undo: Callable[[], None]) -> None:
        """One trouble of the server at a time."""
        self._server_busy = True
        event = self._note(f"{what} for {seconds:g} s")

        def end() -> None:
            undo()
            event.until = now()
            self._server_busy = False
            self._tell(f"over: {what}")

        self._after(seconds, end)

    def _kill_server(self) -> None:
        if not self._server_busy:
            self._stage.server.kill()
            self._for_a_while("kill server", self._length(), self._stage.server.start)

    def _freeze_server(self) -> None:
        if not self._server_busy:
            self._stage.server.freeze()
            self._for_a_while("freeze server", self._length(), self._stage.server.thaw)

    def _refuse(self, what: str, command: tuple[object, ...], undo: tuple[object, ...]) -> None:
        """The server answers, and refuses, for a while."""
        if not self._server_busy:
            self._stage.say(*command)
            self._for_a_while(what, self._length(), lambda: self._insist(*undo))

    def _refuse_writes(self) -> None:
        self._refuse("READONLY", ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"))

    def _fill_memory(self) -> None:
        self._refuse("OOM", ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"))

    def _fail_snapshots(self) -> None:
        """MISCONF: the last snapshot failed (its place is taken), and the server writes nothing until one succeeds."""
        if not self._server_busy:
            self._stage.say("CONFIG", "SET", "save", "3600 100000000")
            self._stage.say("BGSAVE")
            self._for_a_while("MISCONF", self._length(), lambda: self._insist("CONFIG", "SET", "save", ""))

    def _change_password(self) -> None:
        """Every connection has to log in anew, and nobody knows the word."""
        if not self._server_busy:
            self._stage.say(*self._dice.choice(_WORDS))
            self._stage.say("CLIENT", "KILL", "TYPE", "normal")
            undo = ("ACL", "SETUSER", "default", "on", "resetpass", "nopass")
            self._for_a_while("wrong password", self._length(), lambda: self._insist(*undo))

    def _forbid(self) -> None:
        self._refuse("NOPERM", ("ACL", "SETUSER", "default", "-@scripting"), ("ACL", "SETUSER", "default", "+@all"))

    def _limit_connections(self) -> None:
        self._refuse(
            "no new connections", ("CONFIG", "SET", "maxclients", "1"), ("CONFIG", "SET", "maxclients", "10000")
        )
        self._stage.say("CLIENT", "KILL", "TYPE", "normal")

    def _keep_busy(self) -> None:
        """BUSY: a script of somebody else runs on and on, until it is killed."""
        if not self._server_busy:
            self._stage.say("CONFIG", "SET", "busy-reply-threshold", "50")
            self._stage.say("EVAL", "while true do end", 0)  # the reply is not waited for
            self._for_a_while("BUSY", self._length(), lambda: self._insist("SCRIPT", "KILL"))

    def _insist(self, *command: object) -> None:
        while self._stage.say(*command) is None:
            time.sleep(0.02)

    def _length(self) -> float:
        """How long a trouble of the server lasts: mostly less than a lease."""
        return self._dice.choices([0, 0.2, 0.7 * LEASE_S, 2 * LEASE_S, 7], [4, 6, 3, 2, 0.4])[0]

    def _lose_replies(self) -> None:
        """Commands are applied, and nobody hears of it."""
        if not self._server_busy:
            self._note("lose replies")
            self._stage.say_while_frozen(self._dice.choice([0.02, 0.05, 0.1]), "CLIENT", "KILL", "TYPE", "normal")

    def _cut_connections(self) -> None:
        if not self._server_busy:
            self._note("cut connections")
            self._stage.say("CLIENT", "KILL", "TYPE", "normal")

    def _flush_scripts(self) -> None:
        if not self._server_busy:
            self._note("flush scripts")
            self._stage.say("SCRIPT", "FLUSH")

    def _destroy_group(self) -> None:
        if not self._server_busy:
            band, queue = self._dice.choice([5, 5, 5, 9, 1]), self._dice.choice(QUEUES)
            self._note(f"destroy group of band {band} of {queue}")
            self._stage.say("XGROUP", "DESTROY", f"dtq:stream:{{{queue}}}:p{band}", "workers")

    # --- sabotage ------------------------------------------------------------------------------------------------

    def _sabotage_away(self) -> None:
        self._sabotage("lose", LOSE)

    def _sabotage_twice(self) -> None:
        self._sabotage("double", DOUBLE)

    def _sabotage(self, what: str, script: str) -> None:
        queue = self._dice.choice(QUEUES)
        keys = (f"dtq:live:{{{queue}}}", f"dtq:stream:{{{queue}}}:p", f"dtq:queue:{{{queue}}}:meta")
        if found := self._stage.say("EVAL", script, len(keys), *keys):
            self._note(f"{what} task of {queue}: {found.decode()}")
