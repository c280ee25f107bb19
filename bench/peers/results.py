"""The results of `make bench-peers`: a table, and `out/bench-peers.json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, NamedTuple

from bench.peers.settings import (
    BATCHES,
    FULL,
    KAFKA,
    KAFKA_TOOLS,
    NATS,
    ONE_IN_FLIGHT,
    PRODUCE_ALL,
    PRODUCE_ONE,
    RECORDS,
    SPEED,
    TIDELOG,
    TO_CONSUMER,
    Figures,
    Settings,
)
from bench.report import Measured, at_least, at_most, document

# The bounds of Tidelog's value divided by the peer's: at least, and for latencies at most.
AT_LEAST = {
    (PRODUCE_ALL, KAFKA, SPEED): 1.0,
    (PRODUCE_ALL, KAFKA_TOOLS, SPEED): 1.0,
    (RECORDS, KAFKA, SPEED): 1.0,
}
AT_MOST = {(ONE_IN_FLIGHT, KAFKA, "p99"): 1.0}
_COMPARED = (
    *((work, peer, SPEED) for work in (PRODUCE_ALL, PRODUCE_ONE) for peer in (KAFKA, KAFKA_TOOLS)),
    (PRODUCE_ALL, NATS, SPEED),
    *((ONE_IN_FLIGHT, peer, share) for peer in (KAFKA, NATS) for share in ("p50", "p99")),
    *((TO_CONSUMER, KAFKA_TOOLS, share) for share in ("p50", "p99")),
    (RECORDS, KAFKA, SPEED),
    (RECORDS, NATS, SPEED),
    (BATCHES, KAFKA_TOOLS, SPEED),
)


class Done(NamedTuple):
    """A piece of work of one peer.

    - `work`, `peer`: their names.
    - `round`: counted from 1.
    - `figures`: values by unit, or by percentile in milliseconds.
    """

    work: str
    peer: str
    round: int
    figures: Figures


def values(done: Sequence[Done], work: str, peer: str, figure: str) -> list[float]:
    """Returns the values by round, without rounds that have too few samples for the value."""
    return [
        one.figures[figure]
        for one in done
        if (one.work, one.peer) == (work, peer) and figure in one.figures
    ]


def verdicts(settings: Settings, done: Sequence[Done], ceilings: Sequence[float]) -> list[Measured]:
    """Returns medians; for ratios, the median over rounds. Only the full form has bounds."""
    speeds = [Measured("gRPC ceiling C, 64 KiB messages, 8 in flight", median(ceilings), "MB/s")]
    columns = dict.fromkeys(
        (one.work, one.peer, figure)
        for one in done
        for figure in one.figures
        if figure not in ("failed", "MB/s")
    )
    for work, peer, figure in columns:
        unit = "ms" if figure != SPEED else figure
        name = f"{work}, {peer}" + ("" if figure == SPEED else f": {figure}")
        speeds.append(Measured(name, median(values(done, work, peer, figure)), unit))
    failed = sum(one.figures.get("failed", 0) for one in done)
    has_bounds = settings.pairs >= FULL.pairs
    ratios = [
        _ratio(done, work, peer, figure, has_bounds=has_bounds)
        for work, peer, figure in _COMPARED
        if values(done, work, peer, figure) and values(done, work, TIDELOG, figure)
    ]
    return [*speeds, *ratios, at_most("records that were not acknowledged", failed, 0, "")]


def _ratio(
    done: Sequence[Done], work: str, peer: str, figure: str, *, has_bounds: bool
) -> Measured:
    pairs = zip(values(done, work, TIDELOG, figure), values(done, work, peer, figure), strict=True)
    ratio = median([ours / theirs for ours, theirs in pairs])
    suffix = "" if figure == SPEED else f": {figure}"
    name = f"{work}, Tidelog over {peer}{suffix}"
    key = (work, peer, figure)
    if has_bounds and key in AT_LEAST:
        return at_least(name, ratio, AT_LEAST[key], "times")
    if has_bounds and key in AT_MOST:
        return at_most(name, ratio, AT_MOST[key], "times")
    return Measured(name, ratio, "times")


def content(
    form: str,
    settings: Settings,
    set_up: Mapping[str, str],
    done: Sequence[Done],
    ceilings: Sequence[float],
) -> dict[str, Any]:
    """Returns the keys of the file.

    - `set_up`: versions and settings of all peers, as texts.
    - `ceilings`: for each round, the throughput of the no-op gRPC call in 10^6 bytes per second.
    - `done`: each piece of work of each peer in each round; see below.
    """
    results = verdicts(settings, done, ceilings)
    return {
        **document(form, asdict(settings), results),
        "set_up": dict(set_up),
        "ceilings": list(ceilings),
        "done": [one._asdict() for one in done],
    }
