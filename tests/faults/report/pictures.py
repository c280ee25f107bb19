"""Pictures of a run as SVG, which every browser draws without a library. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from faults.series import Point

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


def throughput(points: Sequence[Point], spans: Sequence[Span], begin_s: float) -> str:
    """Records per second. `begin_s`: the zero of the run's clock."""
    seconds = [point.second - begin_s for point in points]
    line = Line("records a second", "#1f6feb", [point.records for point in points])
    return chart("Acknowledged records a second", seconds, [line], spans)


def latency(points: Sequence[Point], spans: Sequence[Span], begin_s: float) -> str:
    seconds = [point.second - begin_s for point in points]
    lines = [
        Line("99th percentile", "#cf222e", [point.p99_ms for point in points]),
        Line("median", "#1f6feb", [point.median_ms for point in points]),
    ]
    return chart("Latency of acknowledged batches, ms", seconds, lines, spans)


def chart(
    title: str, seconds: Sequence[float], lines: Sequence[Line], spans: Sequence[Span]
) -> str:
    last_s = max([*seconds, *(span.end_s for span in spans), 1.0])
    highest = max((value for line in lines for value in line.values), default=0) or 1
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{LEFT}" y="11" class="title">{escape(title)} {_legend(lines)}</text>',
    ]
    for number, span in enumerate(spans):
        parts += _span(span, number, last_s)
    for step in range(GRID_LINES + 1):
        value = highest * step / GRID_LINES
        at = _y(value, highest)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" class="value">{value:,.0f}</text>')
    for line in lines:
        places = " ".join(
            f"{_x(second, last_s)},{_y(value, highest)}"
            for second, value in zip(seconds, line.values, strict=True)
        )
        parts.append(
            f'<polyline points="{places}" stroke="{line.colour}" fill="none">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}" class="time">0 s</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" class="time end">{last_s:.0f} s</text></svg>'
    )
    return "\n".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    """The legend; a single line needs none beside the title."""
    if len(lines) < 2:
        return ""
    return " ".join(
        f'<tspan style="fill:{line.colour}">{escape(line.name)}</tspan>' for line in lines
    )


def _span(span: Span, number: int, last_s: float) -> list[str]:
    begin, end = _x(span.begin_s, last_s), _x(span.end_s, last_s)
    name = span.name[:LONGEST_NAME]
    return [
        f'<rect x="{begin}" y="{TOP}" width="{max(round(end - begin, 1), 1)}" '
        f'height="{HEIGHT - TOP - BOTTOM}" class="fault"><title>{escape(span.name)}</title></rect>',
        f'<text x="{begin}" y="{22 + 9 * (number % NAME_ROWS)}" class="name">{escape(name)}</text>',
    ]


def _x(second: float, last_s: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * max(second, 0) / last_s, 1)


def _y(value: float, highest: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / highest, 1)
