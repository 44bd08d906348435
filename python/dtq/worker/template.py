"""The template: imports the app once and forks children on request, in milliseconds and with shared memory.

Executed by the supervisor as `python -m dtq.worker.template SOCKET SLOTS`. It has one thread, no connection and no
event loop, so forking it is safe. Each child is forked twice: its parent ends at once, and the supervisor, being the
subreaper, becomes its parent and learns of its death directly.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from types import FrameType

from dtq._core import Slots
from dtq.app import App, load_app
from dtq.errors import DtqError
from dtq.settings import Settings
from dtq.worker.channel import Channel, ChannelClosed, Message
from dtq.worker.journal import LOGGER, start_logging
from dtq.worker.processes import cause_of_death, die_with_parent, name_process


def main(arguments: list[str]) -> int:
    """Serve the supervisor until it is gone."""
    channel = Channel.from_descriptor(int(arguments[0]))
    slots_descriptor = int(arguments[1])
    for descriptor in (channel.fileno(), slots_descriptor):
        os.set_inheritable(descriptor, False)  # not for programs that handlers start
    try:
        boot = channel.receive(wait=True) or {}
    except ChannelClosed:  # the supervisor was killed meanwhile
        return 1
    supervisor = int(boot["supervisor"])
    die_with_parent()
    if os.getppid() != supervisor:
        return 1
    name_process("dtq-template")
    ignore_stop_signals()
    start_logging(boot["log_level"])
    sys.path[:] = boot["path"]
    _import_for_children()
    app: App | None = None
    if boot["preload"]:
        app = _import(boot["app"], channel)
        if app is None:
            return 2
        _tell_of_threads()
    else:
        _manifest_from_a_probe(boot["app"], channel)
    gc.collect()
    gc.freeze()  # the collector of a child never writes to what it shares with the others
    plan: Message = {}
    try:
        while (message := channel.receive(wait=True)) is not None:
            if message["say"] == "configure":
                plan = message
            elif message["say"] == "fork":
                _fork_child(message, plan, app, boot, channel, slots_descriptor)
    except ChannelClosed:
        return 0
    return 0


def ignore_stop_signals() -> None:
    """Stopping is the supervisor's decision, even when a signal reaches the whole group.

    A handler rather than SIG_IGN, which programs started by task handlers would inherit.
    """

    def ignore(signum: int, frame: FrameType | None) -> None:
        """Do nothing."""

    # SIGUSR1 may reach a child before it listens: it finds the message that came with it, but must not die of it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, ignore)


def _import_for_children() -> None:
    """What every child would import for itself, at the price of 8 MB each and of its start time."""
    for name in ("dtq.worker.nursery", "redis", "hiredis", "uvloop"):
        importlib.import_module(name)


def _import(app_path: str, channel: Channel) -> App | None:
    """Import the app and send its manifest; None, with the reason sent, if there is no usable app."""
    try:
        app = load_app(app_path)
        manifest = manifest_of(app_path, app)
    except DtqError as error:
        channel.send({"say": "failed", "why": str(error)})
        return None
    except BaseException as error:  # no signal: those are ignored here, so the app itself raised it
        what = f"raised {type(error).__name__}"
        if isinstance(error, SystemExit):
            what = f"ended the process (sys.exit({error.code!r}))"
        channel.send({"say": "failed", "why": f"{app_path}: importing it {what}"})
        return None
    channel.send(manifest)
    return app


def manifest_of(app_path: str, app: App) -> Message:
    """What the supervisor has to know of the app. DtqError if it has no tasks."""
    tasks = [
        {"name": handler.name, "kind": handler.kind, "queue": handler.options.queue or app.settings.queue}
        for handler in app.registry
    ]
    if not tasks:
        raise DtqError(
            f"{app_path}: the app has no tasks; decorate functions with @app.task in a module that this one imports"
        )
    settings = {name: getattr(app.settings, name) for name in app.settings.__dataclass_fields__}
    return {"say": "manifest", "tasks": tasks, "settings": settings}


def _manifest_from_a_probe(app_path: str, channel: Channel) -> None:
    """Without preloading, a process of its own imports the app just to describe it."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if status:  # it died before it could tell
            channel.send(
                {"say": "failed", "why": f"{app_path}: importing it ended the process ({cause_of_death(status)})"}
            )
        return
    _import(app_path, channel)
    os._exit(0)


def _tell_of_threads() -> None:
    """Threads do not survive a fork: say so once, by name."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        LOGGER.warning(
            "importing the app started %d thread(s) that children will not have: %s; start them in handlers, or use "
            "--no-preload",
            len(others),
            ", ".join(others),
        )


def _fork_child(
    message: Message, plan: Message, app: App | None, boot: Message, channel: Channel, slots_descriptor: int
) -> None:
    """Fork a process that forks the child and ends."""
    descriptor: int = message["descriptors"][0]
    pid = os.fork()
    if pid:
        os.close(descriptor)
        os.waitpid(pid, 0)
        return
    try:
        if os.fork():
            os._exit(0)
        channel.close()
        code = _child(descriptor, message, plan, app, boot, slots_descriptor)
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    os._exit(code)


def _child(
    descriptor: int, message: Message, plan: Message, app: App | None, boot: Message, slots_descriptor: int
) -> int:
    """The forked child, from its first breath to its exit code."""
    from dtq.worker.nursery import Nursery

    nursery = Nursery(Channel.from_descriptor(descriptor), int(boot["supervisor"]))
    if not nursery.settle_in():
        return 1
    if app is None:
        try:
            app = load_app(boot["app"])
        except DtqError as error:
            nursery.failed(str(error))
            return 1
    slots = Slots(slots_descriptor, plan["children"], plan["places"])
    return nursery.work(
        app.registry,
        Settings(**plan["settings"]),
        slots,
        plan["worker_id"],
        plan["queues"],
        message["number"],
        message["incarnation"],
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
