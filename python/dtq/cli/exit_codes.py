"""Exit codes of the `dtq` command, and which error ends in which."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
NOT_FOUND = 4
REFUSED = 5
INTERRUPTED = 130  # 128 + SIGINT, as shells expect it

CODES_HELP = "Exit codes: 0 done, 1 failed, 2 usage, 3 Redis unavailable, 4 not found, 5 refused."


def code_of(error: BaseException) -> int:
    """Return the exit code for an error that ended a command."""
    from dtq import errors

    unavailable = (errors.BrokerUnavailable, errors.UnsupportedServer)
    refused = (
        errors.PayloadTooLarge,
        errors.QueueFull,
        errors.TaskIdConflict,
        errors.UniqueConflict,
        errors.IdempotencyInProgress,
        errors.IdempotencyKeyReused,
        errors.IllegalTransition,
    )
    if isinstance(error, unavailable):
        return UNAVAILABLE
    if isinstance(error, errors.TaskNotFound):
        return NOT_FOUND
    if isinstance(error, refused):
        return REFUSED
    if isinstance(
        error, (errors.InvalidTask, errors.AmbiguousTaskId, errors.InvalidSettings, errors.InvalidHandler, ValueError)
    ):
        return USAGE
    return FAILED
