"""Instructions of the pure Rust modules for each task, counted by callgrind: rust/benches/cases.rs, one batch of each.

    python bench/rust_instructions.py                        print the counts
    python bench/rust_instructions.py --record               and write them to bench/counts.json

The inputs never change, so a count changes with the code or the tools only. Needs cargo and valgrind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):  # run as a script: find `bench`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import record

PART = "rust"
BATCH = 100
ROOT = Path(__file__).resolve().parent.parent
# glibc copies memory by what the processor offers: leave the part out that differs between machines.
STEADY = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX512F,-AVX512VL,-EVEX,-ERMS,-FSRM"}


def main() -> int:
    """Print, and record where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the counts to bench/counts.json")
    options = parser.parse_args()
    counts = measure()
    print(json.dumps({"tools": tools(), "counts": counts}, indent=2))
    if options.record:
        record.write(PART, counts, tools())
    return 0


def tools() -> dict[str, str]:
    """What the counts depend on besides the code."""
    return {"rustc": _said("rustc", "--version"), **tools_of_callgrind()}


def tools_of_callgrind() -> dict[str, str]:
    """What every count of callgrind depends on."""
    return {
        "valgrind": _said("valgrind", "--version"),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
    }


def measure() -> dict[str, float]:
    """Build the program that runs each case once, and count; instructions for each task, by the case's name.

    Raises:
        FileNotFoundError: cargo or valgrind is not installed.
        subprocess.CalledProcessError: the build failed, or a case did not come to its number.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "instructions"]
    subprocess.run(build, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="dtq-callgrind-") as directory:
        output = Path(directory) / "out"
        program = target / "release" / "examples" / "instructions"
        command = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={output}", str(program)]
        subprocess.run(command, check=True, env={**os.environ, **STEADY})
        table = _said("callgrind_annotate", "--inclusive=yes", "--threshold=100", str(output))
    names = re.findall(r'name: "(\w+)"', (ROOT / "rust" / "benches" / "cases.rs").read_text())
    return {name: _inclusive(table, f"instructions::cases::{name}") / BATCH for name in names}


def _inclusive(table: str, function: str) -> int:
    """Instructions of a function and of all it calls."""
    found = re.search(rf"^ *([\d,]+) .*[:*]{re.escape(function)}(?: \[|$)", table, re.MULTILINE)
    assert found, f"callgrind has not seen {function}"
    return int(found[1].replace(",", ""))


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
