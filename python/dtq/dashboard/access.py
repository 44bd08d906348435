"""Who may look: sign-in with an API key, the session cookie, sign-out, and a price on wrong keys.

The cookie names a session, signed with what one key alone gives: a key that is taken away, or changed, ends its
sessions at once. The key itself is in no cookie.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from itsdangerous import BadData, URLSafeTimedSerializer

from dtq.api.authentication import ApiKeys
from dtq.clock import Clock

COOKIE = "dtq_session"
SESSION_S = 12 * 3600
"""A session lasts so many seconds from its sign-in."""
FREE_TRIES = 3
"""Wrong keys from one address that cost nothing: typing errors."""
LONGEST_WAIT_S = 60.0
ADDRESSES = 1000
"""Addresses with wrong keys that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks, until when (ms since 1970). name: that of the key, for the audit; None where no key is set."""

    name: str | None = None
    session: str = ""
    until_ms: float = float("inf")


ANYBODY = Visitor()


class TooSoon(Exception):
    """Too many wrong keys came from this address; the next one is looked at after `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Access:
    """Sessions of one process. keys: those of the API; without any, everybody is let in and nobody has a name."""

    def __init__(self, keys: ApiKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._signers = {digest: (name, _signer(name, digest)) for name, digest in keys.digests}
        self._left: OrderedDict[str, float] = OrderedDict()
        self._tries = _Tries(clock)

    def sign_in(self, key: str, address: str) -> str | None:
        """The cookie for a right key, None for a wrong one. Raises TooSoon."""
        self._tries.check(address)
        given = key.encode()
        if self._keys.name_of(given) is None:
            self._tries.failed(address)
            return None
        self._tries.succeeded(address)
        _, signer = self._signers[hashlib.sha256(given).digest()]
        return str(signer.dumps(secrets.token_urlsafe(12)))

    def visitor(self, cookies: Mapping[str, str]) -> Visitor | None:
        """Who shows these cookies; None where they do not let in."""
        if not self._keys:
            return ANYBODY
        for name, signer in self._signers.values():
            try:
                # The library types what it gives by what is asked of it, loosely.
                loaded: Any = signer.loads(cookies.get(COOKIE, ""), max_age=SESSION_S, return_timestamp=True)
            except BadData:
                continue
            session, signed_at = cast("tuple[str, datetime]", loaded)
            visitor = Visitor(name, session, (signed_at.timestamp() + SESSION_S) * 1000)
            return visitor if self.still(visitor) else None
        return None

    def still(self, visitor: Visitor) -> bool:
        """Whether somebody who was let in has not signed out since, and the session has not run out."""
        return visitor.session not in self._left and self._clock.now_ms() < visitor.until_ms

    def sign_out(self, visitor: Visitor) -> None:
        """Ends a session, in all tabs."""
        if not visitor.session:
            return
        now = self._clock.monotonic()
        self._left[visitor.session] = now
        while next(iter(self._left.values())) < now - SESSION_S:
            self._left.popitem(last=False)


class _Tries:
    """Wrong keys by address: each further one makes the next wait twice as long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises TooSoon while the address has to wait."""
        _, until = self._failures.get(_network(address), (0, 0.0))
        wait = until - self._clock.monotonic()
        if wait > 0:
            raise TooSoon(wait)

    def failed(self, address: str) -> None:
        """Counts a wrong key."""
        place = _network(address)
        count = self._failures.pop(place, (0, 0.0))[0] + 1
        wait = 0.0 if count < FREE_TRIES else min(LONGEST_WAIT_S, 2.0 ** min(count - FREE_TRIES, 10))
        self._failures[place] = (count, self._clock.monotonic() + wait)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        """Forgets the wrong ones."""
        self._failures.pop(_network(address), None)


def _network(address: str) -> str:
    """The address, or what one customer has of IPv6: a network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(parsed) if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _signer(name: str, digest: bytes) -> URLSafeTimedSerializer:
    """Signs with what is derived from a key slowly, so that a stolen cookie does not help to guess the key."""
    derived = hashlib.scrypt(digest, salt=b"dtq dashboard " + name.encode(), n=2**14, r=8, p=1, dklen=32)
    return URLSafeTimedSerializer(derived, salt="dtq dashboard session")
