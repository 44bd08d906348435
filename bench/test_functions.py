"""Micro benchmarks: every function, method and set of attributes of dtq._core, each checked to be right.

`python -m pytest bench/test_functions.py --benchmark-only`. What the batches of a worker and a producer cost beside
plain Python is in `bench/test_core.py`.
"""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.core_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_function(benchmark: BenchmarkFixture, name: str) -> None:
    """Times one case; what its last call returned is right."""
    benchmark.group = name.partition(".")[0].partition(" ")[0]
    assert benchmark(CASES[name].work) == CASES[name].expected
    benchmark.extra_info["correct"] = True
