"""What the routes of one API app share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import HTTPConnection

from dtq.api.authentication import ApiKeys
from dtq.api.event_hub import EventHub
from dtq.api.limits import body_limit
from dtq.api.long_poll import LongPoll
from dtq.api.readiness import Readiness
from dtq.api.rejections import Rejections
from dtq.api.submission import Submissions
from dtq.app import App


class Served:
    """One App behind an API. body_limit: bytes that the JSON of one task may take."""

    def __init__(self, app: App, keys: ApiKeys) -> None:
        self.app = app
        self.keys = keys
        self.submissions = Submissions(app)
        self.waiting = LongPoll(app)
        self.readiness = Readiness(app)
        self.events = EventHub(app)
        self.rejections = Rejections(app)
        self.body_limit = body_limit(app.settings.max_payload_bytes)

    def close(self) -> None:
        """The server stops: end what would go on by itself."""
        self.waiting.close()
        self.events.close()
        self.readiness.close()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who acts, and by which request: for the audit stream."""

    actor: str
    request_id: str


def served_by(connection: HTTPConnection) -> Served:
    """What serves this request."""
    return cast(Served, connection.app.state.served)


def caller_of(connection: HTTPConnection) -> Caller:
    """Who has sent this request."""
    return Caller(connection.state.actor, connection.state.request_id)
