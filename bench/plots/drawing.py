"""Charts as PNG, by matplotlib: the only module that imports it."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench.suite.outcome import Chart

WIDTH_INCHES, HEIGHT_INCHES = 9.5, 4.8
BAR_INCHES = 0.34
DOTS_PER_INCH = 110
MARKERS = "osD^vP*X"


def png(chart: Chart) -> bytes:
    height = max(2.2, BAR_INCHES * len(chart.ticks) + 1.2) if chart.ticks else HEIGHT_INCHES
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DOTS_PER_INCH, layout="constrained")
    axes: Any = figure.add_subplot()
    (_bars if chart.ticks else _lines)(axes, chart)
    axes.set_title(chart.title, fontsize=11)
    axes.grid(alpha=0.3, which="both" if chart.y_log else "major", linewidth=0.6)
    axes.set_axisbelow(True)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _lines(axes: Any, chart: Chart) -> None:
    for number, line in enumerate(chart.lines):
        axes.plot(
            [point.x for point in line.points],
            [point.y for point in line.points],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=1.4,
            linestyle="-" if number < 10 else "--",
            label=line.label,
        )
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    if chart.x_log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(plain)
    if chart.y_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    if any(line.label for line in chart.lines):
        axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def _bars(axes: Any, chart: Chart) -> None:
    """A bar for each name of the single line, the first on top."""
    (line,) = chart.lines
    bars = axes.barh([point.x for point in line.points], [point.y for point in line.points])
    axes.bar_label(bars, fmt="{:,.3g}", padding=3, fontsize=8)
    axes.set_yticks(range(len(chart.ticks)), chart.ticks, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(chart.y)
