"""The results of growing and shrinking, and their bounds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.grow.ledger import ReadBack
from bench.report import Measured, at_most

WANTED_P99_RATIO = 3.0
WANTED_SPREAD = 1
WANTED_MOVED_RATIO = 1.1
# Beyond the throttle and the load itself, because batches are not split.
WANTED_RATE_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """Of one operation and of the elections that follow it; `results.py` explains each by its
    key."""

    operation: str
    duration_s: float
    samples: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    p99_ratio: float
    replicas_planned: int
    replicas_moved: int
    replicas_minimum: int
    bytes_moved: float
    bytes_received: float
    bytes_minimum: float
    bytes_told: int
    replicas_by_broker: dict[int, int]
    leaders_by_broker: dict[int, int]
    replica_spread: int
    leader_spread: int
    leader_spread_before_election: int
    throttle_bytes_per_second: int
    bytes_per_second: float
    peak_bytes_per_second: float
    rate_ratio: float
    cores: dict[str, float]

    @property
    def replicas_ratio(self) -> float:
        return ratio(self.replicas_moved, self.replicas_minimum)

    @property
    def bytes_ratio(self) -> float:
        return ratio(self.bytes_moved, self.bytes_minimum)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Of one cluster from its start to its end.

    `late_p99_ms`: by how much the load was behind its schedule when it sent, which is part of every
    latency."""

    quiet_samples: int
    quiet_p50_ms: float
    quiet_p99_ms: float
    quiet_cores: dict[str, float]
    late_p99_ms: float
    sent: int
    failed: int
    bytes_filled: int
    fill_s: float
    grow: MoveFigures
    shrink: MoveFigures
    read_back: ReadBack


def ratio(value: float, minimum: float) -> float:
    """1 if nothing was needed and nothing done."""
    if minimum == 0:
        return 1.0 if value == 0 else float("inf")
    return value / minimum


def verdicts(runs: Sequence[RunFigures]) -> list[Measured]:
    """Medians where a median is required; otherwise the worst of all runs."""
    results = [
        at_most("failed produces, all runs", sum(r.failed for r in runs), 0, ""),
        at_most(
            "acknowledged records not read back, all runs",
            sum(r.read_back.lost for r in runs),
            0,
            "",
        ),
        at_most("records read twice, all runs", sum(r.read_back.duplicates for r in runs), 0, ""),
        Measured("produce latency, quiet: p50", median(r.quiet_p50_ms for r in runs), "ms"),
        Measured("produce latency, quiet: p99", median(r.quiet_p99_ms for r in runs), "ms"),
        Measured(
            "processor of all parts, quiet",
            median(sum(r.quiet_cores.values()) for r in runs),
            "cores",
        ),
    ]
    results += _of_move("grow", [r.grow for r in runs])
    results += _of_move("shrink", [r.shrink for r in runs])
    return results


def _of_move(name: str, moves: Sequence[MoveFigures]) -> list[Measured]:
    def middle(value: Callable[[MoveFigures], float]) -> float:
        return median(map(value, moves))

    def worst(value: Callable[[MoveFigures], float]) -> float:
        return max(map(value, moves))

    bound = WANTED_MOVED_RATIO
    return [
        Measured(f"{name}: duration", middle(lambda m: m.duration_s), "s"),
        Measured(f"{name}: produce latency, p99", middle(lambda m: m.p99_ms), "ms"),
        at_most(
            f"{name}: p99 against the quiet one",
            middle(lambda m: m.p99_ratio),
            WANTED_P99_RATIO,
            "times",
        ),
        Measured(
            f"{name}: processor of all parts", middle(lambda m: sum(m.cores.values())), "cores"
        ),
        Measured(f"{name}: replicas moved", worst(lambda m: m.replicas_moved), ""),
        Measured(f"{name}: fewest that balance", worst(lambda m: m.replicas_minimum), ""),
        at_most(
            f"{name}: replicas against the fewest",
            worst(lambda m: m.replicas_ratio),
            bound,
            "times",
        ),
        Measured(f"{name}: moved", middle(lambda m: m.bytes_moved / 1e6), "MB"),
        Measured(f"{name}: least that balances", middle(lambda m: m.bytes_minimum / 1e6), "MB"),
        at_most(f"{name}: bytes against the least", worst(lambda m: m.bytes_ratio), bound, "times"),
        at_most(
            f"{name}: replicas, most against fewest of a broker",
            worst(lambda m: m.replica_spread),
            WANTED_SPREAD,
            "",
        ),
        at_most(
            f"{name}: leaders, most against fewest of a broker",
            worst(lambda m: m.leader_spread),
            WANTED_SPREAD,
            "",
        ),
        Measured(
            f"{name}: throttle of each broker",
            middle(lambda m: m.throttle_bytes_per_second / 1e6),
            "MB/s",
        ),
        Measured(
            f"{name}: most that a broker received",
            worst(lambda m: m.peak_bytes_per_second / 1e6),
            "MB/s",
        ),
        Measured(f"{name}: rate, all brokers", middle(lambda m: m.bytes_per_second / 1e6), "MB/s"),
        at_most(
            f"{name}: that against what throttle and load allow",
            worst(lambda m: m.rate_ratio),
            WANTED_RATE_RATIO,
            "times",
        ),
    ]
