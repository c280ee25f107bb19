"""The results of latencies, and their bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.percentiles import Timed
from bench.report import Measured, at_most
from bench.suite.outcome import Chart, Line, Outcome, Point

MAX_MS = {"p50": 2.5, "p99": 10.0}
TO_ACK, TO_CONSUMER = "to ack", "to consumer"


class OneInFlight(NamedTuple):
    """Latencies with one record in flight.

    - `alone`, `single`: without a consumer, with factor 3 and with factor 1.
    - `to_ack`, `to_consumer`: while a consumer reads.
    """

    alone: Timed
    single: Timed
    to_ack: Timed
    to_consumer: Timed


class Rate(NamedTuple):
    rate: int
    to_ack: Timed
    to_consumer: Timed


def outcome(one: OneInFlight, rates: Sequence[Rate]) -> Outcome:
    results = [
        *_bounded("one in flight, acks=all, factor 3", one.alone),
        *_percentile_rows("one in flight, factor 1", one.single),
        *_percentile_rows(f"one in flight beside a consumer, {TO_ACK}", one.to_ack),
        *_percentile_rows(f"one in flight, {TO_CONSUMER}", one.to_consumer),
    ]
    for rate, to_ack, to_consumer in rates:
        results += _percentile_rows(f"{rate:,} records/s, open loop, {TO_ACK}", to_ack)
        results += _percentile_rows(f"{rate:,} records/s, open loop, {TO_CONSUMER}", to_consumer)
        results.append(at_most(f"{rate:,} records/s: failed sends", to_ack.failed, 0, ""))
    details = {
        "one_in_flight": {name: timed._asdict() for name, timed in one._asdict().items()},
        "rates": [
            {
                "rate": found.rate,
                "to_ack": found.to_ack._asdict(),
                "to_consumer": found.to_consumer._asdict(),
            }
            for found in rates
        ],
    }
    return Outcome(results, _charts(one, rates), details)


def _bounded(what: str, timed: Timed) -> Iterable[Measured]:
    yield from (
        at_most(f"{what}: {name}", timed.p[name], bound, "ms")
        if name in timed.p
        else Measured(f"{what}: {name}, of {timed.samples} samples", 0, "ms", None, "more", False)
        for name, bound in MAX_MS.items()
    )
    yield from (
        r for r in _percentile_rows(what, timed) if r.name.rpartition(": ")[2] not in MAX_MS
    )


def _percentile_rows(what: str, timed: Timed) -> Iterable[Measured]:
    return (Measured(f"{what}: {name}", value, "ms") for name, value in timed.p.items())


def _charts(one: OneInFlight, rates: Sequence[Rate]) -> list[Chart]:
    shapes = {
        "one in flight, to ack": one.alone,
        "one in flight, to consumer": one.to_consumer,
        **{f"{found.rate:,}/s, to ack": found.to_ack for found in rates},
        **{f"{found.rate:,}/s, to consumer": found.to_consumer for found in rates},
    }
    lines = [
        Line(name, [Point(_nines(share), value) for share, value in timed.shape if share < 1])
        for name, timed in shapes.items()
    ]
    over_rate = [
        Line(
            f"{name} {where}",
            [
                Point(found.rate, timed.p[name])
                for found in rates
                if name in (timed := found.to_ack if where == TO_ACK else found.to_consumer).p
            ],
        )
        for where in (TO_ACK, TO_CONSUMER)
        for name in ("p50", "p99")
    ]
    return [
        Chart(
            "latency-distribution",
            "Latency, acks=all, factor 3, 1 KiB (open loops: from the due time)",
            "one of this many records waits longer",
            "ms",
            lines,
            x_log=True,
            y_log=True,
        ),
        Chart(
            "latency-rate",
            "Latency over the rate",
            "records a second",
            "ms",
            over_rate,
            x_log=True,
            y_log=True,
        ),
    ]


def _nines(share: float) -> float:
    """
    >>> round(_nines(0.99))
    100
    """
    return 1 / (1 - share)
