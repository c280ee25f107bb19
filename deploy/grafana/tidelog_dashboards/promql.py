"""The forms of query that our panels share. `selector`: matchers without their braces; `by`:
the labels that are kept, with commas between them."""

from __future__ import annotations

from typing import Final

# Grafana makes it long enough for two scrapes.
_WINDOW: Final = "[$__rate_interval]"


def per_second(metric: str, selector: str, by: str = "") -> str:
    """A counter's rate."""
    return f"{_sum(by)} (rate({metric}{{{selector}}}{_WINDOW}))"


def times(metric: str, selector: str, by: str = "") -> str:
    """How often what a counter counts has happened, between two points of the graph or so."""
    return f"{_sum(by)} (increase({metric}{{{selector}}}{_WINDOW}))"


def quantile(share: float, metric: str, selector: str, by: str = "") -> str:
    """Of a histogram; `share` from 0 to 1."""
    rate = per_second(f"{metric}_bucket", selector, f"le, {by}" if by else "le")
    return f"histogram_quantile({share:g}, {rate})"


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
