"""The table of settings: where values come from, their bounds, and one error for all that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtq.errors import InvalidSettings
from dtq.settings import Settings, settings_table


def test_defaults_are_in_bounds_and_documented() -> None:
    settings = Settings()
    for row in settings_table():
        assert getattr(settings, row.name) == row.default
        assert row.env.startswith("DTQ_")
        assert row.meaning.endswith(".")
        assert row.kind in ("int", "float", "str", "bool")
    environment_names = [row.env for row in settings_table()]
    assert len(set(environment_names)) == len(environment_names)


def test_by_default_there_is_one_child_more_than_cpus() -> None:
    assert Settings().children == min(1024, 1 + (os.cpu_count() or 1))


def test_a_keyword_wins_over_the_environment_over_the_default() -> None:
    environment = {"DTQ_LEASE_S": "20", "DTQ_RENEW_S": "4", "DTQ_DEAD_LETTER": "off", "DTQ_MAX_ATTEMPTS": " 7 "}
    settings = Settings.from_environment(environment, renew_s=3, queue=None, data_dir=Path("/tmp/x"))
    assert (settings.lease_s, settings.renew_s, settings.dead_letter) == (20.0, 3.0, False)
    assert (settings.max_attempts_cap, settings.queue, settings.data_dir) == (7, "default", "/tmp/x")


def test_the_process_environment_is_the_usual_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTQ_QUEUE", "mail")
    assert Settings.from_environment().queue == "mail"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    environment = {"DTQ_LEASE_S": "soon", "DTQ_CHILDREN": "0", "DTQ_FSYNC": "never", "DTQ_DEAD_LETTER": "maybe"}
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environment(environment, queue="a/b", colour="red")
    assert caught.value.problems == (
        caught.value.problems[0],
        "DTQ_FSYNC: 'never' is not one of always, everysec",
        "queue (DTQ_QUEUE): 'a/b' is not a name; it must match [A-Za-z0-9._-]{1,64}",
        "DTQ_DEAD_LETTER: 'maybe' is not a switch; use 1 or 0",
        "DTQ_CHILDREN: 0 is not a whole number of processes from 1 to 1024",
        "DTQ_LEASE_S: 'soon' is not a number of seconds from 0.1 to 86400",
    )
    assert caught.value.problems[0].startswith("colour: there is no such setting; known are redis_url, ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        ({"renew_s": 15.0}, "renew_s (DTQ_RENEW_S): 15 is not less than half of lease_s (30); renew more often or "
                            "lengthen the lease"),
        ({"backoff_base_s": 90.0}, "backoff_max_s (DTQ_BACKOFF_MAX_S): 60 is less than backoff_base_s (90); "
            "raise it or "
                                   "lower the base"),
        ({"lease_s": float("inf")}, "lease_s (DTQ_LEASE_S): inf is not a number of seconds from 0.1 to 86400"),
        ({"children": 2.5}, "children (DTQ_CHILDREN): 2.5 is not a whole number of processes from 1 to 1024"),
        ({"children": True}, "children (DTQ_CHILDREN): True is not a whole number of processes from 1 to 1024"),
        ({"allow_eviction": 1}, "allow_eviction (DTQ_ALLOW_EVICTION): 1 is not a switch; use 1 or 0"),
    ],
)  # fmt: skip
def test_bounds_and_rules_between_settings(keywords: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environment({}, **keywords)
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://S3CRET@host", "the URL starts with none of redis://, rediss://, unix://"),
        ("redis://u:p@S3CRET:/@host:1/0", "user or password hold a character that must be percent-encoded"),
        ("redis://u:S3CRET/x@host:1/0", "user or password hold a character that must be percent-encoded"),
        ("redis://u:S3CRET#x@host", "user or password hold a character that must be percent-encoded"),
        ("redis://u:S3CRET?x@host", "user or password hold a character that must be percent-encoded"),
        ("redis://u:S3CRET@[bad", "host or port of the URL are malformed"),
        ("redis://u:S3CRET@host:port", "host or port of the URL are malformed"),
        ("redis://u:S3CRET@host:70000", "host or port of the URL are malformed"),
        ("redis://u:S3CRET@/0", "the URL names no host"),
        ("redis://u:S3CRET@host/zero", "the database of the URL is no number"),
        ("unix://", "the URL names no socket"),
    ],
)
def test_a_malformed_url_is_refused_without_a_part_of_it(url: str, problem: str) -> None:
    """What looks like the host may be the rest of a password."""
    for make in (lambda: Settings(redis_url=url), lambda: Settings.from_environment({"DTQ_REDIS_URL": url})):
        with pytest.raises(InvalidSettings) as caught:
            make()
        assert problem in str(caught.value)
        assert "DTQ_REDIS_URL" in str(caught.value)
        assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host:6380/15",
        "rediss://svc%3A1:p%40ss%3A%2F%3F%23%2525@host:1/0?ssl_cert_reqs=none",
        "redis://:p@ss@host",
        "redis://[::1]:6379/0",
        "redis://host/0?protocol=3",
        "unix:///tmp/a@b/s?db=1",
    ],
)
def test_usable_urls_are_accepted(url: str) -> None:
    """Odd ones, too."""
    assert Settings(redis_url=url).redis_url == url


def test_a_url_is_never_repeated_in_a_message() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings(redis_url="")
    assert str(caught.value) == "redis_url (DTQ_REDIS_URL): the value is not a text"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DTQ_RETENTON", "DTQ_TASK_RETENTION_S"),
        ("DTQ_RETENTION", "DTQ_TASK_RETENTION_S"),
        ("DTQ_URL", "DTQ_REDIS_URL"),
        ("DTQ_REDISURL", "DTQ_REDIS_URL"),
        ("DTQ_CHILDRN", "DTQ_CHILDREN"),
        ("DTQ_LEASE", "DTQ_LEASE_S"),
        ("DTQ_LEASE_MS", "DTQ_LEASE_S"),
        ("DTQ_MAX_PAYLOAD", "DTQ_MAX_PAYLOAD_BYTES"),
        ("DTQ_SHUTDOWN_GRACE", "DTQ_SHUTDOWN_GRACE_S"),
    ],
)
def test_a_misspelled_variable_is_refused(name: str, meant: str) -> None:
    """It would change nothing, and nobody would notice (spec §10); its value is not shown: it may be a URL."""
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environment({name: "S3CRET"})
    assert caught.value.problems == (f"{name}: there is no such setting; {meant} may be meant",)


@pytest.mark.parametrize(
    "name",
    [
        "DTQ_LOG_JSON", "DTQ_API_PORT", "DTQ_API_SERVICE_HOST", "DTQ_DEMO_LOG", "DTQ_MODEL_EXAMPLES", "DTQ_SECRET",
        "DTQ_", "DTQ_TEST_REDIS_URL",
        "DTQ_SERVICE_HOST", "DTQ_PORT_6379_TCP_ADDR", "DTQ_REDIS_SERVICE_PORT", "DTQ_REDIS_PORT", "XDTQ_LEASE",
        "DTQ_REDIS_PORT_6379_TCP",
    ],
)  # fmt: skip
def test_variables_of_others_are_left_alone(name: str) -> None:
    """Those of other programs, and what Kubernetes gives a pod beside a service called dtq or dtq-redis."""
    Settings.from_environment({name: "tcp://10.0.0.1:6379"})
    Settings.from_environment({"DTQ_LEASE": " "})


def test_secrets_are_shown_nowhere() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environment({}, api_key=b"S3CRET", redis_url="S3CRET")
    assert "S3CRET" not in str(caught.value)
    assert "S3CRET" not in repr(Settings.from_environment({}, api_key="S3CRET", redis_url="redis://:S3CRET@h/0"))
