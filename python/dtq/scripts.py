"""The Lua scripts: one file per verb in `lua/`, with shared parts included at load, called by the hash of their text.

EVALSHA by content lets mixed versions of dtq work on one server during a deploy: each runs its own text. A server that
lost its scripts answers NOSCRIPT, the text is loaded and the call repeated; nothing of it had run.
"""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from dtq._core import pack_args
from dtq.keys import Keys

_LUA = Path(__file__).parent / "lua"
_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)
QUEUE_KEYS: Final = 11
"""How many KEYS a queue script receives (keys.Keys.of_queue)."""


class Script:
    """One Lua script: its whole text, and the SHA-1 that the server knows it by."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        source = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
        self.name = name
        self.text = _INCLUDE.sub(lambda part: (_LUA / "parts" / f"{part[1]}.lua").read_text(encoding="utf-8"), source)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@cache
def script(name: str) -> Script:
    """The script of one verb, such as `enqueue` or `turn`.

    Raises:
        FileNotFoundError: when there is no such script.
    """
    return Script(name)


def names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(path.stem for path in _LUA.glob("*.lua"))


class QueueCall:
    """The constant front of a queue script's command, packed once: EVALSHA, hash, keys and common arguments."""

    __slots__ = ("count", "prefix", "script")

    def __init__(self, name: str, keys: Keys, queue: str, common: list[str]) -> None:
        self.script = script(name)
        front: list[bytes | str | int] = ["EVALSHA", self.script.sha, QUEUE_KEYS, *keys.of_queue(queue), *common]
        self.prefix = pack_args(front)
        self.count = len(front)

    def pack(self, arguments: list[bytes | str | int]) -> bytes:
        """The whole command with its own arguments (ARGV 5 and on)."""
        return b"*%d\r\n" % (self.count + len(arguments)) + self.prefix + pack_args(arguments)
