"""How cost grows with the number of partitions. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.suite.outcome import Point


def exponent(points: Sequence[Point]) -> float | None:
    """Returns the power of the size with which cost grows: 1 is linear, 0 constant.

    Uses least squares between the logarithms. None: there are less than two sizes with a cost above
    0.
    """
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    over = sum((x - mean_x) * (y - mean_y) for x, y in logs)
    return over / sum((x - mean_x) ** 2 for x, _ in logs)
