"""Percentiles. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# The reported percentiles: by name, the share of values that are smaller.
REPORTED = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
# For distributions that are drawn: finer towards the end, where the outliers are.
DRAWN = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)


class Timed(NamedTuple):
    """The latency of `samples` requests, in milliseconds.

    - `failed`: the number of failed requests.
    - `p`: percentiles by name.
    - `shape`: the distribution, as pairs of share and latency.
    """

    samples: int
    failed: int
    p: Mapping[str, float]
    shape: Sequence[tuple[float, float]]


def timed(values: Sequence[float], failed: int = 0) -> Timed:
    """Summarizes sorted values."""
    return Timed(len(values), failed, percentiles(values), distribution(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Returns one of the sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    """Returns each percentile of REPORTED for which there are enough sorted values. A p99.9 of a
    hundred values would be just the largest."""
    return {
        name: percentile(values, share)
        for name, share in REPORTED.items()
        if len(values) * (1 - share) >= 1 - 1e-9
    }


def distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """Returns pairs of share and value of sorted values, for shares with enough values."""
    return [
        (share, percentile(values, share))
        for share in DRAWN
        if values and (share == 1.0 or len(values) * (1 - share) >= 1 - 1e-9)
    ]
