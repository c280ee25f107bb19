"""Pictures of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from faults.series import Point
from tidelog_pipeline.pages import svg

WIDTH, HEIGHT = 1_000, 180
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 34, 22
# The names of faults alternate among this many rows, so that neighbours do not overlap.
NAME_ROWS = 2
GRID_LINES = 4
LONGEST_NAME = 28


class Span(NamedTuple):
    """The time of a fault, in seconds of the run."""

    begin_s: float
    end_s: float
    name: str


class Line(NamedTuple):
    name: str
    colour: str
    values: Sequence[float]


def throughput(points: Sequence[Point], spans: Sequence[Span], begin_s: float) -> Markup:
    """Records per second. `begin_s`: the zero of the run's clock."""
    seconds = [point.second - begin_s for point in points]
    line = Line("records a second", "#1f6feb", [point.records for point in points])
    return chart("Acknowledged records a second", seconds, [line], spans)


def latency(points: Sequence[Point], spans: Sequence[Span], begin_s: float) -> Markup:
    seconds = [point.second - begin_s for point in points]
    lines = [
        Line("99th percentile", "#cf222e", [point.p99_ms for point in points]),
        Line("median", "#1f6feb", [point.median_ms for point in points]),
    ]
    return chart("Latency of acknowledged batches, ms", seconds, lines, spans)


def chart(
    title: str, seconds: Sequence[float], lines: Sequence[Line], spans: Sequence[Span]
) -> Markup:
    last_s = max([*seconds, *(span.end_s for span in spans), 1.0])
    highest = max((value for line in lines for value in line.values), default=0) or 1
    # A single line needs no legend beside the title.
    legend = svg.legend({line.name: line.colour for line in lines}) if len(lines) > 1 else ""
    parts = [svg.text(LEFT, 11, title, " ", legend, style="title")]
    for number, span in enumerate(spans):
        parts += _span(span, number, last_s)
    for step in range(GRID_LINES + 1):
        value = highest * step / GRID_LINES
        at = _y(value, highest)
        parts.append(svg.line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        parts.append(svg.text(LEFT - 6, at + 4, f"{value:,.0f}", style="value"))
    for line in lines:
        points = [
            (_x(second, last_s), _y(value, highest))
            for second, value in zip(seconds, line.values, strict=True)
        ]
        parts.append(svg.polyline(points, line.colour, line.name))
    parts.append(svg.text(LEFT, HEIGHT - 6, "0 s"))
    parts.append(svg.text(WIDTH - RIGHT, HEIGHT - 6, f"{last_s:.0f} s", style="end"))
    return svg.picture(WIDTH, HEIGHT, title, *parts)


def _span(span: Span, number: int, last_s: float) -> list[Markup]:
    begin, end = _x(span.begin_s, last_s), _x(span.end_s, last_s)
    return [
        svg.bar(begin, TOP, max(end - begin, 1), HEIGHT - TOP - BOTTOM, span.name, style="fault"),
        svg.text(begin, 22 + 9 * (number % NAME_ROWS), span.name[:LONGEST_NAME]),
    ]


def _x(second: float, last_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * max(second, 0) / last_s


def _y(value: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / highest
