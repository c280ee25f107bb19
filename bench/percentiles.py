"""Percentiles and medians. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# By name, the share of values that are smaller.
TOLD = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# For distributions that are drawn: finer towards the end, where the outliers are.
DRAWN = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)


class Timed(NamedTuple):
    """The latency of `samples` requests, in milliseconds.

    `p`: by the name of a percentile.
    `shape`: their distribution.
    `failed`: the number of failed requests."""

    samples: int
    failed: int
    p: Mapping[str, float]
    shape: Sequence[tuple[float, float]]


def timed(values: Sequence[float], failed: int = 0) -> Timed:
    """From sorted values."""
    return Timed(len(values), failed, told(values), distribution(values))


def percentile(values: Sequence[float], share: float) -> float:
    """From sorted values: one of them."""
    return values[min(len(values) - 1, int(share * len(values)))]


def told(values: Sequence[float]) -> Mapping[str, float]:
    """From sorted values: each percentile of TOLD for which there are enough values. A p99.9 of a
    hundred values would be just the largest."""
    return {
        name: percentile(values, share)
        for name, share in TOLD.items()
        if len(values) * (1 - share) >= 1 - 1e-9
    }


def distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """From sorted values: (share, value), as far as there are enough values for a share."""
    return [
        (share, percentile(values, share))
        for share in DRAWN
        if values and (share == 1.0 or len(values) * (1 - share) >= 1 - 1e-9)
    ]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
