"""`dtq demo`: the census of the standard library, from the first task to the last line of the report."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtq.cli.connection import AsJson, RedisUrl, settings, use_redis_url
from dtq.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE
from dtq.cli.manual import Manual, exits
from dtq.cli.output import print_error, print_json

if TYPE_CHECKING:
    from dtq.cli.demo_progress import Display
    from dtq.demo.batch import Batch
    from dtq.demo.pool import Pool

_LOOK_EVERY_S = 0.1
_OUTAGE_S = 60.0
_MOST_STARTS = 6
_EXPECTED_ERRORS = {"SyntaxError", "IndentationError", "TabError", "UnicodeDecodeError", "ValueError"}


MANUAL = Manual(
    ["dtq demo", "dtq demo --limit 100 --children 2", "dtq demo --plain --json"],
    exits(
        "every file was counted or does not parse",
        failed="a task failed for another reason",
        interrupted="interrupted; the next start goes on where it was",
    ),
    {
        "files": "how many",
        "succeeded": "those that were counted",
        "failed": "those that were not",
        "resumed": "true where a run that was interrupted went on",
        "children": "processes that parsed",
        "seconds": "how long this command took for them",
        "finished_now": "tasks that ended meanwhile",
        "tasks_per_second": "the rate of it",
        "totals": "lines, functions, classes, imports and bytes of all files",
        "top": "the files with most lines, functions and nesting",
        "enqueue_to_finish_seconds": "percentiles",
        "run_seconds": "percentiles",
        "dead_letters": "what failed: file, status, error_class, error, attempts, task_id",
    },
)


def demo(
    children: Annotated[
        int | None, typer.Option(help="Processes that parse; default one more than CPUs.", min=1)
    ] = None,
    limit: Annotated[int | None, typer.Option(help="So many files of the library, and six broken ones.", min=0)] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live bar.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Give up an open run and begin a new one.")] = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Count what is in every file of the Python standard library, one task per file.

    Ctrl-C stops it; the next start goes on where it was.
    """
    use_redis_url(redis_url)
    chosen = settings(children=children)
    # A worker that is killed is missed for a lease: short here, so that a demonstration of it does not take long.
    if "DTQ_LEASE_S" not in os.environ and "DTQ_RENEW_S" not in os.environ:
        os.environ.update({"DTQ_LEASE_S": "5", "DTQ_RENEW_S": "1"})

    from dtq.cli.demo_progress import display
    from dtq.cli.demo_report import Session, print_report, summary
    from dtq.clock import SYSTEM
    from dtq.demo import census
    from dtq.demo.pool import Pool
    from dtq.demo.run_file import finish_run
    from dtq.embedded.directory import default_directory, prepare_directory

    directory = prepare_directory(Path(chosen.data_dir) if chosen.data_dir else default_directory())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with census.app:
        batch: Batch | None = None
        pool = Pool(chosen.children, os.environ, directory / "census-worker.log")
        try:
            with display(plain or as_json) as shown:
                batch = _open_batch(directory, limit, fresh, shown)
                batch.refresh()
                before, began = batch.done, SYSTEM.monotonic()
                _follow(batch, pool, shown)
                session = Session(SYSTEM.monotonic() - began, batch.done - before, chosen.children, batch.run.resumed)
            pool.wait(10.0)
            pool.stop()
            report = summary(list(batch.tasks()), session)
        except KeyboardInterrupt:
            pool.stop()
            standing = f" at {batch.done} of {batch.total}" if batch is not None else ""
            print_error(f"interrupted{standing}; run again to resume")
            return INTERRUPTED
        finally:
            pool.stop()
        finish_run(directory, batch.run)
    if as_json:
        print_json(report)
    else:
        print_report(report)
    return DONE if _as_expected(report) else FAILED


def _open_batch(directory: Path, limit: int | None, fresh: bool, shown: Display) -> Batch:
    """Return the open run of these files, or a new one; an open run of other files is given up."""
    from dtq.demo import census
    from dtq.demo.batch import Batch
    from dtq.demo.files import source_files
    from dtq.demo.run_file import load_run, new_run, save_run

    files = source_files(limit)
    broker = census.app.broker
    run = load_run(directory)
    if run is not None and (fresh or list(run.files) != files):
        given_up = Batch(broker, run).cancel_open()
        shown.note(f"gave up an open run of {len(run.files)} files ({given_up} tasks cancelled)")
        run = None
    if run is None:
        run = new_run(files)
        save_run(directory, run)
    batch = Batch(broker, run)
    if run.resumed:
        shown.note(f"resuming a run of {batch.total} files")
    return batch


def _follow(batch: Batch, pool: Pool, shown: Display) -> None:
    """Keep a worker going and show the progress until every task has ended."""
    from dtq.clock import SYSTEM
    from dtq.errors import BrokerUnavailable

    starts = 0
    lost_since: float | None = None
    while True:
        shown.show(batch.done, batch.failed, batch.total)
        if batch.done == batch.total:
            return
        if (starts == 0) or pool.exit_code is not None:
            starts += 1
            _mind_the_end(pool, starts, shown)
            pool.start()
        SYSTEM.sleep(_LOOK_EVERY_S)
        try:
            sent = batch.refresh()
        except BrokerUnavailable as error:
            if lost_since is None:
                lost_since = SYSTEM.monotonic()
                shown.note("the store does not answer; waiting for it")
            elif SYSTEM.monotonic() - lost_since > _OUTAGE_S:
                raise BrokerUnavailable(f"{error}; run again to resume") from error
            with suppress(BrokerUnavailable):
                batch.broker.mend_store()
            continue
        if lost_since is not None:
            lost = f"; {sent} tasks that were lost with it are sent anew" if sent else ""
            shown.note(f"the store answers again{lost}")
            lost_since = None


def _mind_the_end(pool: Pool, starts: int, shown: Display) -> None:
    """Say how the worker before ended, if one was started; raise when starting it again makes no sense."""
    from dtq.errors import DtqError

    code = pool.exit_code
    if code is None or (code == DONE and starts <= _MOST_STARTS):
        return
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with code {code}: {pool.last_words()}"
    if starts > _MOST_STARTS or code in (FAILED, USAGE):
        raise DtqError(f"the worker {how}")
    shown.note(f"the worker {how}; starting another")


def _as_expected(report: dict[str, Any]) -> bool:
    return all(row["error_class"] in _EXPECTED_ERRORS for row in report["dead_letters"])
