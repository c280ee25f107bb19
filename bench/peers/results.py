"""The results: a table, and `out/bench-peers.json` (in all but its full form
`out/bench-peers.partial.json`). Pure, but for `write`.

The file holds `machine`; `form` and `settings`, as requested; `set_up`: releases and settings of
all peers, as texts; `results`: the rows of the table, a list of `name`, `value`, `unit`, `wanted`
(the bound, as a text) and `met` (null where there is no bound); `not_met`: names of results beyond
their bounds; `ceilings`: for each round, C in 10^6 bytes per second; `done`: each piece of work of
each peer in each round, with `work`, `peer`, `round` and its `figures`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.names import (
    BATCHES,
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
)
from bench.peers.settings import FULL, Settings
from bench.percentiles import median
from bench.report import Measured, at_least, at_most, machine, not_met, rows

FULL_FILE, PARTIAL_FILE = "bench-peers.json", "bench-peers.partial.json"
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
    """`round`: from 1."""

    work: str
    peer: str
    round: int
    figures: Figures


def values(done: Sequence[Done], work: str, peer: str, figure: str) -> list[float]:
    """By round; rounds with too few samples for the value are missing."""
    return [
        one.figures[figure]
        for one in done
        if (one.work, one.peer) == (work, peer) and figure in one.figures
    ]


def verdicts(settings: Settings, done: Sequence[Done], ceilings: Sequence[float]) -> list[Measured]:
    """Medians; for ratios the median over rounds. Only the full form has bounds."""
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
    is_judged = settings.pairs >= FULL.pairs
    ratios = [
        _ratio(done, work, peer, figure, is_judged=is_judged)
        for work, peer, figure in _COMPARED
        if values(done, work, peer, figure) and values(done, work, TIDELOG, figure)
    ]
    return [*speeds, *ratios, at_most("records that were not acknowledged", failed, 0, "")]


def _ratio(done: Sequence[Done], work: str, peer: str, figure: str, *, is_judged: bool) -> Measured:
    pairs = zip(values(done, work, TIDELOG, figure), values(done, work, peer, figure), strict=True)
    ratio = median([ours / theirs for ours, theirs in pairs])
    suffix = "" if figure == SPEED else f": {figure}"
    name = f"{work}, Tidelog over {peer}{suffix}"
    key = (work, peer, figure)
    if is_judged and key in AT_LEAST:
        return at_least(name, ratio, AT_LEAST[key], "times")
    if is_judged and key in AT_MOST:
        return at_most(name, ratio, AT_MOST[key], "times")
    return Measured(name, ratio, "times")


def content(
    form: str,
    settings: Settings,
    set_up: Mapping[str, str],
    done: Sequence[Done],
    ceilings: Sequence[float],
) -> dict[str, Any]:
    results = verdicts(settings, done, ceilings)
    return {
        "machine": machine(),
        "form": form,
        "settings": asdict(settings),
        "set_up": dict(set_up),
        "results": rows(results),
        "not_met": not_met(results),
        "ceilings": list(ceilings),
        "done": [one._asdict() for one in done],
    }


def write(directory: Path, what: Mapping[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (FULL_FILE if what["form"] == "full" else PARTIAL_FILE)
    path.write_text(json.dumps(what, indent=2) + "\n")
    return path
