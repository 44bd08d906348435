"""How a worker starts: the app's template, settings, the server; each refusal is one line and an exit code."""

from __future__ import annotations

import os
import re
import secrets
import select
import socket
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.errors import BrokerUnavailable, DtqError, InvalidSettings, InvalidTask, UnsupportedServer
from dtq.logs import one_line
from dtq.options import check_queue
from dtq.release import VERSION
from dtq.settings import Settings
from dtq.worker.channel import Message
from dtq.worker.exits import CLEAN, UNAVAILABLE, USAGE
from dtq.worker.journal import LOGGER, start_logging
from dtq.worker.processes import become_subreaper, open_standard_streams
from dtq.worker.signals import Signals
from dtq.worker.supervisor import Supervisor
from dtq.worker.template_process import TemplateProcess

if TYPE_CHECKING:
    from dtq.worker.exporter import Exporter

_PATIENCE_S = 5.0
"""How long the start waits for a server that cannot be reached."""
_BASE62 = string.digits + string.ascii_letters


def start_worker(
    app_path: str,
    settings: Settings | None,
    overrides: Mapping[str, object],
    queues: Sequence[str] | None,
    children: int | None,
    burst: bool,
    preload: bool,
    log_level: int,
    metrics: tuple[str, int] | None = None,
) -> int:
    """Start a worker and stay with it to its end; the exit code."""
    open_standard_streams()  # before anything else can take their numbers
    try:
        start_logging(log_level)
    except InvalidSettings as error:
        print(one_line(f"dtq: {error}"), file=sys.stderr)
        return USAGE
    if sys.platform == "win32":
        LOGGER.error("dtq workers do not run on Windows: they fork; use Linux, or WSL")
        return USAGE
    become_subreaper()
    signals = Signals()
    descriptor = os.memfd_create("dtq-slots")
    template: TemplateProcess | None = None
    supervised = False
    broker: Broker | None = None
    exporter: Exporter | None = None
    try:

        def start_template() -> TemplateProcess:
            return TemplateProcess(app_path, descriptor, preload, log_level)

        template = start_template()
        manifest = _manifest(template, signals)
        if manifest is None or manifest["say"] == "failed":
            LOGGER.error("%s", manifest["why"] if manifest else "stopped while the app was being imported")
            return USAGE if manifest else CLEAN
        try:
            settings = _settings(settings, manifest, overrides, children)
            chosen = _queues(settings, manifest, queues)
        except (InvalidSettings, InvalidTask) as error:
            LOGGER.error("%s", error)
            return USAGE
        broker = Broker(settings)
        if not _server_answers(broker, chosen, signals):
            return UNAVAILABLE if not signals.stops else CLEAN
        # Children talk to the very server that was found, embedded or not.
        settings = replace(settings, redis_url=broker.url)
        if metrics is not None:
            from dtq.metrics import exposition
            from dtq.worker.exporter import Exporter

            exporter = Exporter(*metrics, partial(exposition, broker))
        slots = Slots(descriptor, settings.children, 1 + settings.concurrency, create=True)
        supervisor = Supervisor(
            signals,
            template,
            start_template,
            slots,
            broker,
            settings,
            chosen,
            new_worker_id,
            _facts(app_path, settings, chosen),
            burst,
        )
        supervised = True
        return supervisor.run()
    except (BrokerUnavailable, UnsupportedServer) as error:
        LOGGER.error("%s", error)
        return UNAVAILABLE
    except InvalidSettings as error:
        LOGGER.error("%s", error)
        return USAGE
    finally:
        if exporter is not None:
            exporter.close()
        if template is not None and not supervised:
            template.end()
        if broker is not None:
            broker.close()
        os.close(descriptor)
        signals.restore()


def new_worker_id() -> str:
    """Host name and a random part: never the same twice, also on one host (protocol 8)."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:48] or "host"
    return f"{host}-{''.join(secrets.choice(_BASE62) for _ in range(8))}"


def _manifest(template: TemplateProcess, signals: Signals) -> Message | None:
    """What the template says of the app; None if the worker is to stop meanwhile."""
    poll = select.poll()
    for watched in (template.channel, template.pidfd, signals):
        poll.register(watched, select.POLLIN)
    while not signals.stops:
        message = template.receive()
        if message is not None:
            return message
        ready = {found for found, _ in poll.poll()}
        if template.pidfd in ready:
            return template.receive() or {"say": "failed", "why": "the process that imports the app died; see above"}
        signals.clear()
    return None


def _settings(
    given: Settings | None, manifest: Message, overrides: Mapping[str, object], children: int | None
) -> Settings:
    settings = given or Settings(**manifest["settings"])
    changes: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    unknown = [name for name in changes if name not in Settings.__dataclass_fields__]
    if unknown:
        raise InvalidSettings([f"{name}: there is no such setting" for name in unknown])
    if children is not None:
        changes["children"] = children
    return replace(settings, **changes)


def _queues(settings: Settings, manifest: Message, queues: Sequence[str] | None) -> list[str]:
    if queues is not None:
        if not queues:  # a variable of a script that was empty must not become "all"
            raise InvalidTask("queues", "none is named; name one, or leave the option out for those of the app's tasks")
        return [check_queue(queue) for queue in dict.fromkeys(queues)]
    return list(dict.fromkeys([*(task["queue"] for task in manifest["tasks"]), settings.queue]))


def _server_answers(broker: Broker, queues: list[str], signals: Signals) -> bool:
    """Check the server and prepare the queues, with some patience; False, and one line, if that cannot be."""
    deadline = SYSTEM.monotonic() + _PATIENCE_S
    told = False
    while True:
        try:
            server = broker.check_server()
            if not server.policy:
                LOGGER.warning("%s does not tell its maxmemory-policy; make sure that it is noeviction", server.place)
            for queue in queues:
                broker.prepare_queue(queue)
            return True
        except BrokerUnavailable as error:
            if signals.stops or SYSTEM.monotonic() >= deadline:
                LOGGER.error("%s", error)
                return False
            if not told:
                told = True
                LOGGER.warning("%s; trying for %g s", error, _PATIENCE_S)
            select.select([signals], [], [], 0.25)
            signals.clear()
        except DtqError as error:
            LOGGER.error("%s", error)
            return False


def _facts(app_path: str, settings: Settings, queues: list[str]) -> dict[str, Any]:
    """What the worker tells of itself with its lease."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "app": app_path,
        "children": settings.children,
        "queues": queues,
        "started_ms": SYSTEM.now_ms(),
        "version": VERSION,
        "python": sys.version.split()[0],
    }
