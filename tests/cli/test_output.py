"""What comes from Redis is printed so that it can forge no line and steer no terminal, and passwords never show."""

from __future__ import annotations

import io
import json
import sys

import pytest

from dtq.cli.output import print_error, print_fields, print_json, print_table, without_secrets
from dtq.legible import age, printable

HOSTILE = "a\r\nb\x1b[31mred\x1b[0m\x85c\u2028d\u202ee\x00f\x9b2J"


@pytest.mark.parametrize(
    "character", ["\r", "\n", "\x1b", "\x85", "\u2028", "\u2029", "\u202e", "\x00", "\x9b", "\x7f"]
)
def test_control_characters_are_escaped(character: str) -> None:
    assert character not in printable(f"a{character}b")
    assert "\\" in printable(f"a{character}b")


def test_plain_text_of_any_language_stays_as_it_is() -> None:
    assert printable("Grüße, 世界 [bold]") == "Grüße, 世界 [bold]"


def test_long_texts_are_cut_and_marked() -> None:
    assert printable("x" * 100_000, 500) == "x" * 499 + "…"


def test_a_table_prints_no_raw_escape_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Title", ["name"], [[HOSTILE], ["[red]not markup[/red]"], [":smile:"]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    assert "\x85" not in out
    assert "[red]not markup[/red]" in out
    assert ":smile:" in out


WIDE_ROW = ("0356jnBR07QaP1AsN9p2fs", "a-queue-of-some-name", "dead_lettered", "ValueError: a text of so many words")


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        (120, {0, 1, 2, 3}, ""),
        (75, {0, 2, 3}, "no room for queue (--json shows all)"),
        (55, {0, 2}, "no room for queue, error (--json shows all)"),
    ],
)
def test_on_a_narrow_screen_columns_give_way_and_ids_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, shown: set[int], left_out: str
) -> None:
    """An id that is broken into lines can be neither copied nor found."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table("", ["task", "queue", "status", "error"], [WIDE_ROW], whole=(0, 2), spare=(1, 3))
    out = capsys.readouterr().out
    words = out.split()
    assert left_out in " ".join(words)
    assert ("no room" in out) == bool(left_out)
    assert {WIDE_ROW[0], WIDE_ROW[2]} <= set(words)
    for index, word in ((1, "a-queue"), (3, "ValueError")):
        assert (word in out) == (index in shown)


@pytest.mark.parametrize(("columns", "task_id"), [(60, "0123456789" * 12), (20, WIDE_ROW[0])])
def test_where_there_is_no_room_at_all_ids_are_broken_and_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, task_id: str
) -> None:
    """The longest that a user may give; and a screen that is too narrow for any."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table("", ["task", "status"], [(task_id, "queued")], whole=(0, 1))
    below_the_rule = capsys.readouterr().out.partition("─ \n")[2]
    assert "".join(line.split()[0] for line in below_the_rule.splitlines() if line.strip()) == task_id


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [(80, "waiting running dead", ""), (34, "waiting running", "dead"), (24, "waiting", "running, dead")],
)
def test_on_a_narrow_screen_the_last_numbers_give_way_and_the_name_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, shown: str, left_out: str
) -> None:
    """They pushed the name of the queue off the screen, and then each other, without a word."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table("", ["queue", "waiting", "running", "dead"], [["default", 1, 2, 345678]], numbers=(1, 2, 3))
    out = capsys.readouterr().out
    heading, _, told = out.partition("no room for ")
    assert heading.split("─")[0].split() == ["queue", *shown.split()]
    assert "default" in heading
    assert " ".join(told.split()) == (f"{left_out} (--json shows all)" if left_out else "")


def test_fields_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("id", HOSTILE), ("left out", None)])
    assert capsys.readouterr().out.count("\n") == 1


def test_json_is_pure_ascii_and_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"text": HOSTILE}


def test_an_error_is_one_line_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    print_error(f"bad name\n{HOSTILE}")
    assert stream.getvalue().startswith("dtq: bad name; a; b\\x1b[31mred")
    assert stream.getvalue().count("\n") == 1


def test_a_text_of_dtq_itself_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("dtq: no Redis. Choose one:\n  first\x1b\n  second", keep_lines=True)
    assert capsys.readouterr().err == "dtq: no Redis. Choose one:\n  first\\x1b\n  second\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no answer from redis://user:S3CRET@host:6379/0", "no answer from redis://***@host:6379/0"),
        ("rediss://:S3CRET@host and redis://u:S3CRET@other", "rediss://***@host and redis://***@other"),
        ("redis://u:S3@CRET@host/0", "redis://***@host/0"),
        ("unix:///tmp/s?password=S3CRET&db=1", "unix:///tmp/s?password=***&db=1"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_passwords_in_urls_are_masked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (360000, "4 d 4 h"),
    ],
)
def test_ages_name_two_units(seconds: float, shown: str) -> None:
    assert age(seconds) == shown
