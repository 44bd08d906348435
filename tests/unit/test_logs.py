"""Lines of a log: one each, whatever they hold."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq import _core
from dtq.errors import InvalidSettings
from dtq.logs import FIELDS, LONGEST_LINE, JsonFormatter, LineFormatter, one_line, wants_json
from dtq.models import Outcome
from dtq.worker.journal import LOGGER, WorkerHandler
from dtq.worker.outcome_log import OutcomeLog

ODD = "a\r\nb\x85c\u2028d\u2029e\x1b[31mf\x00g\u202eh\ufeffi"


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("dtq", logging.INFO, __file__, 1, message, (), None)
    setattr(made, FIELDS, fields)
    return made


@given(st.text())
def test_a_text_is_one_line_that_shows_what_it_is(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line.isprintable() or not text.isprintable()
    line.encode()


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_no_record_makes_a_second_line(formatter: logging.Formatter) -> None:
    for message in (ODD, "x" * 100_000, "\ud800"):
        line = formatter.format(record(message, more=ODD))
        assert len(line.splitlines()) == 1
        assert len(line) < LONGEST_LINE + 300
        assert not {character for character in line if ord(character) < 32 or 127 <= ord(character) < 160}
        assert line.encode()
    try:
        raise ValueError(ODD)
    except ValueError:
        with_trace = record("failed")
        with_trace.exc_info = sys.exc_info()
    assert len(formatter.format(with_trace).splitlines()) == 1


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_an_exception_is_its_class_and_place(formatter: logging.Formatter) -> None:
    """Its text may repeat what a task carries; so may those of the exceptions that led to it."""
    text = "SECRET"
    try:
        try:
            raise KeyError(text)
        except KeyError as error:
            raise ValueError(text) from error
    except ValueError as error:
        for message in ("failed", error):  # some libraries log an exception as its own message
            given = record("")
            given.msg, given.exc_info = message, sys.exc_info()
            line = formatter.format(given)
            assert text not in line
            assert line.index("KeyError") < line.rindex("ValueError")
            assert "test_an_exception_is_its_class_and_place" in line
            assert given.msg is message, "other handlers get the record as it was"


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_json_comes_back(message: str, field: str) -> None:
    found = json.loads(JsonFormatter().format(record(message.replace("%", ""), field=field)))
    assert found["field"] == field
    assert (found["level"], found["pid"], type(found["ts"])) == ("INFO", record("").process, int)


@pytest.mark.parametrize(("text", "wanted"), [("1", True), ("Yes", True), ("", False), ("0", False), ("off", False)])
def test_the_switch(text: str, wanted: bool) -> None:
    assert wants_json({"DTQ_LOG_JSON": text}) == wanted


def test_a_switch_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="DTQ_LOG_JSON: 'perhaps' is not a switch; use 1 or 0"):
        wants_json({"DTQ_LOG_JSON": "perhaps"})


# --- lines of outcomes ---


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """dtq's own handler writes here."""
    path = tmp_path / "log"
    with path.open("w") as stream:
        handler = WorkerHandler(stream)
        handler.setFormatter(JsonFormatter() if request.param == "json" else LineFormatter())
        monkeypatch.setattr(LOGGER, "handlers", [handler])
        monkeypatch.setattr(LOGGER, "level", logging.INFO)
        logging.getLogger("dtq.worker.outcomes").manager._clear_cache()  # type: ignore[attr-defined]
        yield path


def claim_of(task_id: str = "id1", task_type: str = "mail") -> _core.Claim:
    envelope = _core.EnvelopeHead(task_type, 5, 3, 60_000, 0).encode({"secret": "payload"}, 99)
    token = b"r:2:0:5-0:host-abcdefgh.1.2:7:6:"
    return _core.parse_claims(
        [b"", b"1", b"5-0", task_id.encode("utf-8", "surrogateescape"), token, 5, envelope]
    ).claims[0]


def parsed(path: Path) -> list[dict[str, object]]:
    """Lines of JSON; of text the few fields that it has."""
    lines = path.read_text().splitlines()
    if lines and lines[0].startswith("{"):
        return [json.loads(line) for line in lines]
    return [{"level": line.split()[2], "message": line.split(" ", 4)[4]} for line in lines]


RETRY = Outcome("R", cause="error", error_class="ValueError", error="the text of a handler's exception")


@pytest.mark.parametrize(
    ("outcome", "code", "level", "event", "message"),
    [
        (None, b"d", "INFO", "TASK_SUCCEEDED", "succeeded"),
        (RETRY, b"d", "INFO", "TASK_RETRY_SCHEDULED", "retrying: error (ValueError)"),
        (Outcome("D", cause="timeout"), b"d", "WARNING", "TASK_DEAD_LETTERED", "dead_lettered: timeout"),
        (Outcome("F", cause="error"), b"d", "WARNING", "TASK_FAILED", "failed: error"),
        (Outcome("L", cause="released"), b"d", "INFO", "TASK_RELEASED", "released: released"),
        (None, b"c", "INFO", "TASK_CANCELLED", "cancelled"),
        (None, b"s", "WARNING", "TASK_SUCCEEDED", "succeeded, refused: another claim holds it"),
        (RETRY, b"g", "WARNING", "TASK_RETRY_SCHEDULED", "retrying: error (ValueError), refused: the task is gone"),
    ],
)
def test_an_outcome_is_one_line_with_the_fields_of_its_event(
    written: Path, outcome: Outcome | None, code: bytes, level: str, event: str, message: str
) -> None:
    log = OutcomeLog(["q"], "host-abcdefgh")
    log.noted[0].append((0, claim_of(), outcome, 1_500_000))
    log.write(0, code)
    [found] = parsed(written)
    whole = f"task id1 (mail) attempt 2 {message} [queue q, 1.500 ms]"
    assert (found["level"], found["message"]) == (level, whole)
    if "type" in found:
        expected = {
            "type": event, "task_id": "id1", "queue": "q", "task_type": "mail", "attempt": 2,
            "worker_id": "host-abcdefgh", "took_ms": 1.5,
        }  # fmt: skip
        assert {name: found[name] for name in expected} == expected
        assert isinstance(found["ts"], int)
    assert not {"secret", "payload", "exception"} & set(written.read_text().replace('"', " ").split())


def test_the_quick_way_says_what_the_careful_one_says(written: Path) -> None:
    """Successes alone are written the quick way, in one go; with one that needs care beside them, the other."""
    claims = [claim_of(f"id{number}") for number in range(50)]
    for odd in (False, True):
        log = OutcomeLog(["q"], "host-abcdefgh")
        log.noted[0] += [(place, claim, None, 12_345) for place, claim in enumerate(claims)]
        log.noted[0] += [(50, claim_of('odd"\n'), None, 12_345)] * odd
        log.write(0, b"d" * 51 + b"p")
        assert log.noted == [[]]
    lines = [{key: line[key] for key in line if key != "ts"} for line in parsed(written)]
    assert len(lines) == 101
    quick, careful = lines[:50], lines[50:100]
    if "took_ms" in quick[0]:
        quick = [{**line, "took_ms": 0.012} for line in quick]
    assert quick == careful


@pytest.mark.parametrize("odd", [ODD, 'a"b', "a\\b", "x" * 100_000, "\udcff", '","level":"FORGED'])
def test_odd_ids_forge_nothing(written: Path, odd: str) -> None:
    """Through the interface they are refused; here somebody wrote them into Redis."""
    log = OutcomeLog(["q"], "host-abcdefgh")
    log.noted[0] += [(0, claim_of(), None, 1), (1, claim_of(odd), None, 1)]
    log.write(0, b"dd")
    found = parsed(written)
    assert [line["level"] for line in found] == ["INFO", "INFO"]
    assert len(written.read_bytes()) < 4 * LONGEST_LINE


def test_many_lines_come_in_whole_pieces(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several processes write into one pipe stays whole up to 4 096 bytes."""
    import os

    pieces: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: pieces.append(data) or write(descriptor, data))
    log = OutcomeLog(["q"], "host-abcdefgh")
    log.noted[0] += [(place, claim_of(f"id{place}"), None, 1) for place in range(100)]
    log.write(0, b"d" * 100)
    assert len(pieces) > 1
    assert all(len(piece) <= 4096 and piece.endswith(b"\n") for piece in pieces)
    assert len(parsed(written)) == 100


def test_an_application_with_logging_of_its_own_gets_records(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", True)
    with caplog.at_level(logging.INFO, LOGGER.name):
        log = OutcomeLog(["q"], "host-abcdefgh")
        log.noted[0] += [(0, claim_of(), None, 1_000_000), (1, claim_of("id2"), RETRY, -1)]
        log.write(0, b"dd")
    assert [getattr(found, FIELDS)["task_id"] for found in caplog.records] == ["id1", "id2"]
    assert caplog.messages == [
        "task id1 (mail) attempt 2 succeeded [queue q, 1.000 ms]",
        "task id2 (mail) attempt 2 retrying: error (ValueError) [queue q]",
    ]


def test_above_info_only_what_failed_for_good_is_told(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGER, "level", logging.WARNING)
    logging.getLogger("dtq.worker.outcomes").manager._clear_cache()  # type: ignore[attr-defined]
    log = OutcomeLog(["q"], "host-abcdefgh")
    assert not log.successes
    log.noted[0] += [(4, claim_of(), RETRY, 1), (7, claim_of("id2"), Outcome("D", cause="error"), 1)]
    log.write(0, b"d" * 8)
    [found] = parsed(written)
    assert "id2" in str(found["message"])


def test_a_log_that_takes_nothing_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or stderr is gone."""
    monkeypatch.setattr(LOGGER, "level", logging.INFO)
    for target, closed in (("/dev/full", False), ("/dev/null", True)):
        with open(target, "w") as stream:
            handler = WorkerHandler(stream)
            handler.setFormatter(LineFormatter())
            monkeypatch.setattr(LOGGER, "handlers", [handler])
            if closed:
                stream.close()
            log = OutcomeLog(["q"], "host-abcdefgh")
            log.noted[0].append((0, claim_of(), None, 1))
            log.write(0, b"d")
            assert log.noted == [[]]
