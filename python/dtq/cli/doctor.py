"""`dtq doctor`: can work be done here, and if not, what to mend."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtq.cli.connection import URL_VARIABLE, AsJson, RedisUrl, settings, use_redis_url
from dtq.cli.exit_codes import DONE, FAILED, UNAVAILABLE
from dtq.cli.manual import Manual, exits, within
from dtq.cli.output import print_json, print_table, without_secrets

if TYPE_CHECKING:
    from dtq.broker import Broker
    from dtq.settings import Settings

SERVER_TIME_S = 1.2
"""How long each question to a server may take: with the start of Python, one that hangs is told of within 2 s."""
EMBEDDED_TIME_S = 10.0
APPLICATION_TIME_S = 30.0
_SKEW_WARNING_MS = 2000
_MOST_NAMED = 10

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. mend: what to do about it, "" when it is ok."""

    name: str
    state: State
    detail: str
    mend: str = ""


MANUAL = Manual(
    ["dtq doctor", "dtq doctor my_project.tasks:app --json"],
    exits("nothing failed", failed="a check failed", unavailable="the check that failed is the server"),
    {
        "ok": "true where nothing failed",
        "checks": "what was looked at",
        **within(
            "checks",
            {
                "name": "settings, server, policy, clock, scripts, writes, queues, workers or app",
                "state": "ok, warn or fail",
                "detail": "what was found",
                "mend": "what to do about it; empty where it is ok",
            },
        ),
    },
)


def doctor(
    application: Annotated[
        str | None, typer.Argument(help="Also import this application.", metavar="[MODULE:APP]", show_default=False)
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Check server, version, eviction policy, clock, scripts, queues, workers and, if named, the application."""
    use_redis_url(redis_url)
    importing = _start_import(application) if application is not None else None
    checks = _examine()
    if importing is not None:
        checks.append(_import_check(importing))
    failed = [check.name for check in checks if check.state == "fail"]
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        print_table("", ["check", "state", "found", "mend"], [[c.name, c.state, c.detail, c.mend] for c in checks])
    if "server" in failed:
        return UNAVAILABLE
    return FAILED if failed else DONE


def _examine() -> list[Check]:
    """Ask the server in a thread of its own, so that one that never answers cannot hold the command up."""
    from dtq.errors import InvalidSettings

    try:
        chosen = settings()
    except InvalidSettings as error:
        return [Check("settings", "fail", without_secrets(str(error)), "correct or unset the variables named")]
    found = [Check("settings", "ok", _settings_in_use())]
    embedded = chosen.redis_url is None
    limit = EMBEDDED_TIME_S if embedded else SERVER_TIME_S
    examination = _Examination(chosen, found)
    thread = threading.Thread(target=examination.run, daemon=True)
    thread.start()
    asked = ""
    while thread.is_alive() and asked != examination.asking:
        asked = examination.asking
        thread.join(limit)
    answers = list(found)
    if thread.is_alive():
        answers.append(_failure(asked, f"no answer within {limit:g} s"))
    return answers


class _Examination:
    """The questions to the server, in order; `asking` names the one that is open."""

    def __init__(self, chosen: Settings, found: list[Check]) -> None:
        self._chosen = chosen
        self._found = found
        self._with_waiting: list[str] = []
        self.asking = "server"

    def run(self) -> None:
        """Append one check after the other; a failed one ends it, as the rest would only fail again."""
        from dtq.broker import Broker
        from dtq.errors import DtqError

        # The policy is a check of its own here, and the questions share a time that is shorter than an enqueue's.
        broker = Broker(replace(self._chosen, allow_eviction=True, enqueue_deadline_s=1.0))
        questions: tuple[tuple[str, Callable[[Broker], Iterator[Check]]], ...] = (
            ("server", self._server),
            ("scripts", self._scripts),
            ("writes", self._writes),
            ("queues", self._queues),
            ("workers", self._workers),
        )
        for name, question in questions:
            self.asking = name
            try:
                self._found.extend(question(broker))
            except DtqError as error:
                place = "" if self.asking == name else f"{self.asking}: "
                self._found.append(_failure(name, place + without_secrets(str(error))))
                if name == "server":
                    return
        broker.close()

    def _server(self, broker: Broker) -> Iterator[Check]:
        server = broker.check_server()
        kind = "embedded" if self._chosen.redis_url is None else "given"
        yield Check("server", "ok", f"{server.name} {server.version} at {server.place} ({kind})")
        if not server.policy:
            yield Check("policy", "warn", "maxmemory-policy cannot be read here", "make sure that it is noeviction")
        elif server.policy == "noeviction":
            yield Check("policy", "ok", "noeviction")
        else:
            yield Check(
                "policy",
                "warn" if self._chosen.allow_eviction else "fail",
                f"maxmemory-policy is {server.policy}: the server may throw tasks away when its memory is full",
                "set maxmemory-policy noeviction",
            )
        skew = server.clock_skew_ms
        if abs(skew) > _SKEW_WARNING_MS:
            yield Check(
                "clock",
                "warn",
                f"this host and the server differ by {skew / 1000:.1f} s; due times follow the server",
                "synchronise the clocks (NTP)",
            )
        else:
            yield Check("clock", "ok", f"differs by {skew} ms")

    def _scripts(self, broker: Broker) -> Iterator[Check]:
        broker.cancel(self._chosen.queue, "dtq-doctor")  # no such task: everything is looked up, nothing changes
        yield Check("scripts", "ok", "loaded and answered")

    def _writes(self, broker: Broker) -> Iterator[Check]:
        worker_id = f"doctor-{os.getpid()}"
        broker.renew(worker_id, {"doctor": True}, 0)
        broker.leave(worker_id)
        yield Check("writes", "ok", "a lease was written and removed")

    def _queues(self, broker: Broker) -> Iterator[Check]:
        names = broker.queues()
        for name in names:
            self.asking = f"queue {name}"
            if broker.queue_counts(name).waiting:
                self._with_waiting.append(name)
        yield Check("queues", "ok", f"{len(names)} readable" if names else "none yet")

    def _workers(self, broker: Broker) -> Iterator[Check]:
        workers = broker.workers()
        forgotten = [
            queue
            for queue in self._with_waiting
            if not any(isinstance(told := worker.facts.get("queues"), list) and queue in told for worker in workers)
        ]
        if not workers:
            yield Check("workers", "warn", "none is alive; tasks wait", "dtq worker module:app")
        elif forgotten:
            yield Check(
                "workers",
                "warn",
                f"{len(workers)} alive; none works on {_some(forgotten)}, where tasks wait",
                f"dtq worker module:app --queues {forgotten[0]}",
            )
        else:
            yield Check("workers", "ok", f"{len(workers)} alive")


_MENDS = {
    "server": f"start it, or correct {URL_VARIABLE}; unset it to use the embedded store",
    "scripts": "allow EVALSHA and SCRIPT LOAD for this user",
    "writes": "allow this user to write every key under the prefix; see whether the server is a read-only replica",
    "queues": "look at the key named; something else has written it",
    "workers": "look at the key named; something else has written it",
}


def _failure(name: str, detail: str) -> Check:
    return Check(name, "fail", detail, _MENDS.get(name, _MENDS["queues"]))


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")


def _settings_in_use() -> str:
    from dtq.settings import settings_table

    named = [row.env for row in settings_table() if os.environ.get(row.env, "").strip()]
    return f"from the environment: {', '.join(named)}" if named else "all defaults"


_IMPORT = """
import sys
from dtq.app import load_app
try:
    names = sorted(handler.name for handler in load_app(sys.argv[1]).registry)
except Exception as error:
    sys.stderr.write(f"\\n{error}")
    sys.exit(1)
sys.stderr.write("\\n" + " ".join(names))
"""


def _start_import(application: str) -> subprocess.Popen[bytes]:
    """Import the application in a process of its own: what it prints, starts or breaks stays there."""
    return subprocess.Popen(
        [sys.executable, "-c", _IMPORT, application],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _import_check(importing: subprocess.Popen[bytes]) -> Check:
    try:
        _, answer = importing.communicate(timeout=APPLICATION_TIME_S)
    except subprocess.TimeoutExpired:
        importing.kill()
        importing.wait()
        return Check("app", "fail", f"not imported within {APPLICATION_TIME_S:g} s", "see what it does when imported")
    last = answer.decode("utf-8", "replace").rpartition("\n")[2].strip()
    if importing.returncode != 0:
        return Check("app", "fail", last or f"the import ended with code {importing.returncode}", "make it importable")
    names = last.split()
    if not names:
        return Check("app", "fail", "it has no tasks", "register some with @app.task")
    return Check("app", "ok", f"{len(names)} tasks: {_some(names)}")
