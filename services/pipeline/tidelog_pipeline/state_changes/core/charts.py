"""Charts of an incident. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tidelog.state_changes.json_form import format_time
from tidelog_pipeline.pages import svg
from tidelog_pipeline.state_changes.core.availability import Trouble
from tidelog_pipeline.state_changes.core.failovers import STEPS
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


def lanes(incident: Incident) -> Markup:
    """Draws a lane for each partition with the longest times without leader or under min ISR.

    Events of brokers and controllers are drawn above them.
    """
    partitions = [(row["topic"], row["partition"]) for row in incident.availability.rows]
    top = TOP + MARK_ROW
    height = top + LANE * len(partitions) + AXIS
    title = "When partitions had no leader (dark), or too few replicas in sync (light)"
    parts = [_title(title), *_marks(incident, top, height - AXIS)]
    for number, name in enumerate(partitions):
        y = top + LANE * number
        parts += [_name(name, y), svg.line(LEFT, y + LANE, WIDTH - RIGHT, y + LANE, "grid")]
        parts += [
            _interval(row, incident.window, y, style)
            for trouble, style in _TROUBLES
            for row in incident.intervals
            if (row["topic"], row["partition"], row["trouble"]) == (*name, trouble.value)
        ]
    return svg.picture(WIDTH, height, title, *parts, *_times(incident.window, height))


def changes(incident: Incident) -> Markup:
    """Draws the number of changes that began in each bucket."""
    height = TOP + CHART_HEIGHT + AXIS
    title = f"Changes that began, each {incident.window.bucket_ms / 1000:g} s"
    parts = [_title(title, " ", svg.legend(_COLOURS))]
    highest = max((count for counts in incident.changes.values() for count in counts), default=0)
    highest = max(1, highest)
    for step in range(GRID_LINES + 1):
        y = TOP + CHART_HEIGHT * (1 - step / GRID_LINES)
        value = f"{highest * step / GRID_LINES:,.4g}"
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y, "grid"))
        parts.append(svg.text(LEFT - 6, y + 4, value, style="value"))
    for name, counts in incident.changes.items():
        step_width = (WIDTH - LEFT - RIGHT) / len(counts)
        points = [
            (LEFT + step_width * (number + 0.5), TOP + CHART_HEIGHT * (1 - count / highest))
            for number, count in enumerate(counts)
        ]
        parts.append(svg.polyline(points, _COLOURS[name], name))
    return svg.picture(WIDTH, height, title, *parts, *_times(incident.window, height))


def critical_paths(failovers: Sequence[Row]) -> Markup:
    """Draws failovers, the slowest first, each as a bar of its steps."""
    height = TOP + LANE * len(failovers) + AXIS
    longest = max([row["total_ms"] for row in failovers] + [1])
    title = "Duration of the steps of failovers"
    legend = svg.legend(dict(zip(STEPS.values(), _STEP_COLOURS, strict=True)))
    parts = [_title(title, " ", legend)]
    for number, row in enumerate(failovers):
        y = TOP + LANE * number
        parts += [_name((row["topic"], row["partition"]), y), *_steps(row, y, longest)]
    return svg.picture(WIDTH, height, title, *parts, *_axis("0 ms", f"{longest:,} ms", height))


def _steps(row: Row, y: float, longest_ms: int) -> Iterator[Markup]:
    begin = float(LEFT)
    for (column, text), colour in zip(STEPS.items(), _STEP_COLOURS, strict=True):
        took = row[column]
        if took is None:
            continue
        width = (WIDTH - LEFT - RIGHT) * took / longest_ms
        yield svg.bar(begin, y + 3, width, LANE - 5, f"{text}: {took:,} ms", colour=colour)
        begin += width


def _title(*content: str) -> Markup:
    return svg.text(LEFT, 12, *content, style="title")


def _marks(incident: Incident, top: float, bottom: float) -> Iterator[Markup]:
    for row in incident.marks.rows:
        x = _x(row["began_at"], incident.window)
        source = f"broker {row['broker']}" if row["broker"] >= 0 else row["service"]
        tooltip = f"{format_time(row['began_at'])} {row['kind']} {source}"
        yield svg.line(x, top - 8, x, bottom, "mark", tooltip=tooltip)


def _interval(row: Row, window: Window, y: float, style: str) -> Markup:
    begin, end = _x(row["begin_at"], window), _x(row["end_at"], window)
    tooltip = f"{row['trouble']} for {row['length_ms']:,} ms from {format_time(row['begin_at'])}"
    if row["is_open"]:
        tooltip += ", without a reported end"
    return svg.bar(begin, y + 3, max(end - begin, LEAST_WIDTH), LANE - 5, tooltip, style=style)


def _times(window: Window, height: float) -> tuple[Markup, Markup]:
    return _axis(format_time(window.begin_ms), format_time(window.end_ms), height)


def _axis(begin: str, end: str, height: float) -> tuple[Markup, Markup]:
    y = height - 5
    return svg.text(LEFT, y, begin), svg.text(WIDTH - RIGHT, y, end, style="end")


def _name(partition: tuple[str, int], y: float) -> Markup:
    name = "/".join(map(str, partition))
    short = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
    return svg.text(LEFT - 6, y + 11, short, style="value")


def _x(time_ms: int, window: Window) -> float:
    share = (time_ms - window.begin_ms) / max(1, window.end_ms - window.begin_ms)
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0), 1)
