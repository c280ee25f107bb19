"""The quantities that are measured of clusters of several sizes, their bounds, and their growth.
Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import NamedTuple

from bench.report import Measured, at_most
from bench.scale.by_size import name_of
from bench.suite.outcome import Chart, Line, Outcome, Point


class Quantity(NamedTuple):
    """A measured quantity.

    - `bound`: the maximum at `bounded_size` partitions.
    - `grows_linearly`: linear growth is a bound, too.
    """

    key: str
    text: str
    unit: str
    bound: float | None = None
    grows_linearly: bool = False


@dataclass(slots=True)
class SizeFigures:
    """The results of one cluster, by the keys of quantities, and the reasons for missing ones."""

    partitions: int
    found: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def outcome(
    name: str,
    title: str,
    quantities: Sequence[Quantity],
    bounded_size: int,
    sizes: Sequence[SizeFigures],
) -> Outcome:
    results = [
        result for figures in sizes for result in _results(quantities, bounded_size, figures)
    ]
    growth = {
        quantity.key: power
        for quantity in quantities
        if (power := exponent(_points(quantity, sizes))) is not None
    }
    details = {
        "sizes": [
            {"partitions": one.partitions, "found": one.found, "problems": one.problems}
            for one in sizes
        ],
        "growth_exponents": {key: round(power, 3) for key, power in growth.items()},
    }
    return Outcome(results, _charts(name, title, quantities, sizes, growth), details)


def _results(
    quantities: Sequence[Quantity], bounded_size: int, figures: SizeFigures
) -> Sequence[Measured]:
    results = []
    for quantity in quantities:
        name = name_of(figures.partitions, quantity.text)
        value = figures.found.get(quantity.key)
        is_bounded = quantity.bound is not None and figures.partitions == bounded_size
        if value is not None and is_bounded:
            assert quantity.bound is not None
            results.append(at_most(name, value, quantity.bound, quantity.unit))
        elif value is not None:
            results.append(Measured(name, value, quantity.unit))
        elif is_bounded:
            target = f"<= {quantity.bound:g} {quantity.unit}; not measured"
            results.append(Measured(name, 0, quantity.unit, target=target, met=False))
    return [
        *results,
        *(
            Measured(
                name_of(figures.partitions, f"{step}: {why}"),
                0,
                "",
                target="measured",
                met=False,
            )
            for step, why in figures.problems.items()
        ),
    ]


def _points(quantity: Quantity, sizes: Sequence[SizeFigures]) -> list[Point]:
    return [
        Point(one.partitions, one.found[quantity.key]) for one in sizes if quantity.key in one.found
    ]


def _charts(
    name: str,
    title: str,
    quantities: Sequence[Quantity],
    sizes: Sequence[SizeFigures],
    growth: Mapping[str, float],
) -> list[Chart]:
    """Returns a chart for each unit, with logarithmic axes, on which a power of the size is a
    straight line."""
    by_unit: dict[str, list[Line]] = {}
    for quantity in quantities:
        points = [point for point in _points(quantity, sizes) if point.y > 0]
        if points:
            power = growth.get(quantity.key)
            label = "" if power is None else f" (n^{power:.2f})"
            by_unit.setdefault(quantity.unit, []).append(Line(quantity.text + label, points))
    return [
        Chart(
            f"{name}-{number}",
            title,
            "partitions",
            unit or "count",
            lines,
            x_log=True,
            y_log=True,
        )
        for number, (unit, lines) in enumerate(by_unit.items(), start=1)
    ]


def exponent(points: Sequence[Point]) -> float | None:
    """Returns the power of the size with which cost grows: 1 is linear, 0 constant.

    None: there are less than two sizes with a cost above 0.
    """
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return linear_regression(*zip(*logs, strict=True)).slope
