"""One file for each peer: how it is installed, tuned, started and fed. README.md beside this folder tells the form."""

from __future__ import annotations

import os

HOST = os.environ.get("BENCH_HOST", "127.0.0.1")
PORT = int(os.environ.get("BENCH_PORT", "6379"))
URL = f"redis://{HOST}:{PORT}/0"
ENTRANT = os.environ.get("BENCH_ENTRANT", "")
"""Which of the adapter's ENTRANTS is measured."""
RESULTS = os.environ.get("BENCH_RESULTS") == "1"
"""Are results kept?"""
