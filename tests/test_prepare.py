"""`make build` on a machine that lacks what it needs: one line that says what to install."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("cargo", "said"),
    [
        ("echo 'cargo 1.65.0 (4bc8f24d3 2022-10-20)'", "cargo 1.65.0 is too old, 1.88 is needed; "),
        ("echo 'error: no default is configured' >&2; exit 1", "cargo does not run (see `cargo --version`); "),
    ],
)
def test_a_cargo_that_cannot_build_it_is_named_before_anything_is_installed(
    tmp_path: Path, cargo: str, said: str
) -> None:
    """As Debian's, or rustup's before a toolchain is installed."""
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    (clone / ".ci").mkdir(parents=True)
    programs.mkdir()
    for name in (".ci/prepare", "Cargo.toml"):
        shutil.copy(ROOT / name, clone / name)
    (programs / "cargo").write_text(f"#!/bin/sh\n{cargo}\n")
    (programs / "cargo").chmod(0o755)
    done = subprocess.run(
        [clone / ".ci/prepare"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"dtq: {said}install Rust from https://rustup.rs and run make again"
    assert not (clone / ".venv").exists()
