"""The command line as a whole: its commands, and how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dtq.cli import (
    api,
    audit,
    demo,
    dlq,
    doctor,
    enqueue,
    events,
    queue,
    status,
    task,
    task_cancel,
    task_list,
    top,
    worker,
    workers,
)
from dtq.cli.connection import RedisUrl, use_redis_url
from dtq.cli.exit_codes import CODES_HELP, DONE, FAILED, INTERRUPTED, USAGE, code_of
from dtq.cli.manual import command
from dtq.cli.output import print_error
from dtq.release import VERSION

program = typer.Typer(
    name="dtq",
    help=f"dtq: a distributed task queue for Python on Redis Streams.\n\n{CODES_HELP}",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dtq {VERSION}")
        raise typer.Exit


@program.callback()
def _common(
    context: typer.Context,
    redis_url: RedisUrl = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    context.obj = redis_url
    use_redis_url(redis_url)


command(program, "worker", worker.MANUAL)(worker.worker)
command(program, "api", api.API)(api.api)
command(program, "dashboard", api.DASHBOARD)(api.dashboard)
command(program, "enqueue", enqueue.MANUAL)(enqueue.enqueue)
command(task.commands, "task list", task_list.MANUAL)(task_list.list_)
command(task.commands, "task cancel", task_cancel.MANUAL)(task_cancel.cancel)
program.add_typer(task.commands, name="task")
program.add_typer(queue.commands, name="queue")
program.add_typer(dlq.commands, name="dlq")
command(program, "workers", workers.MANUAL)(workers.workers)
command(program, "status", status.MANUAL)(status.status)
command(program, "top", top.MANUAL)(top.top)
command(program, "doctor", doctor.MANUAL)(doctor.doctor)
command(program, "events", events.MANUAL)(events.events)
command(program, "audit", audit.MANUAL)(audit.audit)
command(program, "demo", demo.MANUAL)(demo.demo)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every error is one line on stderr and an exit code, never a traceback."""
    _escape_what_stdout_cannot_show()
    command = typer.main.get_command(program)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        answer: object = command.main(words or ["--help"], prog_name="dtq", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return FAILED
    except Exception as error:
        return _report(error)
    return answer if isinstance(answer, int) else DONE


def _report(error: Exception) -> int:
    """Print the line for an error and return its exit code."""
    usage = getattr(error, "format_message", None)
    if callable(usage):  # what Typer raises for wrong arguments; its class has moved between versions
        where = getattr(getattr(error, "ctx", None), "command_path", "dtq")
        print_error(f"{str(usage()).rstrip(chr(46))} (see `{where} --help`)")
        return USAGE
    if isinstance(error, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED
    code = code_of(error)
    from dtq.errors import DtqError, StoreError

    if isinstance(error, (DtqError, ValueError)):
        # That no server was found is told with what to install, a line each.
        print_error(str(error), keep_lines=isinstance(error, StoreError))
    else:
        print_error(f"{type(error).__name__}: {error}")
    return code


def _escape_what_stdout_cannot_show() -> None:
    """A name or an "…" that the encoding of stdout lacks is no reason to end in the middle of a table."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # it is a file, not what a program put there to read it
        reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    """The reader of a pipe has left: keep the interpreter from complaining about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
