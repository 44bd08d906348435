"""Which function runs which task type: a handler, its signature check, and the registry that refuses a second one."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dtq.context import Context
from dtq.errors import InvalidHandler, InvalidTask
from dtq.options import TaskOptions, check_task_type


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered function.

    kind: "async" where calling it gives a coroutine. wants_context: its first parameter takes the Context.
    owner: where it was defined, for messages. required and allowed: names of payload fields; open: it takes any
    (`**kwargs`). order: parameter names for positional arguments.
    """

    name: str
    function: Callable[..., Any]
    kind: Literal["sync", "async"]
    wants_context: bool
    options: TaskOptions
    owner: str
    required: frozenset[str]
    allowed: frozenset[str]
    open: bool
    order: tuple[str, ...]

    def problem(self, payload: Mapping[str, Any]) -> str | None:
        """Why the payload does not fit the signature, in one line; None where it does."""
        names = payload.keys()
        if names >= self.required and (self.open or names <= self.allowed):
            return None
        missing = sorted(self.required - names)
        if missing:
            return f"payload.{missing[0]}: {self.name} needs it; give {_listed(missing)}"
        unknown = sorted(str(name) for name in names if name not in self.allowed)
        known = _listed([name for name in self.order if name in self.allowed]) or "none"
        return f"payload.{unknown[0]}: {self.name} takes no such argument; known are {known}"

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Positional arguments turned into keywords, in order; InvalidTask where a call would raise TypeError."""
        if len(args) > len(self.order):
            raise InvalidTask(
                "payload",
                f"{self.name} takes {len(self.order)} arguments by position, but {len(args)} were given; name them",
            )
        payload = dict(zip(self.order, args, strict=False))
        for name in payload.keys() & kwargs.keys():
            raise InvalidTask(f"payload.{name}", f"{self.name} got it twice; give it once")
        payload.update(kwargs)
        return payload


class Registry:
    """The handlers of one app by task type."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Takes a handler in; InvalidHandler, naming both owners, where its task type is taken."""
        first = self._handlers.setdefault(handler.name, handler)
        if first is not handler:
            raise InvalidHandler(
                f"task type {handler.name!r} is registered twice: by {first.owner} and by {handler.owner}; "
                f"give one of them another name, @app.task(name=...)"
            )

    def get(self, name: str) -> Handler | None:
        """The handler of a task type, or None."""
        return self._handlers.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        return len(self._handlers)


def build_handler(function: Callable[..., Any], name: str | None, options: TaskOptions) -> Handler:
    """Looks at a function and makes its handler; InvalidHandler says what about its signature to change."""
    if not callable(function):
        raise InvalidHandler(f"@app.task: {type(function).__name__} is not a function; decorate a function")
    owner = _owner(function)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        raise InvalidHandler(f"{owner}: its signature cannot be read; wrap it in a function of your own") from None
    parameters = list(signature.parameters.values())
    wants_context = bool(parameters) and _is_context(parameters[0], function)
    if wants_context:
        del parameters[0]
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise InvalidHandler(
                f"{owner}: *{parameter.name} cannot be filled from a payload, which is named; use a list parameter"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidHandler(
                f"{owner}: parameter {parameter.name!r} is positional-only, but a payload is named; remove the '/'"
            )
        if _is_context(parameter, function):
            raise InvalidHandler(f"{owner}: parameter {parameter.name!r} takes the Context; make it the first one")
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return Handler(
        name=check_task_type(default_name(function) if name is None else name),
        function=function,
        kind="async" if _is_async(function) else "sync",
        wants_context=wants_context,
        options=options,
        owner=owner,
        required=frozenset(p.name for p in named if p.default is p.empty),
        allowed=frozenset(p.name for p in named),
        open=len(named) < len(parameters),
        order=tuple(p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD),
    )


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname`; `__main__` becomes the name that another process imports the module by."""
    qualname = getattr(function, "__qualname__", None)
    if not isinstance(qualname, str):
        raise InvalidHandler(f"{_owner(function)}: it has no name; give one, @app.task(name=...)")
    return f"{module_name(getattr(function, '__module__', None) or '__main__')}.{qualname}"


def module_name(module: str) -> str:
    """The importable name of a module: `__main__` by its spec (`python -m`) or by its file below sys.path[0]."""
    if module != "__main__":
        return module
    main = sys.modules.get("__main__")
    specification = getattr(main, "__spec__", None)
    if specification is not None:
        return str(specification.name).removesuffix(".__main__")
    file: str | None = getattr(main, "__file__", None)
    if not file:
        return module
    path = os.path.splitext(os.path.realpath(file))[0]
    root = os.path.realpath(sys.path[0]) if sys.path else ""
    if path.startswith(root + os.sep):
        return path[len(root) + 1 :].replace(os.sep, ".")
    return os.path.basename(path)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _is_context(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    """Whether a parameter is annotated `dtq.Context`, also as a text (`from __future__ import annotations`)."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation is Context
    if "Context" not in annotation:
        return False
    try:
        return eval(annotation, getattr(inspect.unwrap(function), "__globals__", {})) is Context  # noqa: S307 - the user's own source
    except Exception:
        # Imported under TYPE_CHECKING only, or defined in a function: the text itself decides.
        return annotation in ("Context", "dtq.Context")


def _owner(function: Callable[..., Any]) -> str:
    """Where a function was defined: module.qualname (file:line)."""
    inner = inspect.unwrap(function)
    name = f"{getattr(inner, '__module__', None)}.{getattr(inner, '__qualname__', type(inner).__name__)}"
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _listed(names: list[str]) -> str:
    return ", ".join(names)
