"""Prints the figures of a benchmark: one JSON object, or a table for people."""

from __future__ import annotations

import json
import math
from typing import Any


def show(figures: dict[str, Any], *, as_json: bool) -> None:
    """Print figures; numbers are rounded to four significant digits, which is more than any run repeats."""
    figures = {name: rounded(value) for name, value in figures.items()}
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        text = f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else json.dumps(value)
        print(f"{name:<{width}}  {text}")


def rounded(value: Any) -> Any:
    """The value, with floats in four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    digits = 3 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else round(value)


def percentile(values: list[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(percent / 100 * len(ordered)) - 1))]
