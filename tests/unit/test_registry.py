"""Handlers: which signatures are taken, what a payload may be, and who owns a name."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import dtq
from dtq.errors import InvalidHandler, InvalidTask
from dtq.options import TaskOptions
from dtq.registry import Handler, Registry, build_handler, default_name, module_name

if TYPE_CHECKING:
    from dtq import Context


def handler_of(function: Any, name: str | None = "n") -> Handler:
    return build_handler(function, name, TaskOptions())


def plain(a: int, b: int = 2, *, c: int) -> int:
    return a + b + c


async def eventual(context: Context, a: int) -> int:  # the name is known to the type checker only
    return a


def by_root(context: dtq.Context) -> None: ...


def open_ended(a: int, **rest: int) -> None: ...


def test_a_plain_function() -> None:
    handler = handler_of(plain, None)
    assert handler.name == f"{__name__}.plain"
    assert (handler.kind, handler.wants_context, handler.open) == ("sync", False, False)
    assert (handler.required, handler.allowed) == ({"a", "c"}, {"a", "b", "c"})
    assert handler.order == ("a", "b")
    assert f"{__name__}.plain ({__file__}:" in handler.owner


def test_the_context_is_no_part_of_the_payload() -> None:
    handler = handler_of(eventual)
    assert (handler.kind, handler.wants_context, handler.required) == ("async", True, {"a"})
    assert handler_of(by_root).wants_context
    assert handler_of(by_root).allowed == set()


def test_async_callables_of_all_kinds() -> None:
    class Sender:
        async def __call__(self, a: int) -> None: ...

    assert handler_of(Sender()).kind == "async"
    assert handler_of(functools.partial(eventual, a=1)).kind == "async"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"a": 1, "c": 2}, None),
        ({"a": 1, "b": 0, "c": 2}, None),
        ({"b": 0}, "payload.a: n needs it; give a, c"),
        ({"a": 1, "c": 2, "z": 3, "y": 4}, "payload.y: n takes no such argument; known are a, b"),
    ],
)
def test_payloads_that_do_not_fit_are_named(payload: dict[str, Any], problem: str | None) -> None:
    found = handler_of(plain).problem(payload)
    assert found == problem or (problem is not None and found is not None and found.startswith(problem))


def test_open_handlers_take_anything_beside_what_they_need() -> None:
    assert handler_of(open_ended).problem({"a": 1, "z": 2}) is None
    assert handler_of(open_ended).problem({"z": 2}) == "payload.a: n needs it; give a"


def test_positional_arguments_become_keywords() -> None:
    handler = handler_of(plain)
    assert handler.payload((1, 2), {"c": 3}) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(InvalidTask, match=r"^payload: n takes 2 arguments by position, but 3 were given; "):
        handler.payload((1, 2, 3), {})
    with pytest.raises(InvalidTask, match=r"^payload\.a: n got it twice; "):
        handler.payload((1,), {"a": 1})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *items: None, "*items cannot be filled from a payload, which is named; use a list parameter"),
        (lambda a, /: None, "parameter 'a' is positional-only, but a payload is named; remove the '/'"),
        (lambda a, c: None, None),
        (dict.fromkeys, "is positional-only"),
        (min, "its signature cannot be read; wrap it in a function of your own"),
    ],
)
def test_signatures_that_a_payload_cannot_fill(function: Any, message: str | None) -> None:
    if message is None:
        handler_of(function)
        return
    with pytest.raises(InvalidHandler) as caught:
        handler_of(function)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_context_comes_first() -> None:
    def late(a: int, context: dtq.Context) -> None: ...

    with pytest.raises(InvalidHandler, match="parameter 'context' takes the Context; make it the first one"):
        handler_of(late)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidHandler, match=r"^@app\.task: int is not a function; decorate a function"):
        handler_of(3)


def test_a_second_owner_of_a_name_is_refused_and_both_are_named() -> None:
    registry = Registry()
    first, second = handler_of(plain), handler_of(eventual)
    registry.add(first)
    registry.add(first)
    with pytest.raises(InvalidHandler) as caught:
        registry.add(second)
    assert first.owner in str(caught.value)
    assert second.owner in str(caught.value)
    assert "@app.task(name=...)" in str(caught.value)
    assert registry.get("n") is first
    assert ("n" in registry, "m" in registry, len(registry), list(registry)) == (True, False, 1, [first])


def main_module(**attributes: Any) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(attributes)
    return module


def test_main_is_named_as_another_process_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/srv/app", *sys.path])
    for module, name in [
        (main_module(__file__="/srv/app/tasks.py"), "tasks"),
        (main_module(__file__="/srv/app/jobs/mail.py"), "jobs.mail"),
        (main_module(__file__="/elsewhere/tool.py"), "tool"),
        (main_module(__spec__=SimpleNamespace(name="shop.mail")), "shop.mail"),
        (main_module(__spec__=SimpleNamespace(name="shop.__main__")), "shop"),
        (main_module(), "__main__"),
    ]:
        monkeypatch.setitem(sys.modules, "__main__", module)
        assert module_name("__main__") == name
    assert module_name("other") == "other"


def test_what_has_no_name_needs_one() -> None:
    with pytest.raises(InvalidHandler, match=r"it has no name; give one, @app\.task\(name=\.\.\.\)$"):
        default_name(functools.partial(plain, 1))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "a\nb", "*", "{x}", "x" * 256])
def test_task_types_that_would_not_work_everywhere_are_refused(name: str) -> None:
    with pytest.raises(InvalidTask, match=r"^task type: .* is not allowed; use 1 to 255 letters, digits "):
        handler_of(plain, name)


@pytest.mark.parametrize("name", ["mail.send", "outer.<locals>.inner", "sénd", "a:b-c_d"])
def test_task_types_that_work(name: str) -> None:
    assert handler_of(plain, name).name == name
