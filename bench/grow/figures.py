"""The results of growing and shrinking, and their bounds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.grow.ledger import ReadBack
from bench.report import Measured, at_most

MAX_P99_RATIO = 3.0
MAX_SPREAD = 1
MAX_MOVED_RATIO = 1.1
# Beyond the throttle and the load itself, because batches are not split.
MAX_RATE_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """The values of one operation and of the elections that follow it.

    - `operation`: its id.
    - `duration_s`: from the request until replicas are moved and in sync, and leaders are balanced.
    - `samples`, `p50_ms`, `p99_ms`, `longest_ms`: the produce requests that were due during that
      time. A latency counts from the due time to the acknowledgement by all replicas.
    - `p99_ratio`: `p99_ms` divided by `quiet_p99_ms` of the same run.
    - `replicas_planned`: the copies in the plan, before the operation began.
    - `replicas_moved`: replicas on brokers that had none of their partition before.
    - `replicas_minimum`: growing: what brokers lack to floor(total / brokers); shrinking: what the
      removed broker held.
    - `bytes_moved`: bytes that leaders sent to followers beyond the load, as brokers count them.
      Bytes that were sent twice count twice.
    - `bytes_received`: the part of `bytes_moved` that followers received.
    - `bytes_minimum`: growing: `replicas_minimum` times the mean size of a replica at the start;
      shrinking: the bytes that the removed broker held at the start.
    - `bytes_reported`: `bytes_copied` of the operation, from the controller; 0: not reported.
    - `replicas_by_broker`, `leaders_by_broker`: afterwards, of the brokers that take part.
    - `replica_spread`, `leader_spread`: the largest of these numbers less the smallest.
    - `leader_spread_before_election`: the spread before preferred leaders were elected by request,
      if the cluster had not elected them by itself within ten seconds.
    - `throttle_bytes_per_second`: the throttle of each broker.
    - `bytes_per_second`: `bytes_received` divided by `duration_s`, all brokers together.
    - `peak_bytes_per_second`: the highest rate at which a broker received, within about five
      seconds, including the records of the load.
    - `rate_ratio`: the most that a broker received within about five seconds, divided by what the
      throttle (with a burst of a fifth of a second) and the load allowed.
    - `cores`: cores that `brokers`, `controllers`, `etcd` and the `load` kept busy.
    - `replicas_ratio`, `bytes_ratio`: moved divided by the minimum.
    """

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
    bytes_reported: int
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

    def as_json(self) -> dict[str, object]:
        ratios = {"replicas_ratio": self.replicas_ratio, "bytes_ratio": self.bytes_ratio}
        return asdict(self) | ratios


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The values of one cluster from its start to its end.

    - `quiet_samples`, `quiet_p50_ms`, `quiet_p99_ms`: latencies before brokers are added.
    - `quiet_cores`: cores that `brokers`, `controllers`, `etcd` and the `load` kept busy at that
      time.
    - `late_p99_ms`: by how much the load was behind its schedule when it sent. This is part of
      every latency.
    - `sent`, `failed`: produce requests.
    - `bytes_filled`, `fill_s`: the data written before the load, and the duration.
    - `grow`, `shrink`: the two operations; see below.
    - `read_back`: the records that were read at the end; see below.
    """

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

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"grow": self.grow.as_json(), "shrink": self.shrink.as_json()}


def ratio(value: float, minimum: float) -> float:
    """Returns the quotient; 1 if both are 0."""
    if minimum == 0:
        return 1.0 if value == 0 else float("inf")
    return value / minimum


def verdicts(runs: Sequence[RunFigures]) -> list[Measured]:
    """Returns medians if a median is required, and otherwise the worst of all runs."""
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

    bound = MAX_MOVED_RATIO
    return [
        Measured(f"{name}: duration", middle(lambda m: m.duration_s), "s"),
        Measured(f"{name}: produce latency, p99", middle(lambda m: m.p99_ms), "ms"),
        at_most(
            f"{name}: p99 against the quiet p99",
            middle(lambda m: m.p99_ratio),
            MAX_P99_RATIO,
            "times",
        ),
        Measured(
            f"{name}: processor of all parts", middle(lambda m: sum(m.cores.values())), "cores"
        ),
        Measured(f"{name}: replicas moved", worst(lambda m: m.replicas_moved), ""),
        Measured(f"{name}: fewest replicas that balance", worst(lambda m: m.replicas_minimum), ""),
        at_most(
            f"{name}: replicas against the fewest",
            worst(lambda m: m.replicas_ratio),
            bound,
            "times",
        ),
        Measured(f"{name}: bytes moved", middle(lambda m: m.bytes_moved / 1e6), "MB"),
        Measured(
            f"{name}: fewest bytes that balance", middle(lambda m: m.bytes_minimum / 1e6), "MB"
        ),
        at_most(
            f"{name}: bytes against the fewest", worst(lambda m: m.bytes_ratio), bound, "times"
        ),
        at_most(
            f"{name}: replicas, most against fewest of a broker",
            worst(lambda m: m.replica_spread),
            MAX_SPREAD,
            "",
        ),
        at_most(
            f"{name}: leaders, most against fewest of a broker",
            worst(lambda m: m.leader_spread),
            MAX_SPREAD,
            "",
        ),
        Measured(
            f"{name}: throttle of each broker",
            middle(lambda m: m.throttle_bytes_per_second / 1e6),
            "MB/s",
        ),
        Measured(
            f"{name}: highest rate of a broker",
            worst(lambda m: m.peak_bytes_per_second / 1e6),
            "MB/s",
        ),
        Measured(f"{name}: rate, all brokers", middle(lambda m: m.bytes_per_second / 1e6), "MB/s"),
        at_most(
            f"{name}: rate of a broker against throttle and load",
            worst(lambda m: m.rate_ratio),
            MAX_RATE_RATIO,
            "times",
        ),
    ]
