"""What is given to go on behind: refused with its field before any server is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import dtq

APP = dtq.App("redis://127.0.0.1:1/0")
ODD = ["", "x", "1", "1-1-1", "-1-0", "0-0", f"{2**64}-0", "1700000000000-0 "]


@pytest.mark.parametrize("entry", ODD)
@pytest.mark.parametrize(
    ("page", "field"),
    [
        (lambda entry: APP.audit(before=entry), "before"),
        (lambda entry: APP.queue().dead_letters(before=entry), "before"),
        (lambda entry: APP.queue().dead_letter_page(cursor=entry), "cursor"),
    ],
)
def test_what_is_no_entry_is_refused(page: Callable[[str], object], field: str, entry: str) -> None:
    with pytest.raises(dtq.InvalidTask, match="it was not given by a listing; begin without one") as refusal:
        page(entry)
    assert refusal.value.field == field
