"""The page of what no test reaches is in step with the code, and the check behind it notices what is missing."""

from __future__ import annotations

from tests import uncovered
from tests.uncovered import PACKAGE, PAGE, Function, Reached

SOURCE = """\
import os

def outer():
    def inner():
        return 1
    return inner

class Door:
    size = 1

    def open(self):
        return 2
"""


def test_lines_are_known_by_their_function() -> None:
    names = uncovered.function_lines(SOURCE)
    assert [names.get(line, "") for line in (1, 3, 5, 6, 9, 12)] == [
        "", "outer", "outer.inner", "outer", "Door", "Door.open"
    ]  # fmt: skip


def test_what_grows_beyond_the_page_is_a_problem() -> None:
    close, shut = Function("door.py", "Door.close"), Function("door.py", "Door.shut")
    assert uncovered.problems({close: [3, 4, 5]}, {close: 3, shut: 1}) == []
    (grown, new) = uncovered.problems({close: [3, 4, 5, 9], shut: [12]}, {close: 3})
    assert "4 statements of Door.close are not reached by any test (lines 3-5, 9)" in grown
    assert "allows 3" in grown
    assert "allows 0" in new


def test_parts_are_summed() -> None:
    files = [Reached("broker/a.py", 10, [1, 2]), Reached("broker/b.py", 10, []), Reached("keys.py", 5, [])]
    lines = [line.split() for line in uncovered.summary(files)]
    assert lines[1:] == [
        ["broker", "20", "2", "90.0%"], ["modules", "5", "0", "100.0%"], ["dtq", "25", "2", "92.0%"]
    ]  # fmt: skip


def test_every_row_of_the_page_names_a_function_and_is_read() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = uncovered.page()
    assert len(listed) == len(rows), "a row is no `file` | `function` | statements | reason, or stands twice"
    unknown = [
        function
        for function in listed
        if function.name != uncovered.OUTSIDE
        and function.name not in uncovered.function_lines((PACKAGE / function.file).read_text()).values()
    ]
    assert unknown == []
    assert [function for function in listed if not function.file.startswith(uncovered.ACCOUNTED)] == []
