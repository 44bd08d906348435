"""The census counts what a reader of the file would count."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtq.demo.counts import count_source
from dtq.demo.files import broken_files, short_name, source_files, standard_library

SOURCE = b"""import os
from sys import path, argv


class Reader:
    async def read(self):
        for line in path:
            if line:
                pass
            elif argv:
                pass
            else:
                if os:
                    return lambda: [x for x in line]


def last(): pass"""


def test_everything_is_counted() -> None:
    assert count_source(SOURCE, "reader.py") == {
        "lines": 17,
        "functions": 2,
        "classes": 1,
        "imports": 2,
        "nesting": 5,
        "bytes": len(SOURCE),
    }


def test_an_empty_file_holds_nothing() -> None:
    assert set(count_source(b"", "empty.py").values()) == {0}


@pytest.mark.parametrize("path", broken_files(), ids=short_name)
def test_the_broken_files_do_not_parse(path: str) -> None:
    with pytest.raises((SyntaxError, UnicodeDecodeError, ValueError)):
        count_source(Path(path).read_bytes(), path)


def test_the_files_are_those_of_the_standard_library() -> None:
    files = source_files()
    assert len(files) == len(set(files))
    assert len(files) > 500
    assert str(standard_library() / "ast.py") in files
    assert not any("site-packages" in path for path in files)
    assert set(broken_files()) <= set(files)
    assert len(broken_files()) >= 5


def test_a_limit_spreads_over_the_library() -> None:
    chosen = source_files(10)
    assert len(chosen) == 10 + len(broken_files())
    assert short_name(chosen[0]).startswith("_")
    assert not short_name(chosen[9]).startswith(("_", "a"))
