"""Charts of the last hour, minute by minute: lines and bars in colours that stand on light and on dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from dtq.dashboard.parts import card, tag

ACCENT, GOOD, WARN, BAD, CALM = "#5b74ee", "#2f9e6b", "#d18b1f", "#de4c5a", "#8a94a5"
_QUIET = "#828c9c"
_ROUNDED = "(+v.toPrecision(3)).toLocaleString('en')"
_FAINT = "rgba(130, 140, 156, 0.20)"


@dataclass(frozen=True, slots=True)
class Line:
    """One series. bars: columns that stand on those of the series before."""

    name: str
    colour: str
    bars: bool = False
    area: bool = False

    def options(self) -> dict[str, Any]:
        """Without its values."""
        made: dict[str, Any] = {
            "name": self.name,
            "type": "bar" if self.bars else "line",
            "itemStyle": {"color": self.colour},
            "data": [],
        }
        if self.bars:
            return made | {"barMaxWidth": 10, "barCategoryGap": "25%", "stack": "all"}
        made |= {"showSymbol": False, "lineStyle": {"width": 1.75, "color": self.colour}, "connectNulls": False}
        if self.area:
            made["areaStyle"] = {"opacity": 0.12, "color": self.colour}
        return made


class Chart:
    """One chart in a card, with its legend as text. unit: behind the values in the tooltip and on the axis."""

    def __init__(self, title: str, lines: Sequence[Line], *, unit: str = "", whole: bool = False) -> None:
        with card(title) as head:
            with head:
                tag("span", classes="push")
                with tag("span", classes="legend"):
                    for line in lines:
                        with tag("span"):
                            tag("i").style(f"background: {line.colour}")
                            tag("span", line.name)
            suffix = f" {unit}" if unit else ""
            # The library types its options as a dict of anything, and keeps a copy of what it is given.
            self._chart: Any = ui.echart(_options(lines, suffix, whole), renderer="svg").classes("chart")
            self._chart.props["role"] = "img"
            self._chart.props["aria-label"] = f"{title}, the last hour by minutes"

    def show(self, times_ms: Sequence[int], values: Sequence[Sequence[float | None]]) -> None:
        """Other values: for each line one per time; None leaves a gap."""
        fresh = [[[at, value] for at, value in zip(times_ms, row, strict=True)] for row in values]
        series: list[dict[str, Any]] = self._chart.options["series"]
        if all(old["data"] == new for old, new in zip(series, fresh, strict=True)):
            return
        for old, new in zip(series, fresh, strict=True):
            old["data"] = new
        self._chart.update()


def _options(lines: Sequence[Line], suffix: str, whole: bool) -> dict[str, Any]:
    """What the chart looks like. suffix: behind values; whole: they are counts, so that no axis shows a part of one."""
    return {
        "animation": False,
        "textStyle": {"fontFamily": "Roboto, system-ui, sans-serif"},
        "useUTC": True,
        "grid": {"left": 8, "right": 18, "top": 16, "bottom": 6, "containLabel": True},
        "tooltip": {
            "trigger": "axis",
            "className": "chart-tooltip",
            "confine": True,
            "axisPointer": {"lineStyle": {"color": _QUIET}},
            ":valueFormatter": f"v => v == null ? '–' : {_ROUNDED} + '{suffix}'",
        },
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": _FAINT}},
            "axisTick": {"show": False},
            "axisLabel": {"color": _QUIET, "fontSize": 12, "hideOverlap": True, "formatter": "{HH}:{mm}"},
            "splitNumber": 4,
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": 1 if whole else 0,
            "splitNumber": 3,
            "axisLabel": {
                "color": _QUIET,
                "fontSize": 12,
                ":formatter": f"v => v.toLocaleString('en') + '{suffix}'",
            },
            "splitLine": {"lineStyle": {"color": _FAINT}},
        },
        "series": [line.options() for line in lines],
    }
