"""Query forms that panels share.

`selector`: label matchers without braces.
`by`: the labels to keep, separated by commas.
"""

from __future__ import annotations

from typing import Final

# Grafana makes this interval long enough for two scrapes.
_WINDOW: Final = "[$__rate_interval]"


def per_second(metric: str, selector: str, by: str = "") -> str:
    """The rate of a counter."""
    return f"{_sum(by)} (rate({metric}{{{selector}}}{_WINDOW}))"


def times(metric: str, selector: str, by: str = "") -> str:
    """The increase of a counter, over about the distance between two points of the graph."""
    return f"{_sum(by)} (increase({metric}{{{selector}}}{_WINDOW}))"


def quantile(share: float, metric: str, selector: str, by: str = "") -> str:
    """A quantile of a histogram. `share`: from 0 to 1."""
    rate = per_second(f"{metric}_bucket", selector, f"le, {by}" if by else "le")
    return f"histogram_quantile({share:g}, {rate})"


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
