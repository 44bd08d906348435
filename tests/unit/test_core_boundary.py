"""dtq._core: the module itself, its stub, and its fingerprint."""

import math
import pickle
import subprocess
import sys

import pytest

from dtq import _core, _stale


def test_the_stub_says_what_the_extension_has() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "dtq._core"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fingerprint_is_that_of_the_sources() -> None:
    root = _stale.checkout_root()
    if root is None:
        pytest.skip("dtq is installed without its sources")
    assert _stale.source_fingerprint(root) == _core.SOURCE_FINGERPRINT, "run `make build`"


def test_constants() -> None:
    assert (_core.WIRE_VERSION, _core.FOREVER_MS, _core.DEBUG_BUILD) == (1, 2**53 - 1, False)


def test_an_error_is_an_exception_with_field_and_kind() -> None:
    error = _core.CoreError("message")
    assert (error.field, error.kind) == ("", "invalid")
    assert issubclass(_core.CoreError, Exception)
    with pytest.raises(_core.CoreError) as caught:
        _core.encode_json({"a": math.nan})
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(copy), copy.field, copy.kind) == (str(caught.value), "payload.a", "invalid")
