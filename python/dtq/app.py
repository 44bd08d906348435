"""The App: what a user registers tasks with and enqueues them through."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from dtq.backoff import Backoff
from dtq.bulk import BulkEnqueue
from dtq.client import Client
from dtq.clock import SYSTEM, Clock
from dtq.context import Context
from dtq.errors import AmbiguousTaskId, InvalidHandler, InvalidTask, TaskNotFound
from dtq.handles import Handle
from dtq.options import EnqueueOptions, Seconds, TaskOptions, check_queue, check_task_id, check_task_type
from dtq.overview import Overview
from dtq.plan import Plan
from dtq.registry import Handler, Registry, build_handler
from dtq.settings import Settings

if TYPE_CHECKING:
    from dtq.broker import Broker
    from dtq.coalesce import Coalescers

P = ParamSpec("P")
"""The handler's parameters without its context: what `enqueue` takes."""
C = ParamSpec("C")
"""All of the handler's parameters: what a direct call takes."""
R = TypeVar("R")
"""What the handler returns, or its coroutine brings: the result."""
V = TypeVar("V")
"""What a direct call gives: the result, or the coroutine."""

ErrorClasses = type[BaseException] | Iterable[type[BaseException]]


class Enqueuer(Generic[P, R]):
    """A task together with the options it is enqueued with."""

    def __init__(self, app: App, handler: Handler, options: EnqueueOptions) -> None:
        self.handler = handler
        self._app = app
        self._plan = app.client.plan(handler.name, handler.options, options)

    @property
    def name(self) -> str:
        """The task type."""
        return self.handler.name

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueues one task with these arguments.

        Raises InvalidTask (arguments that do not fit the function included), PayloadTooLarge, QueueFull,
        TaskIdConflict, UniqueConflict, IdempotencyInProgress, IdempotencyKeyReused; BrokerUnavailable after
        the enqueue deadline (5 s).
        """
        return self._app.client.enqueue(self._plan, self._payload(args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` without blocking the loop; calls that run at the same time share a round trip."""
        return await self._app.coalescers.submit(self._plan, self._payload(args, kwargs))

    def enqueue_many(self, payloads: Iterable[dict[str, Any]]) -> BulkEnqueue:
        """Enqueues one task for each dict of keyword arguments; see BulkEnqueue: iterate it, or call its `run()`.

        The iterable may be endless: it is read chunk by chunk. A task of retention 0 that ran and was gone before
        its chunk had to be repeated after a lost connection may run again.
        """
        return BulkEnqueue(self._app.client, self._plan, payloads, self.handler.required, self.handler.problem)

    def _payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments as a payload, checked against the function's signature."""
        handler = self.handler
        payload = handler.payload(args, kwargs) if args else kwargs
        if payload.keys() != handler.required and (problem := handler.problem(payload)) is not None:
            raise InvalidTask(*problem.split(": ", 1))
        return payload


class RegisteredTask(Enqueuer[P, R], Generic[P, R, C, V]):
    """A registered function: call it directly, or enqueue it."""

    def __init__(self, app: App, handler: Handler) -> None:
        super().__init__(app, handler, {})
        self.function: Callable[C, V] = handler.function
        update_wrapper(self, handler.function)

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V:
        """Runs the function here and now, as if it were not decorated."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.handler.name}>"

    def options(self, **options: Unpack[EnqueueOptions]) -> Enqueuer[P, R]:
        """The same task with other options for its enqueues; EnqueueOptions lists them. Raises InvalidTask."""
        return Enqueuer(self._app, self.handler, options)


class Decorator:
    """What `@app.task(...)` gives; its overloads are those of `App.task`."""

    def __init__(self, app: App, name: str | None, options: TaskOptions) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> RegisteredTask[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> RegisteredTask[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> RegisteredTask[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> RegisteredTask[P, R, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Registers a function. Raises InvalidHandler."""
        handler = build_handler(function, self._name, self._options)
        self._app.registry.add(handler)
        return RegisteredTask[Any, Any, Any, Any](self._app, handler)


class App(Overview):
    """Tasks, settings, and the connection to the server, made at the first use.

    url: the server (redis://, rediss://, unix://); None takes DTQ_REDIS_URL, and without it the embedded store.
    settings: any keyword of dtq.settings.Settings; it wins over its DTQ_* environment variable.
    Raises InvalidSettings, naming everything that is wrong.
    """

    def __init__(self, url: str | None = None, *, clock: Clock = SYSTEM, **settings: Any) -> None:
        if url is not None:
            settings["redis_url"] = url
        self.settings = Settings.from_environment(**settings)
        self.registry = Registry()
        self.client = Client(self.settings, lambda: self.broker, clock)
        self._broker: Broker | None = None
        self._coalescers: Coalescers | None = None

    @property
    def broker(self) -> Broker:
        """The verbs on the server."""
        broker = self._broker
        if broker is None:
            from dtq.broker import Broker

            broker = self._broker = Broker(self.settings)
        return broker

    @property
    def coalescers(self) -> Coalescers:
        """What async enqueues go through; imports asyncio at the first use."""
        coalescers = self._coalescers
        if coalescers is None:
            from dtq.coalesce import Coalescers

            coalescers = self._coalescers = Coalescers(self.client)
        return coalescers

    def close(self) -> None:
        """Closes the connections of this process; the app may be used again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    async def aclose(self) -> None:
        """`close`, and the running loop's connections too; `asyncio.run` closes those at its end by itself."""
        broker = self._broker
        if broker is not None:
            await broker.async_transport.close()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- tasks ---------------------------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> RegisteredTask[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> RegisteredTask[P, R, Concatenate[Context, P], R]: ...
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> RegisteredTask[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> RegisteredTask[P, R, P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        retention: Seconds | None = None,
        backoff: Backoff | Seconds | None = None,
        retry_on: ErrorClasses | None = None,
        fatal: ErrorClasses | None = None,
    ) -> Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        retention: Seconds | None = None,
        backoff: Backoff | Seconds | None = None,
        retry_on: ErrorClasses | None = None,
        fatal: ErrorClasses | None = None,
    ) -> Any:
        """Registers a plain or async function as a task: `@app.task`, or `@app.task(name=...)` with options.

        Its payload is its keyword arguments, so `*args` and positional-only parameters are refused. A first parameter
        annotated `dtq.Context` receives the context and is not part of the payload.

        name: task type (`module.qualname`). queue, priority, max_attempts, timeout and retention: what its enqueues
        take when they say nothing else; durations in seconds or timedeltas. backoff: a Backoff, or seconds for the
        same delay each time. retry_on: only these exceptions are retried. fatal: these never are.
        Raises InvalidHandler (also for a name that is taken) and InvalidTask for an option.
        """
        options = TaskOptions.checked(
            self.settings,
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            retention=retention,
            backoff=backoff,
            retry_on=retry_on,
            fatal=fatal,
        )
        decorator = Decorator(self, name, options)
        return decorator if function is None else decorator(function)

    # --- enqueueing by name --------------------------------------------------------------------------------------

    def enqueue(
        self, name: str, payload: dict[str, Any] | None = None, /, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """Enqueues a task by its type, without importing its handler; options as in EnqueueOptions.

        Raises what the enqueue of a task raises; whether the payload fits the handler is seen by the worker.
        """
        return self.client.enqueue(self.plan(name, options), {} if payload is None else payload)

    async def aenqueue(
        self, name: str, payload: dict[str, Any] | None = None, /, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """`enqueue` without blocking the loop; calls that run at the same time share a round trip."""
        return await self.coalescers.submit(self.plan(name, options), {} if payload is None else payload)

    def enqueue_many(
        self, name: str, payloads: Iterable[dict[str, Any]], /, **options: Unpack[EnqueueOptions]
    ) -> BulkEnqueue:
        """Enqueues one task for each payload; see BulkEnqueue: iterate it, or call its `run()`."""
        return BulkEnqueue(self.client, self.plan(name, options), payloads)

    def plan(self, name: str, options: EnqueueOptions) -> Plan:
        """The checked plan of a task type; the options of its registration count where it is registered here.

        For those who send tasks themselves, as the HTTP API does. Raises InvalidTask.
        """
        handler = self.registry.get(check_task_type(name))
        return self.client.plan(name, None if handler is None else handler.options, options)

    # --- tasks that exist ----------------------------------------------------------------------------------------

    def handle(self, task_id: str, queue: str | None = None) -> Handle[Any]:
        """The handle of a task in a queue (the app's default one), without asking whether it exists."""
        return Handle(self.client, check_task_id(task_id), check_queue(self.settings.queue if queue is None else queue))

    def get(self, task_id: str, queue: str | None = None) -> Handle[Any]:
        """The handle of an existing task; without a queue all known ones are asked.

        Raises TaskNotFound, AmbiguousTaskId (naming the queues), InvalidTask for what is no id, BrokerUnavailable.
        """
        check_task_id(task_id)
        queues = self.broker.queues() if queue is None else [check_queue(queue)]
        found = self.broker.holders(queues, task_id)
        if len(found) > 1:
            raise AmbiguousTaskId(f"queue: task {task_id!r} exists in {', '.join(found)}; say which one is meant")
        if not found:
            place = "any known queue" if queue is None else f"queue {queue!r}"
            raise TaskNotFound(f"task_id: {task_id!r} is not known in {place}; check it, or its record is gone")
        return Handle(self.client, task_id, found[0])


def load_app(target: str) -> App:
    """The App that `module:attribute` names; `module` alone means its attribute `app`.

    The current directory is put first on sys.path. Raises InvalidHandler with one line that says what is wrong.
    """
    module_name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidHandler(
            _as_a_file(module_name, attribute) or f"app: {target!r} is not module:attribute; {_SUCH_AS}"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            missing = f"app: there is no module {module_name!r} in {here} or on the Python path"
            raise InvalidHandler(_as_a_file(module_name, attribute) or missing) from None
        raise InvalidHandler(f"app: importing {module_name!r} failed: {_one_line(error)}") from error
    except Exception as error:
        raise InvalidHandler(f"app: importing {module_name!r} failed: {_one_line(error)}") from error
    app: object = module
    for part in attribute.split("."):
        app = getattr(app, part, None)
    if isinstance(app, App):
        return app
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    hint = f"it has {', '.join(apps)}" if apps else "it has no dtq.App at all"
    what = "has no attribute" if app is None else f"has a {type(app).__name__}, not an App, as"
    raise InvalidHandler(f"app: module {module_name!r} {what} {attribute!r}; {hint}")


_SUCH_AS = "give such as my_project.tasks:app"


def _as_a_file(name: str, attribute: str) -> str | None:
    """What to say where a file was named instead of its module: what to type, and where."""
    if not name.endswith(".py") and os.sep not in name:
        return None
    folder, file = os.path.split(os.path.normpath(name.removesuffix(".py")))
    parts = [*folder.split(os.sep), file] if folder else [file]
    if all(part.isidentifier() for part in parts):
        return f"app: {name!r} is a file, and a module is needed; give {'.'.join(parts)}:{attribute}"
    return f"app: {name!r} is a file, and a module is needed; {_SUCH_AS}, in the folder that my_project is in"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
