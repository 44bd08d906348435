"""Bodies of acts: read within their limit, without changing anything in them, and checked against their model."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from dtq.api.errors import invalid_request
from dtq.api.limits import read_body, require_json
from dtq.api.strict_route import refuse_unknown_fields
from dtq.dead_letters import DeadLetterFilter
from dtq.raw_json import read_json

Model = TypeVar("Model", bound=BaseModel)
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Requeue(_Body):
    """How one dead letter is queued again. payload: instead of its own; deadline: a new one."""

    payload: dict[str, Any] | None = None
    deadline: AwareDatetime | None = None


class Selection(_Body):
    """Which dead letters are meant; all, where nothing is given.

    where: payload paths and the values that stand there.
    """

    task_type: str | None = Field(None, max_length=255)
    error_class: str | None = Field(None, max_length=255)
    older_than_seconds: Seconds | None = Field(None, description="Dead for so long at least.")
    newer_than_seconds: Seconds | None = Field(None, description="Dead for so long at most.")
    where: dict[str, Any] = Field(default_factory=dict, description='Such as {"order.items[0].id": 7}.')
    dry_run: bool = Field(False, strict=True, description="Tell what would be done, and change nothing.")

    def filter(self) -> DeadLetterFilter:
        """The filter. Raises InvalidTask for what is no path."""
        return DeadLetterFilter(
            self.task_type, self.error_class, self.older_than_seconds, self.newer_than_seconds, self.where
        )


class BulkRequeue(Selection):
    """Which dead letters are queued again, and how fast."""

    rate: Annotated[float, Field(strict=True, ge=0.1, allow_inf_nan=False)] | None = Field(
        None, description="Most tasks a second, 0.1 at least."
    )
    deadline: AwareDatetime | None = Field(None, description="A new one for all of them.")


async def read_as(request: Request, model: type[Model], limit: int) -> Model:
    """A body as its model; no body at all counts as an empty one.

    Raises InvalidTask for what is no JSON, PayloadTooLarge, ApiError for what does not fit the model.
    """
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        require_json(request)
    body = await read_body(request, limit)
    value: object = read_json(body, "body") if body.strip() else {}
    if isinstance(value, dict):  # before the model, which would make an error of each of a hundred thousand
        refuse_unknown_fields(cast(dict[str, object], value), model.model_fields)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise invalid_request((problem["loc"], problem["msg"]) for problem in problems) from None


def body_of(model: type[BaseModel], *, required: bool = False) -> dict[str, Any]:
    """The part of a route's description that shows its body."""
    schema = {"schema": model.model_json_schema()}
    return {"requestBody": {"required": required, "content": {"application/json": schema}}}
