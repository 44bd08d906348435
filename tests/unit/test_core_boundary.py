"""dtq._core: the module itself, its stub, its fingerprint, and the histogram."""

import math
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtq import _core, _stale

durations = st.lists(st.integers(0, 2**63 - 1), max_size=50)


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


@given(durations, st.floats(0, 100))
def test_percentiles_are_at_most_a_sixteenth_above(values: list[int], percent: float) -> None:
    histogram = _core.Histogram()
    for value in values:
        histogram.record(value)
    assert histogram.count == len(values)
    assert histogram.total_ns == min(sum(values), 2**64 - 1)
    told = histogram.percentile(percent)
    if not values:
        assert told == 0
        return
    exact = sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
    assert exact <= told <= exact + exact // 16


@given(durations, durations)
def test_histograms_merge_and_travel(one: list[int], other: list[int]) -> None:
    left, right, both = _core.Histogram(), _core.Histogram(), _core.Histogram()
    for histogram, values in ((left, one), (right, other), (both, one + other)):
        for value in values:
            histogram.record(value)
    left.merge(_core.Histogram.from_bytes(right.to_bytes()))
    assert left.to_bytes() == both.to_bytes()
    left.merge(left)
    assert left.count == 2 * both.count


@given(st.binary(max_size=60))
def test_a_damaged_histogram_is_refused_or_read(data: bytes) -> None:
    for candidate in (data, b"\x01" + data):
        try:
            histogram = _core.Histogram.from_bytes(candidate)
        except _core.CoreError as error:
            assert error.field.startswith("histogram.")  # noqa: PT017 (either outcome is right)
        else:
            assert histogram.to_bytes() == candidate


@pytest.mark.parametrize("percent", [-1.0, 101.0, math.nan, math.inf])
def test_an_odd_percentile_is_answered(percent: float) -> None:
    histogram = _core.Histogram()
    histogram.record(-5)
    assert histogram.percentile(percent) == 0
