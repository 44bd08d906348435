"""Errors as answers: `{code, message, request_id, details}`, with the status and code that docs/errors.md gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from dtq.errors import (
    DtqError,
    IdempotencyInProgress,
    InvalidTask,
    QueueFull,
    UniqueConflict,
)

_METHODS = ("DELETE", "GET", "HEAD", "POST")
_MOST_PROBLEMS = 20
_LONGEST_NAME = 100
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_WAYS_OUT = {
    404: "path: nothing is here; {docs} lists the routes",
    405: "method: {method} is not for this path; the header Allow names those that are",
}


class ApiError(Exception):
    """An answer that belongs to HTTP only. status: of the answer; code: for programs; headers: more of them."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})


class Json(JSONResponse):
    """An answer of plain values; orjson writes it."""

    def render(self, content: object) -> bytes:
        """The body."""
        return orjson.dumps(content)


def details_of(error: DtqError) -> dict[str, Any]:
    """What a program may want to know of an error beside its code."""
    if isinstance(error, InvalidTask):
        return {"field": error.field}
    if isinstance(error, IdempotencyInProgress):
        return {"task_id": error.task_id}
    if isinstance(error, UniqueConflict):
        return {"task_id": error.existing_id}
    if isinstance(error, QueueFull):
        return {"retry_after_seconds": error.retry_after}
    return {}


def as_api_error(error: DtqError) -> ApiError:
    """The answer that an error of dtq stands for."""
    if isinstance(error, InvalidTask) and error.field == "task type":  # as parameters and fields name it
        error = InvalidTask("task_type", error.problem)
    headers = {"Retry-After": str(max(1, math.ceil(error.retry_after)))} if isinstance(error, QueueFull) else {}
    return ApiError(error.http_status, error.code, str(error), details_of(error), headers)


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """The body of an answer."""
    return {"code": error.code, "message": error.message, "request_id": request_id, "details": error.details}


def error_response(error: ApiError, request_id: str) -> Response:
    """The whole answer."""
    return Json(error_body(error, request_id), error.status, error.headers)


def request_id_of(request: Request) -> str:
    """The id of this request, given by the caller or made at the front door."""
    return str(getattr(request.state, "request_id", ""))


async def answer_dtq_error(request: Request, error: DtqError) -> Response:
    """For DtqError."""
    return error_response(as_api_error(error), request_id_of(request))


async def answer_api_error(request: Request, error: ApiError) -> Response:
    """For ApiError."""
    return error_response(error, request_id_of(request))


async def answer_http_error(request: Request, error: HTTPException) -> Response:
    """For what the router says: no such path, no such method."""
    code = _CODES.get(error.status_code, "REQUEST_REFUSED")
    message = _WAYS_OUT.get(error.status_code, str(error.detail)).format(
        docs=f"{request.scope.get('root_path', '')}/docs", method=request.method
    )
    headers = {**(error.headers or {})}
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods_here(request))
    made = ApiError(error.status_code, code, message, headers=headers)
    return error_response(made, request_id_of(request))


def _methods_here(request: Request) -> list[str]:
    """What any route takes at this path; the router names those of the first one only."""
    routes = cast(FastAPI, request.app).routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


async def answer_invalid_request(request: Request, error: RequestValidationError) -> Response:
    """For parameters that are out of bounds."""
    made = invalid_request((problem["loc"][1:], problem["msg"]) for problem in error.errors())
    return error_response(made, request_id_of(request))


def invalid_request(problems: Iterable[tuple[Iterable[object], object]]) -> ApiError:
    """The answer to a parameter or body out of bounds. problems: steps to each place, and what is wrong there; one or
    more, of which no more are taken than are told. What was given is not repeated, and of names the beginning."""
    told = [
        {"field": ".".join(str(step)[:_LONGEST_NAME] for step in steps) or "body", "problem": str(problem)}
        for steps, problem in islice(problems, _MOST_PROBLEMS)
    ]
    field, problem = told[0]["field"], told[0]["problem"]
    return ApiError(422, "INVALID_REQUEST", f"{field}: {problem}", {"field": field, "problems": told})
