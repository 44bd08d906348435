"""The warning about a `dtq._core` that does not match its sources."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from dtq import _core, _stale
from dtq._stale import StaleExtensionWarning, checkout_root, source_fingerprint, warn_if_stale

HOUR_NS = 3600 * 10**9


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout whose extension was built an hour after its sources were written."""
    for name, text in {
        "Cargo.toml": "[package]\n",
        "rust/lib.rs": "mod ids;\n",
        "rust/python/ids.rs": "// ids\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "python" / "dtq").mkdir(parents=True)
    extension = tmp_path / "python" / "dtq" / "_core.abi3.so"
    extension.touch()
    later = extension.stat().st_mtime_ns + HOUR_NS
    os.utime(extension, ns=(later, later))
    monkeypatch.setattr(_stale, "__file__", str(tmp_path / "python" / "dtq" / "_stale.py"))
    return tmp_path


def edit(path: Path, text: str) -> None:
    """Write a file as somebody would two hours later."""
    path.write_text(text)
    later = path.stat().st_mtime_ns + 2 * HOUR_NS
    os.utime(path, ns=(later, later))


def warnings_of(checkout: Path, fingerprint: str, *, debug_build: bool = False) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_stale(str(checkout / "python" / "dtq" / "_core.abi3.so"), fingerprint, debug_build)
    assert all(warning.category is StaleExtensionWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def test_silent_when_nothing_changed(checkout: Path) -> None:
    assert warnings_of(checkout, source_fingerprint(str(checkout))) == []


def test_an_edited_source_is_reported(checkout: Path) -> None:
    built_from = source_fingerprint(str(checkout))
    edit(checkout / "rust" / "python" / "ids.rs", "// more ids\n")
    assert warnings_of(checkout, built_from) == [
        "the Rust sources changed since dtq._core was built; run `make build` to compile them"
    ]


def test_a_file_written_again_unchanged_is_not_reported(checkout: Path) -> None:
    built_from = source_fingerprint(str(checkout))
    edit(checkout / "rust" / "lib.rs", "mod ids;\n")
    assert warnings_of(checkout, built_from) == []


def test_a_removed_source_is_reported(checkout: Path) -> None:
    built_from = source_fingerprint(str(checkout))
    removed = checkout / "rust" / "python" / "ids.rs"
    removed.unlink()
    later = removed.parent.stat().st_mtime_ns + 2 * HOUR_NS
    os.utime(removed.parent, ns=(later, later))
    assert len(warnings_of(checkout, built_from)) == 1


def test_sources_are_not_read_when_older_than_the_extension(checkout: Path) -> None:
    assert warnings_of(checkout, "not the fingerprint") == []


def test_a_debug_build_is_reported(checkout: Path) -> None:
    assert warnings_of(checkout, source_fingerprint(str(checkout)), debug_build=True) == [
        "dtq._core is a debug build, many times slower; run `make build` for an optimised one"
    ]


def test_silent_in_an_installed_package(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = checkout / "site-packages" / "dtq" / "_stale.py"
    monkeypatch.setattr(_stale, "__file__", str(installed))
    edit(checkout / "rust" / "lib.rs", "mod other;\n")
    assert warnings_of(checkout, "not the fingerprint") == []


def test_fingerprint_agrees_with_the_build() -> None:
    """build.rs and `_stale.py` compute the same; this extension was built from the sources on disk."""
    root = checkout_root()
    assert root is not None
    assert source_fingerprint(root) == _core.SOURCE_FINGERPRINT
    assert not _core.DEBUG_BUILD
