"""Every setting of dtq in one table: keyword, environment variable, type, unit, default, bounds and meaning."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, cast

from dtq.errors import InvalidSettings

T = TypeVar("T")

QUEUE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a queue may be called."""

_HUGE = 9_007_199_254_740_991  # 2**53 - 1: the largest integer that Lua and JSON keep exactly


def _setting(
    default: T,
    meaning: str,
    *,
    env: str | None = None,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str | None = None,
    secret: bool = False,
) -> T:
    """One row of the table: a dataclass field that carries its documentation and bounds."""
    metadata = {
        "meaning": meaning,
        "env": env,
        "unit": unit,
        "low": low,
        "high": high,
        "choices": choices,
        "pattern": pattern,
        "secret": secret,
    }
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as the documentation shows it. `kind` is the type's name; `low` and `high` are inclusive."""

    name: str
    env: str
    kind: str
    optional: bool
    unit: str
    default: object
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    pattern: str | None
    secret: bool
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, checked together: InvalidSettings lists everything that is wrong at once.

    A keyword given to `Settings.from_environment(...)` or `App(...)` wins over its `DTQ_*` environment variable,
    which wins over the default.
    """

    # Where the tasks are kept.
    redis_url: str | None = _setting(
        None,
        "Server to use (redis://, rediss://, unix://). Unset: an embedded store in the data directory.",
        secret=True,
    )
    redis_server: str | None = _setting(None, "Program that the embedded store starts. Unset: the best one found.")
    data_dir: str | None = _setting(None, "Directory of the embedded store. Unset: $XDG_DATA_HOME/dtq/default.")
    fsync: str = _setting("everysec", "When the embedded store writes its log to disk.", choices=("always", "everysec"))
    linger_s: float = _setting(
        2.0, "How long the embedded store stays up after its last user has left.", unit="seconds", low=0, high=3600
    )
    prefix: str = _setting("dtq", "First part of every key in Redis.", pattern=r"[A-Za-z0-9._:-]{1,64}")
    allow_eviction: bool = _setting(
        False, "Work with a server whose maxmemory-policy may throw tasks away; refused otherwise."
    )

    # What a producer may enqueue.
    queue: str = _setting("default", "Queue of tasks that name none.", pattern=QUEUE_NAME.pattern)
    max_payload_bytes: int = _setting(
        262_144, "Largest payload, as compact JSON.", unit="bytes", low=1, high=64 * 1024 * 1024
    )
    max_queue_depth: int = _setting(
        0, "Most tasks that may be queued or running in one queue; 0: no limit.", unit="tasks", low=0, high=_HUGE
    )
    max_scheduled: int = _setting(
        0, "Most tasks that may wait for their time in one queue; 0: no limit.", unit="tasks", low=0, high=_HUGE
    )
    enqueue_deadline_s: float = _setting(
        5.0, "How long one enqueue may take before BrokerUnavailable is raised.", unit="seconds", low=0.001, high=3600
    )

    # Attempts and their delays.
    max_attempts: int = _setting(
        5,
        "Attempts of a task that names none; never above the cap.",
        env="DTQ_DEFAULT_MAX_ATTEMPTS",
        unit="attempts",
        low=1,
        high=65_535,
    )
    max_attempts_cap: int = _setting(
        10, "Most attempts that a task may ask for.", env="DTQ_MAX_ATTEMPTS", unit="attempts", low=1, high=65_535
    )
    backoff_base_s: float = _setting(
        1.0,
        "Delay after the first failed attempt; it doubles with each further one.",
        unit="seconds",
        low=0,
        high=315_360_000,
    )
    backoff_max_s: float = _setting(
        60.0, "Longest delay between two attempts.", unit="seconds", low=0, high=315_360_000
    )
    backoff_jitter: float = _setting(0.2, "Part of the delay that chance adds or takes.", low=0, high=1)
    timeout_s: float = _setting(
        1800.0,
        "Time limit of one attempt of a task that names none; never above the cap.",
        unit="seconds",
        low=0.001,
        high=4_294_967,
    )
    timeout_cap_s: float = _setting(
        86_400.0, "Longest time limit that a task may ask for.", unit="seconds", low=0.001, high=4_294_967
    )
    dead_letter: bool = _setting(
        True, "Keep tasks that failed for good in the dead-letter stream; otherwise they end as `failed`."
    )

    otel: bool = _setting(
        False, "Record a span of each enqueue and each attempt with OpenTelemetry (needs the extra `otel`)."
    )

    # What is kept of finished tasks.
    task_retention_s: float = _setting(
        604_800.0,
        "How long a finished task's record is kept; 0: deleted at success.",
        unit="seconds",
        low=0,
        high=315_360_000,
    )
    result_max_bytes: int = _setting(
        262_144,
        "Largest result, as compact JSON; a larger one fails its task.",
        unit="bytes",
        low=1,
        high=64 * 1024 * 1024,
    )
    traceback_bytes: int = _setting(4096, "How much of a traceback is kept.", unit="bytes", low=0, high=1024 * 1024)
    recent: int = _setting(10_000, "Finished tasks listed per queue and status.", unit="tasks", low=0, high=1_000_000)
    dead_letter_max: int = _setting(
        10_000, "Dead letters kept per queue; the oldest go first.", unit="tasks", low=1, high=10_000_000
    )

    # The worker.
    children: int = _setting(
        min(1024, 1 + (os.cpu_count() or 1)),
        "Processes that run handlers. Default: one more than there are CPUs: each waits for Redis between batches.",
        unit="processes",
        low=1,
        high=1024,
    )
    # With claim_max below the 8 000 values that Lua unpacks: after an outage a child settles that much in one turn.
    concurrency: int = _setting(100, "Async handlers that one child runs at a time.", unit="tasks", low=1, high=5000)
    claim_max: int = _setting(100, "Most tasks that one turn claims.", unit="tasks", low=1, high=1000)
    claim_budget_s: float = _setting(
        0.02, "Work, measured in time, that a child claims ahead.", unit="seconds", low=0, high=60
    )
    lease_s: float = _setting(30.0, "How long a silent worker is believed alive.", unit="seconds", low=0.1, high=86_400)
    renew_s: float = _setting(
        5.0, "How often a worker renews its lease; less than half of the lease.", unit="seconds", low=0.01, high=43_200
    )
    shutdown_grace_s: float = _setting(
        25.0, "How long handlers may go on after SIGTERM.", unit="seconds", low=0, high=86_400
    )
    kill_grace_s: float = _setting(
        2.0,
        "How long an interrupted handler may take to end before its child is killed.",
        unit="seconds",
        low=0,
        high=3600,
    )
    max_tasks_per_child: int = _setting(
        0, "Replace a child after so many tasks; 0: never.", unit="tasks", low=0, high=_HUGE
    )
    max_memory_per_child_bytes: int = _setting(
        0, "Replace a child whose private memory is larger; 0: never.", unit="bytes", low=0, high=_HUGE
    )

    # The HTTP API. No DTQ_API_PORT: Kubernetes sets that for a service named dtq-api.
    api_bind: str = _setting("127.0.0.1:8000", "Where the HTTP API listens: host:port.", pattern=r"\S+:\d{1,5}")
    api_key: str | None = _setting(
        None, "Keys of the HTTP API: name:key, several with commas between. Unset: it asks for none.", secret=True
    )
    api_read: str = _setting(
        "key", "Whether requests that change nothing need a key, where keys are set.", choices=("key", "open")
    )
    api_origins: str | None = _setting(
        None, "Other sites whose pages may call the HTTP API (https://host), with commas between."
    )

    def __post_init__(self) -> None:
        problems = [problem for row in settings_table() for problem in _problems(row, getattr(self, row.name))]
        if not problems:
            problems = _cross_problems(self)
        if problems:
            raise InvalidSettings(problems)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: object) -> Settings:
        """Settings from `DTQ_*` variables (of this process unless `environment` is given) and keywords, which win.

        Keywords that are None stand for "not given". Raises InvalidSettings, listing all that is wrong: values, and
        names of variables that are nearly those of a setting.
        """
        environment = os.environ if environment is None else environment
        table = {row.name: row for row in settings_table()}
        problems = [
            f"{name}: there is no such setting; known are {', '.join(table)}" for name in overrides if name not in table
        ]
        values: dict[str, Any] = {}
        for name, row in table.items():
            override = overrides.get(name)
            text = environment.get(row.env, "")
            if override is not None:
                values[name] = _converted(row, override)
                problems += _problems(row, values[name])
            elif text.strip():
                try:
                    values[name] = _parse(row, text.strip())
                except ValueError:
                    problems.append(f"{row.env}: {text!r} is not {_expected(row)}")
                else:
                    problems += _problems(row, values[name], row.env)
        problems += _misspelled(environment, table.values())
        if problems:
            raise InvalidSettings(problems)
        return cls(**values)


def settings_table() -> tuple[SettingRow, ...]:
    """Every setting in order, for the check, the documentation and `dtq doctor`."""
    global _table
    if _table is None:
        _table = tuple(
            SettingRow(
                name=item.name,
                env=item.metadata["env"] or f"DTQ_{item.name.upper()}",
                kind=str(item.type).removesuffix(" | None"),
                optional=str(item.type).endswith("| None"),
                unit=item.metadata["unit"],
                default=None if item.default is MISSING else item.default,
                low=item.metadata["low"],
                high=item.metadata["high"],
                choices=item.metadata["choices"],
                pattern=item.metadata["pattern"],
                secret=item.metadata["secret"],
                meaning=item.metadata["meaning"],
            )
            for item in fields(Settings)
        )
    return _table


_table: tuple[SettingRow, ...] | None = None
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def _converted(row: SettingRow, value: object) -> object:
    """A keyword's value in the setting's own type, where nothing is lost by it."""
    if row.kind == "float" and type(value) is int and abs(value) <= _HUGE:
        return float(value)
    if row.kind == "str" and isinstance(value, os.PathLike):
        return str(cast("os.PathLike[str]", value))
    return value


def _parse(row: SettingRow, text: str) -> object:
    """The value of an environment variable; ValueError where it is of another type."""
    if row.kind == "bool":
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError(text)
    if row.kind == "int":
        return int(text)
    return float(text) if row.kind == "float" else text


def _expected(row: SettingRow) -> str:
    """What the setting accepts, as the end of "... is not"."""
    if row.kind == "bool":
        return "a switch; use 1 or 0"
    if row.choices:
        return f"one of {', '.join(row.choices)}"
    if row.pattern is not None:
        return f"a name; it must match {row.pattern}"
    if row.kind == "str":
        return "a text"
    number = "a whole number" if row.kind == "int" else "a number"
    unit = f" of {row.unit}" if row.unit else ""
    return f"{number}{unit} from {row.low or 0:.15g} to {row.high or 0:.15g}"


def _problems(row: SettingRow, value: object, name: str | None = None) -> list[str]:
    """Why a value is refused: one line, or nothing."""
    if value is None and row.optional:
        return []
    good = False
    if row.kind == "bool":
        good = isinstance(value, bool)
    elif row.kind == "str":
        good = isinstance(value, str) and bool(value)
        if isinstance(value, str):
            good = good and (not row.choices or value in row.choices)
            good = good and (row.pattern is None or re.fullmatch(row.pattern, value) is not None)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        good = (row.kind == "float" or isinstance(value, int)) and math.isfinite(value)
        good = good and (row.low is None or value >= row.low) and (row.high is None or value <= row.high)
    if good and row.name == "redis_url" and (wrong := url_problem(str(value))):
        return [f"{name or f'{row.name} ({row.env})'}: {wrong}"]
    if good:
        return []
    # A URL may hold a password: it is never repeated in a message.
    shown = "the value" if row.secret else repr(value)
    return [f"{name or f'{row.name} ({row.env})'}: {shown} is not {_expected(row)}"]


def url_problem(url: str) -> str | None:
    """What is wrong with a server's URL. It may hold a password, also where it is malformed: no part is repeated."""
    from urllib.parse import urlsplit

    if not url.startswith(("redis://", "rediss://", "unix://")):
        return "the URL starts with none of redis://, rediss://, unix://"
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return None if parts.path else "the URL names no socket; give unix:///path/to/socket"
        if "@" in parts.path + parts.query + parts.fragment:
            return (
                "user or password hold a character that must be percent-encoded, such as / as %2F, # as %23, ? as %3F"
            )
        if not 0 < (parts.port or 6379) < 65536 or not parts.hostname:
            return "the URL names no host; give redis://host:port/database"
    except ValueError:
        return "host or port of the URL are malformed; give redis://host:port/database"
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        return "the database of the URL is no number; give redis://host:port/0"
    return None


_OF_OTHERS = ("DTQ_DEMO_LOG", "DTQ_LOG_JSON", "DTQ_LOG_LEVEL")
"""Variables of dtq's programs that are no settings of an App."""
_OF_KUBERNETES = re.compile(r"DTQ_.*(SERVICE_(HOST|PORT.*)|PORT(_\d+_(TCP|UDP|SCTP).*)?)")
"""What Kubernetes tells every pod of a service whose name begins with `dtq`."""
_ALIKE = 0.8
"""From here on (0 to 1) a name is taken for a misspelled one; what is less alike belongs to somebody else."""


def _misspelled(environment: Mapping[str, str], table: Iterable[SettingRow]) -> list[str]:
    """Variables that nobody reads and that are nearly a setting's: the setting would stay at its default, unnoticed."""
    known = [row.env for row in table]
    problems: list[str] = []
    for name in environment:
        if not name.startswith("DTQ_") or name in known or name in _OF_OTHERS or not environment[name].strip():
            continue
        if _OF_KUBERNETES.fullmatch(name):
            continue
        likeness, nearest = max((_likeness(name, other), other) for other in known)
        if likeness >= _ALIKE:
            problems.append(f"{name}: there is no such setting; {nearest} may be meant")
    return problems


def _likeness(name: str, known: str) -> float:
    """How much a variable's name resembles a known one: as a whole, or each word of it one of the other's words."""
    from difflib import SequenceMatcher

    def ratio(left: str, right: str) -> float:
        return SequenceMatcher(None, left, right).ratio()

    words, others = name.split("_")[1:], known.split("_")[1:]
    by_word = sum(max(ratio(word, other) for other in others) for word in words) / len(words)
    return max(ratio("_".join(words), "_".join(others)), 0.95 * by_word)


def _cross_problems(settings: Settings) -> list[str]:
    """Rules between settings."""
    problems: list[str] = []
    if settings.backoff_max_s < settings.backoff_base_s:
        problems.append(
            f"backoff_max_s (DTQ_BACKOFF_MAX_S): {settings.backoff_max_s:g} is less than backoff_base_s "
            f"({settings.backoff_base_s:g}); raise it or lower the base"
        )
    if settings.renew_s >= settings.lease_s / 2:
        problems.append(
            f"renew_s (DTQ_RENEW_S): {settings.renew_s:g} is not less than half of lease_s ({settings.lease_s:g}); "
            f"renew more often or lengthen the lease"
        )
    return problems
