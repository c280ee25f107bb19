"""Charts of an incident as SVG, which browsers draw without a library. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tidelog.state_changes.json_form import format_time
from tidelog_pipeline.state_changes.core.availability import Trouble
from tidelog_pipeline.state_changes.core.failovers import STEP_TEXTS, STEPS
from tidelog_pipeline.state_changes.core.incident import Incident, Window

WIDTH = 1_000
LEFT, RIGHT, TOP = 170, 10, 30
LANE, MARK_ROW = 16, 12
CHART_HEIGHT, AXIS = 120, 18
GRID_LINES = 4
# Intervals of zero length stay visible.
LEAST_WIDTH = 1.5
LONGEST_NAME = 26
_COLOURS = {"elections": "#8250df", "ISR shrinks": "#cf222e", "ISR expands": "#1a7f37"}
_STEP_COLOURS = ("#cf222e", "#8250df", "#1f6feb", "#1a7f37")
# In drawing order: the first is visible below the second.
_TROUBLES = ((Trouble.UNDER_MIN_ISR, "under"), (Trouble.NO_LEADER, "down"))

Row = Mapping[str, Any]


def lanes(incident: Incident) -> str:
    """Draws a lane for each partition with the longest times without leader or under min ISR.

    Events of brokers and controllers are drawn above them.
    """
    partitions = [(row["topic"], row["partition"]) for row in incident.availability.rows]
    top = TOP + MARK_ROW
    height = top + LANE * len(partitions) + AXIS
    title = "When partitions had no leader (dark), or too few replicas in sync (light)"
    parts = [*_begin(title, height), *_marks(incident, top, height - AXIS)]
    for number, (topic, partition) in enumerate(partitions):
        y = top + LANE * number
        name = f"{topic}/{partition}"
        parts.append(f'<text x="{LEFT - 6}" y="{y + 11}" class="value">{_short(name)}</text>')
        parts.append(_line(LEFT, y + LANE, WIDTH - RIGHT, y + LANE, "grid"))
        of_lane = [
            row
            for row in incident.intervals
            if (row["topic"], row["partition"]) == (topic, partition)
        ]
        for trouble, style in _TROUBLES:
            parts += [
                _bar(row, incident.window, y, style)
                for row in of_lane
                if row["trouble"] == trouble.value
            ]
    return "\n".join([*parts, *_times(incident.window, height)])


def changes(incident: Incident) -> str:
    """Draws the number of changes that began in each bucket."""
    height = TOP + CHART_HEIGHT + AXIS
    seconds = incident.window.bucket_ms / 1000
    parts = _begin(f"Changes that began, each {seconds:g} s {_legend()}", height)
    highest = max((count for counts in incident.changes.values() for count in counts), default=0)
    highest = max(1, highest)
    for step in range(GRID_LINES + 1):
        y = TOP + CHART_HEIGHT * (1 - step / GRID_LINES)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "grid"))
        value = highest * step / GRID_LINES
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="value">{value:,.4g}</text>')
    for name, counts in incident.changes.items():
        step_width = (WIDTH - LEFT - RIGHT) / len(counts)
        points = " ".join(
            f"{LEFT + step_width * (number + 0.5):.1f},"
            f"{TOP + CHART_HEIGHT * (1 - count / highest):.1f}"
            for number, count in enumerate(counts)
        )
        parts.append(
            f'<polyline points="{points}" stroke="{_COLOURS[name]}" fill="none">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return "\n".join([*parts, *_times(incident.window, height)])


def critical_paths(failovers: Sequence[Row]) -> str:
    """Draws failovers, the slowest first, each as a bar of its steps."""
    height = TOP + LANE * len(failovers) + AXIS
    longest = max([row["total_ms"] for row in failovers] + [1])
    parts = _begin(f"Duration of the steps of failovers {_step_legend()}", height)
    for number, row in enumerate(failovers):
        y = TOP + LANE * number
        name = f"{row['topic']}/{row['partition']}"
        parts.append(f'<text x="{LEFT - 6}" y="{y + 11}" class="value">{_short(name)}</text>')
        parts += _steps(row, y, longest)
    parts.append(f'<text x="{LEFT}" y="{height - 5}">0 ms</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{height - 5}" class="end">{longest:,} ms</text></svg>'
    )
    return "\n".join(parts)


def _steps(row: Row, y: float, longest_ms: int) -> list[str]:
    bars, begin = [], float(LEFT)
    for step, colour in zip(STEPS, _STEP_COLOURS, strict=True):
        took = row[f"{step}_ms"]
        if took is None:
            continue
        width = (WIDTH - LEFT - RIGHT) * took / longest_ms
        bars.append(
            f'<rect x="{begin:.1f}" y="{y + 3}" width="{width:.1f}" height="{LANE - 5}" '
            f'fill="{colour}"><title>{escape(STEP_TEXTS[step])}: {took:,} ms</title></rect>'
        )
        begin += width
    return bars


def _begin(title: str, height: float) -> list[str]:
    """`title` may contain markup."""
    label = escape(title.partition("<")[0].strip(), quote=True)
    return [
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">',
        f'<text x="{LEFT}" y="12" class="title">{title}</text>',
    ]


def _marks(incident: Incident, top: float, bottom: float) -> list[str]:
    parts = []
    for row in incident.marks.rows:
        x = _x(row["began_at"], incident.window)
        who = f" broker {row['broker']}" if row["broker"] >= 0 else f" {row['service']}"
        tooltip = f"{format_time(row['began_at'])} {row['kind']}{who}"
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{top - 8}" y2="{bottom:g}" class="mark">'
            f"<title>{escape(tooltip)}</title></line>"
        )
    return parts


def _bar(row: Row, window: Window, y: float, style: str) -> str:
    begin, end = _x(row["begin_at"], window), _x(row["end_at"], window)
    tooltip = f"{row['trouble']} for {row['length_ms']:,} ms from {format_time(row['begin_at'])}"
    if row["is_open"]:
        tooltip += ", without a reported end"
    return (
        f'<rect x="{begin}" y="{y + 3}" width="{max(end - begin, LEAST_WIDTH):.1f}" '
        f'height="{LANE - 5}" class="{style}"><title>{escape(tooltip)}</title></rect>'
    )


def _times(window: Window, height: float) -> list[str]:
    return [
        f'<text x="{LEFT}" y="{height - 5:g}">{format_time(window.begin_ms)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{height - 5:g}" class="end">'
        f"{format_time(window.end_ms)}</text></svg>",
    ]


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:g}" x2="{x2:g}" y1="{y1:g}" y2="{y2:g}" class="{style}"/>'


def _legend() -> str:
    return " ".join(_coloured(name, colour) for name, colour in _COLOURS.items())


def _step_legend() -> str:
    texts = (STEP_TEXTS[step] for step in STEPS)
    return " ".join(map(_coloured, texts, _STEP_COLOURS))


def _coloured(text: str, colour: str) -> str:
    return f'<tspan style="fill:{colour}">{escape(text)}</tspan>'


def _short(name: str) -> str:
    kept = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
    return escape(kept)


def _x(time_ms: int, window: Window) -> float:
    share = (time_ms - window.begin_ms) / max(1, window.end_ms - window.begin_ms)
    return round(LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0), 1), 1)
