"""Every public name of dtq._core has a benchmark, and each benchmark does what it should."""

from __future__ import annotations

import inspect

import pytest
from bench.core_cases import ATTRIBUTES, CASES, FUNCTIONS, METHODS

from dtq import _core

CLASSES = {name: found for name in _core.__all__ if inspect.isclass(found := getattr(_core, name))}
CALLED = {"__new__", "__len__"}


def members(kind: type, *, attributes: bool) -> set[str]:
    """Names of a class's attributes, or of its methods."""
    return {
        name
        for name, found in vars(kind).items()
        if (name in CALLED or not name.startswith("__"))
        and (inspect.isdatadescriptor(found) or isinstance(found, str)) == attributes
    }


def test_every_function_has_a_case() -> None:
    functions = {name for name in _core.__all__ if inspect.isroutine(getattr(_core, name))}
    assert set(FUNCTIONS) == functions


def test_every_method_has_a_case() -> None:
    methods = {f"{name}.{method}" for name, kind in CLASSES.items() for method in members(kind, attributes=False)}
    assert set(METHODS) == methods


def test_every_attribute_is_read_by_a_case() -> None:
    found = {name: names for name, kind in CLASSES.items() if (names := members(kind, attributes=True))}
    assert {kind: set(case.names) for kind, case in ATTRIBUTES.items()} == found


@pytest.mark.parametrize("name", CASES)
def test_the_case_comes_to_what_it_should(name: str) -> None:
    """Twice: a benchmark calls it as often as it likes."""
    assert CASES[name].work() == CASES[name].expected
    assert CASES[name].work() == CASES[name].expected
