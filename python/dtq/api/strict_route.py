"""Routes that refuse what they do not know: a filter that nobody looks at would act on all that it should spare."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dtq.api.errors import ApiError, invalid_request
from dtq.api.limits import read_body
from dtq.errors import InvalidTask, PayloadTooLarge
from dtq.raw_json import read_json

_ALIKE = 0.65
"""From here on (0 to 1) a name is taken for a misspelled one."""
_MOST_BYTES = 65_536
_LONGEST_NAME = 100
"""No known one is as long, and what is longer takes long to compare."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class StrictRoute(APIRoute):
    """A route whose query and body hold nothing but what its description names."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler with a look at the request before it."""
        handler = super().get_route_handler()
        known = frozenset(parameter.alias for parameter in self.dependant.query_params)
        reads_a_body = "requestBody" in (self.openapi_extra or {})

        async def handle(request: Request) -> Response:
            refuse_unknown_parameters(request, known)
            if not reads_a_body:
                await _refuse_body(request)
            return await handler(request)

        return handle


def refuse_unknown_parameters(connection: HTTPConnection, known: Collection[str] = ()) -> None:
    """Raises ApiError 422, which names each parameter of the query that is not known, or that stands there twice."""
    if not connection.scope["query_string"]:
        return
    given = connection.query_params
    unknown = [name for name in given if name not in known]
    if unknown:
        raise _refusal(unknown, "there is no such parameter; ", sorted(known), "this route takes none")
    if len(given.multi_items()) > len(given):  # of two, the first would not be looked at either
        counts = Counter(name for name, _ in given.multi_items())
        raise invalid_request(((name,), "it stands twice; give one") for name, count in counts.items() if count > 1)


def refuse_unknown_fields(body: Mapping[str, object], known: Collection[str] = ()) -> None:
    """Raises ApiError 422, which names each field of a body that is not known."""
    unknown = [name for name in body if name not in known]
    if unknown:
        raise _refusal(unknown, "there is no such field; ", known, "this route takes no body")


def what_is_meant(name: str, known: Iterable[str]) -> str:
    """Which of the known names may be meant, or all of them; the end of a message."""
    names = list(known)
    plain = _HUMP.sub("_", name[:_LONGEST_NAME]).replace("-", "_").lower()
    longer = [other for other in names if other.startswith(f"{plain}_")]
    near = longer or get_close_matches(plain, names, 1, _ALIKE)
    return f"{near[0]} may be meant" if near else f"known are {', '.join(names)}"


async def _refuse_body(request: Request) -> None:
    """Raises ApiError 422 for a body that says something."""
    headers = request.headers
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    try:
        body = await read_body(request, _MOST_BYTES)
        value: object = read_json(body, "body") if body.strip() else {}
    except (InvalidTask, PayloadTooLarge):
        value = None
    if not isinstance(value, dict):
        raise invalid_request([((), "this route takes no body; leave it out")])
    refuse_unknown_fields(cast(dict[str, object], value))


def _refusal(unknown: Iterable[str], problem: str, known: Collection[str], nothing_known: str) -> ApiError:
    return invalid_request(
        ((name,), problem + (what_is_meant(name, known) if known else nothing_known)) for name in unknown
    )
