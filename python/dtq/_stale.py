"""Warns when the compiled `dtq._core` is not what the sources beside it say: only in an editable checkout.

Rust edits do not reach Python until somebody builds them; without a word about it one debugs code that never ran.
"""

import os
import warnings
from collections.abc import Iterator

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF


class StaleExtensionWarning(UserWarning):
    """The compiled `dtq._core` does not match its sources, or was built without optimisation."""


def warn_if_stale(extension: str, fingerprint: str, debug_build: bool) -> None:
    """Warn (`StaleExtensionWarning`) if the extension is older than its sources, or a debug build.

    extension: path of the compiled module; fingerprint: what it was built from (`dtq._core.SOURCE_FINGERPRINT`).
    Costs a stat per source file in a checkout, one in an installed wheel; reads the sources only when one of them
    is newer than the extension.
    """
    root = checkout_root()
    if root is not None and _changed_since(root, extension) and source_fingerprint(root) != fingerprint:
        warnings.warn(
            "the Rust sources changed since dtq._core was built; run `make build` to compile them",
            StaleExtensionWarning,
            stacklevel=3,
        )
    if debug_build:
        warnings.warn(
            "dtq._core is a debug build, many times slower; run `make build` for an optimised one",
            StaleExtensionWarning,
            stacklevel=3,
        )


def checkout_root() -> str | None:
    """Return the checkout this package is imported from, or None when it is installed without its sources."""
    python = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = os.path.dirname(python)
    if os.path.basename(python) == "python" and os.path.isfile(os.path.join(root, "Cargo.toml")):
        return root
    return None


def source_fingerprint(root: str) -> str:
    """Return the fingerprint of the Rust sources under `root`, as build.rs computes it: 16 hexadecimal digits.

    FNV-1a (64 bits) over Cargo.toml and rust/**/*.rs in the order of their relative paths: for each the path, a zero
    byte, the content, a zero byte.
    """
    value = _OFFSET_BASIS
    for path in sorted(_sources(root)):
        with open(os.path.join(root, path), "rb") as file:
            content = file.read()
        for byte in b"%s\0%s\0" % (path.encode(), content):
            value = (value ^ byte) * _PRIME & _MASK
    return f"{value:016x}"


def _changed_since(root: str, extension: str) -> bool:
    built = os.stat(extension).st_mtime_ns
    # A directory is newer when a file in it was removed or renamed.
    return any(os.stat(os.path.join(root, path)).st_mtime_ns > built for path in (*_sources(root), *_directories(root)))


def _directories(root: str) -> Iterator[str]:
    for folder, _, _ in os.walk(os.path.join(root, "rust")):
        yield os.path.relpath(folder, root)


def _sources(root: str) -> Iterator[str]:
    """Yield the sources' paths relative to `root`, with forward slashes, in no order."""
    yield "Cargo.toml"
    for folder, _, names in os.walk(os.path.join(root, "rust")):
        for name in names:
            if name.endswith(".rs"):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
