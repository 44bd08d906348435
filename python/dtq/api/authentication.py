"""API keys: each has a name, which the audit shows, and is compared in constant time."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from hashlib import sha256

from dtq.errors import InvalidSettings

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_KEY = re.compile(r"[!-+\--~]+")
"""Printable ASCII without the comma, which stands between keys."""
VARIABLE = "DTQ_API_KEY"


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The keys that are accepted; false where there is none, and everybody may call.

    open_reads: requests that change nothing need no key.
    """

    open_reads: bool = False
    digests: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str | None, open_reads: bool = False) -> ApiKeys:
        """The keys of a setting: `name:key`, several with commas between; a key without a name is called `key-1`, ...

        Two keys may have one name, so that a key can be replaced. Raises InvalidSettings, which repeats no key.
        """
        digests: list[tuple[str, bytes]] = []
        parts = [part.strip() for part in (text or "").split(",")]
        if len(parts) > 1 or parts[0]:
            for place, part in enumerate(parts, 1):
                name, colon, key = part.partition(":")
                if not colon:
                    name, key = f"key-{place}", part
                if not _NAME.fullmatch(name) or not _KEY.fullmatch(key):
                    raise InvalidSettings(
                        [
                            f"{VARIABLE}: part {place} is not name:key; a name is 1 to 64 of A-Z a-z 0-9 . _ @ -, a "
                            "key printable ASCII without comma and space"
                        ]
                    )
                digests.append((name, sha256(key.encode()).digest()))
        return cls(open_reads, tuple(digests))

    def __bool__(self) -> bool:
        return bool(self.digests)

    def open_to(self, given: str | None) -> bool:
        """Whether who sends this key, or none, may read."""
        if given is None or not self:
            return self.open_reads or not self
        return self.name_of(given.encode("latin-1")) is not None

    def name_of(self, given: bytes) -> str | None:
        """The name of a key that is accepted, None for any other; takes the same time for all."""
        digest, found = sha256(given).digest(), None
        for name, known in self.digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found
