"""`dtq dlq`: list dead letters, look at one, queue them again, or throw them away."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import typer

from dtq.bodies import dead_letter_body, task_body
from dtq.cli.confirm import Yes, confirmed, whole_steps
from dtq.cli.connection import AsJson, RedisUrl, complete_queue, producer, use_redis_url
from dtq.cli.exit_codes import DONE, FAILED, NOT_FOUND, REFUSED, code_of
from dtq.cli.manual import TASK_FIELDS, Manual, command, exits, within
from dtq.cli.output import print_error, print_fields, print_json, print_line, print_table
from dtq.cli.payload import read_payload, read_time
from dtq.cli.progress import followed
from dtq.cli.queue import unknown
from dtq.cli.task import WHY_FIELDS, print_task, why
from dtq.dead_letters import DeadLetter, DeadLetterFilter, check_entry, is_entry, read_condition
from dtq.errors import DtqError

commands = typer.Typer(help="Dead letters: list, show, requeue, discard, purge.", no_args_is_help=False)

Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="Their queue; default DTQ_QUEUE, else default.", autocompletion=complete_queue),
]
Names = Annotated[list[str] | None, typer.Argument(help="Ids of tasks, or of entries.", metavar="ID")]
TaskType = Annotated[str | None, typer.Option("--type", help="Only this task type.", metavar="TASK_TYPE")]
ErrorClass = Annotated[str | None, typer.Option(help="Only this class of the last error.")]
OlderThan = Annotated[float | None, typer.Option(help="Dead for so many seconds at least.", metavar="SECONDS")]
NewerThan = Annotated[float | None, typer.Option(help="Dead for so many seconds at most.", metavar="SECONDS")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Payload path and the value there, as JSON or a bare word; may be repeated.", metavar="PATH=VALUE"
    ),
]
All = Annotated[bool, typer.Option("--all", help="All that the filters accept, or all there are.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

_LETTER_FIELDS = {
    "entry": "its id in the dead-letter stream",
    "queue": "its queue",
    "task_id": "the task; empty for bytes that were no task",
    "died_at": "when, by the server's clock",
    "task": "the task as it died, null for bytes that were no task",
    "raw": "those bytes, at most 1 000; null where there is a task",
    **within("task", TASK_FIELDS),
}


def _outcome_fields(done: str) -> dict[str, str]:
    return {
        done: "how many were, or would be",
        "refused": "how many were not",
        "dry_run": "true where nothing was changed",
        "outcomes": "one for each",
        "outcomes.outcome": f"{done} or refused",
        "outcomes.task_id": "the task; as it was named where it is not known; empty for bytes that were no task",
        "outcomes.entry": "its entry in the dead-letter stream, or null where it is not known",
        **within("outcomes", WHY_FIELDS),
    }


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one dead letter; entry: None where it is not known."""

    task_id: str
    entry: str | None = None
    error: DtqError | None = None

    @classmethod
    def of(cls, letter: DeadLetter, error: DtqError | None = None) -> _Outcome:
        """Of one that was read."""
        return cls(letter.task_id, letter.entry, error)

    @classmethod
    def refused(cls, name: str, error: DtqError) -> _Outcome:
        """Of one that was named, by its task or its entry."""
        return cls("", name, error) if is_entry(name) else cls(name, None, error)


@command(
    commands,
    "dlq list",
    Manual(
        ["dtq dlq list", "dtq dlq list -q mail --type send_mail --where order.id=7 --json"],
        exits("listed", usage="a filter that cannot be"),
        {
            "count": "dead letters that stand in the queue, whatever the filters",
            "cursor": "to go on with --cursor; null at the end",
            "dead_letters": "those that the filters accept",
            **within("dead_letters", _LETTER_FIELDS),
        },
    ),
)
def list_(
    queue: Queue = None,
    task_type: TaskType = None,
    error_class: ErrorClass = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    where: Where = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=10_000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on behind an earlier listing.", metavar="CURSOR")] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """List dead letters, newest first."""
    use_redis_url(redis_url)
    which = _filter(task_type, error_class, older_than, newer_than, where)
    with producer() as app:
        chosen = app.queue(queue)
        total = chosen.dead_letter_count()
        behind = None if cursor is None else check_entry("cursor", cursor)
        found = list(islice(chosen.dead_letters(which, before=behind), limit + 1))
    more = found[limit - 1].entry if len(found) > limit else None
    found = found[:limit]
    if as_json:
        print_json({"count": total, "cursor": more, "dead_letters": [dead_letter_body(letter) for letter in found]})
        return DONE
    if found:
        columns = ["entry", "task", "type", "attempts", "error", "died at"]
        print_table("", columns, [_row(letter) for letter in found], numbers=(3,), whole=(0, 1, 5), spare=(3, 5, 0))
    print_line(f"showing {len(found)} of {total}{f'; go on with --cursor {more}' if more else ''}")
    return DONE


def _row(letter: DeadLetter) -> tuple[object, ...]:
    task, died = letter.task, letter.died_at.isoformat(timespec="seconds")
    if task is None:
        return (letter.entry, letter.task_id, "", "", f"no task of ours: {len(letter.raw)} bytes", died)
    error = f"{task.error_class}: {task.error}" if task.error_class else task.cause or ""
    return (letter.entry, letter.task_id, task.task_type, task.attempt, error[:200], died)


@command(
    commands,
    "dlq show",
    Manual(
        ["dtq dlq show 0356fVwnYBJV2FGLkq1cfQ", "dtq dlq show 1700000000000-0 -q mail --json"],
        exits("found", not_found="not found", refused="the task is not dead, or was discarded"),
        _LETTER_FIELDS,
    ),
)
def show(
    name: Annotated[str, typer.Argument(help="Id of a task, or of an entry.", metavar="ID")],
    queue: Queue = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Print everything that is known of one dead letter."""
    use_redis_url(redis_url)
    with producer() as app:
        letter = app.queue(queue).dead_letter(name)
    if as_json:
        print_json(dead_letter_body(letter))
    else:
        print_fields([("entry", letter.entry), ("died_at", letter.died_at.isoformat(timespec="milliseconds"))])
        if letter.task is not None:
            print_task(task_body(letter.task))
        else:
            print_fields([("task", letter.task_id or None), ("raw", letter.raw[:1000])])
    return DONE


@command(
    commands,
    "dlq requeue",
    Manual(
        [
            """dtq dlq requeue 0356fVwnYBJV2FGLkq1cfQ --payload '{"to": "ada@example.org"}'""",
            "dtq dlq requeue --error-class SMTPServerDisconnected --rate 50 --yes",
            "dtq dlq requeue --all --dry-run",
        ],
        exits(
            "all queued",
            failed="some of many were refused",
            usage="wrong words; a passed deadline",
            not_found="not found",
            refused="the task is not dead, its lock or key is held, the queue is full, or not confirmed",
        ),
        _outcome_fields("requeued"),
    ),
)
def requeue(
    names: Names = None,
    queue: Queue = None,
    everything: All = False,
    task_type: TaskType = None,
    error_class: ErrorClass = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    where: Where = None,
    payload: Annotated[
        str | None, typer.Option(help="Arguments to run it with instead, for one ID; - reads standard input.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="A new deadline: ISO 8601 with an offset.", metavar="TIME")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Most tasks a second.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Queue dead letters again: those named, or with --all or a filter many, oldest first, while the queue has room.

    Attempts and ttl start over; old attempts stay in the history. A passed deadline needs a new one.
    """
    use_redis_url(redis_url)
    which, many = _many(names, everything, task_type, error_class, older_than, newer_than, where)
    edited = None if payload is None else read_payload(payload)
    if edited is not None and (many or len(names or ()) != 1):
        raise ValueError("payload: it can be given for one ID only")
    until = read_time("deadline", deadline)
    outcomes: list[_Outcome] = []
    with producer() as app:
        chosen = app.queue(queue)
        if many and not dry_run and not confirmed(f"Queue dead letters of queue {chosen.name} again?", yes):
            return REFUSED
        if dry_run and not many:
            outcomes = [_Outcome.of(chosen.dead_letter(name)) for name in names or ()]
        elif not many:
            for name in names or ():
                try:
                    queued = chosen.requeue(name, payload=edited, deadline=until)
                    outcomes.append(_Outcome(queued.id, name if is_entry(name) else None))
                except DtqError as error:
                    outcomes.append(_Outcome.refused(name, error))
        else:
            items = chosen.requeue_all(which, rate=rate, deadline=until, dry_run=dry_run)
            outcomes = [_Outcome.of(item.letter, item.error) for item in followed(items, f"requeue in {chosen.name}")]
    return _tell("requeued", outcomes, dry_run, as_json, many)


@command(
    commands,
    "dlq discard",
    Manual(
        ["dtq dlq discard 0356fVwnYBJV2FGLkq1cfQ", "dtq dlq discard --older-than 2592000 --yes"],
        exits("discarded", failed="some were not", not_found="not found", refused="not dead, or not confirmed"),
        _outcome_fields("discarded"),
    ),
)
def discard(
    names: Names = None,
    queue: Queue = None,
    everything: All = False,
    task_type: TaskType = None,
    error_class: ErrorClass = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> int:
    """Take dead letters off the list: those named, or with --all or a filter many. Their records stay."""
    use_redis_url(redis_url)
    which, many = _many(names, everything, task_type, error_class, older_than, newer_than, where)
    outcomes: list[_Outcome] = []
    with producer() as app:
        chosen = app.queue(queue)
        what = "dead letters" if many else f"{len(names or ())} dead letter(s)"
        if not dry_run and not confirmed(f"Discard {what} of queue {chosen.name}?", yes):
            return REFUSED
        if many:
            letters = followed(chosen.discard_all(which, dry_run=dry_run), f"discard in {chosen.name}")
            outcomes = [_Outcome.of(letter) for letter in letters]
        for name in names or ():
            try:
                outcomes.append(_Outcome.of(chosen.dead_letter(name) if dry_run else chosen.discard(name)))
            except DtqError as error:
                outcomes.append(_Outcome.refused(name, error))
    return _tell("discarded", outcomes, dry_run, as_json, many)


@command(
    commands,
    "dlq purge",
    Manual(
        ["dtq dlq purge -q mail", "dtq dlq purge -q mail --yes --json"],
        exits("purged", not_found="no such queue", refused="not confirmed"),
        {"queue": "its name", "purged": "how many dead letters were discarded"},
    ),
)
def purge(queue: Queue = None, yes: Yes = False, redis_url: RedisUrl = None, as_json: AsJson = False) -> int:
    """Discard all dead letters of a queue."""
    use_redis_url(redis_url)
    with producer() as app:
        chosen = app.queue(queue)
        if unknown(app, chosen.name):
            return NOT_FOUND
        total = chosen.dead_letter_count()
        if not confirmed(f"Discard all {total} dead letters of queue {chosen.name}?", yes):
            return REFUSED
        steps = whole_steps(chosen.purge_dead_letters_steps())
        purged = sum(followed(steps, f"purge of the dead letters of {chosen.name}", total, int))
    if as_json:
        print_json({"queue": chosen.name, "purged": purged})
    else:
        print_line(f"queue {chosen.name}: {purged} dead letters discarded")
    return DONE


def _tell(verb: str, outcomes: list[_Outcome], dry_run: bool, as_json: bool, many: bool) -> int:
    """Print what became of each; the exit code."""
    errors = [one.error for one in outcomes if one.error is not None]
    done = [one.task_id or one.entry or "" for one in outcomes if one.error is None]
    if as_json:
        rows = [
            {"outcome": "refused" if one.error else verb, "task_id": one.task_id, "entry": one.entry, **why(one.error)}
            for one in outcomes
        ]
        print_json({verb: len(done), "refused": len(errors), "dry_run": dry_run, "outcomes": rows})
    else:
        for name in done if len(done) <= 20 or dry_run else ():
            print_line(name)
        for error in errors:
            print_error(str(error))
        refused = f", {len(errors)} refused" if errors else ""
        print_line(f"{len(done)} {'would be ' if dry_run else ''}{verb}{refused}")
    if not errors:
        return DONE
    return FAILED if many or done else code_of(errors[0])


def _many(
    names: list[str] | None,
    everything: bool,
    task_type: str | None,
    error_class: str | None,
    older_than: float | None,
    newer_than: float | None,
    where: list[str] | None,
) -> tuple[DeadLetterFilter, bool]:
    """The filter, and whether it is meant instead of names."""
    which = _filter(task_type, error_class, older_than, newer_than, where)
    many = everything or which != DeadLetterFilter()
    if many and names:
        raise ValueError("id: give ids, or --all and filters, not both")
    if not many and not names:
        raise ValueError("id: give ids, a filter, or --all")
    return which, many


def _filter(
    task_type: str | None,
    error_class: str | None,
    older_than: float | None,
    newer_than: float | None,
    where: list[str] | None,
) -> DeadLetterFilter:
    wanted = dict(read_condition(condition) for condition in where or ())
    return DeadLetterFilter(task_type, error_class, older_than, newer_than, wanted)
