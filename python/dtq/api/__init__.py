"""The HTTP API: tasks, queues, dead letters, workers and events for those who speak no Python, and for operators.

`dtq api` serves it; `create_app()` gives the ASGI app to mount elsewhere, `uvicorn dtq.api:asgi` finds one of its own.
Needs the extra `dtq[api]`. docs/http.md is its manual.

application.py     the app as a whole: routes, what stands before and behind them, its OpenAPI description
connection.py      bounds of what comes before a request, and the end of who reads nothing
front_door.py      every request: id, key, origin, security headers, what went wrong
authentication.py  keys and their names
errors.py          errors as answers
limits.py          bodies and bounds, checked before reading on
strict_route.py    what a route does not know is refused
submission.py      JSON of one task to a checked plan, by the code that Python producers use
items.py           a JSON list or a stream of lines, split in flat memory
event_hub.py       one watcher of Redis for all who listen
event_buffer.py    what one of them has not taken yet
outbox.py          answers that nobody reads yet
long_poll.py       waiting for the end of many tasks at once
rejections.py      counts what is refused before a script sees it
request_bodies.py  bodies of acts, checked against their models
schemas.py         what bodies look like, for the OpenAPI description
readiness.py       whether work can be done
threads.py         for calls that block, which are not waited for without end
served.py          what the routes of one app share
serving.py         the server: where it listens, and what it refuses
The others hold the routes that their names tell.
"""

from typing import TYPE_CHECKING, Any

from dtq.api.application import create_app
from dtq.api.serving import serve

if TYPE_CHECKING:
    from fastapi import FastAPI

    asgi: FastAPI

__all__ = ["asgi", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """`asgi`, made when a server asks for it: it reads the settings."""
    if name == "asgi":
        return globals().setdefault("asgi", create_app())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
