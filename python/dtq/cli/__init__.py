"""The `dtq` command; everything it needs is imported when `main` is called, not before."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    arguments: the words after `dtq`; default those of this process.
    Codes: 0 done, 1 failed, 2 usage, 3 Redis unavailable, 4 not found, 5 refused, 130 interrupted.
    """
    try:
        from dtq.cli.program import run

        return run(arguments)
    except KeyboardInterrupt:  # while all that was still being imported
        import sys

        sys.stderr.write("dtq: interrupted\n")
        return 130
