"""python -m tests.chaos --seconds S --seed N: one run, or --runs R with seeds N, N+1, ...; 1 if not clean."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import chaos


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="so many runs, each with the next seed")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.02, help="mean pause between two enqueues, seconds")
    parser.add_argument("--only", default="", help="acts whose name has one of these words: stop,freeze")
    parser.add_argument("--pace", type=float, default=1.0, help="stretches the pauses between acts")
    parser.add_argument("--server", default="redis", help="redis or valkey")
    parser.add_argument("--verbose", action="store_true", help="tell every act")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # everything is put away on the way out
    clean = True
    for seed in range(options.seed, options.seed + options.runs):
        directory = Path(tempfile.mkdtemp(prefix=f"dtq-chaos-{seed}-"))
        report = chaos(
            directory, options.seconds, seed, workers=options.workers, pause_s=options.pause, only=options.only,
            pace=options.pace, server=options.server,
            tell=(lambda line: print(line, flush=True)) if options.verbose else lambda line: None,
        )  # fmt: skip
        for line in report.noted:
            print(f"noted: {line}")
        for line in report.faults:
            print(f"FAULT: {line}")
        if report.faults:
            clean = False
            print(f"ledger, effects and logs: {directory}")
        else:
            shutil.rmtree(directory)
        print(report.line, flush=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
