"""Which departed brokers to report."""

from __future__ import annotations

from tidelog.state_changes.event import Cause
from tidelog_runtime.departed_brokers import REPORT_WITHOUT_REPLICAS_MS, departed_brokers
from tidelog_runtime.metadata.schema import Departure

LEFT_MS = 1_000


def left(broker_epoch: int, at_ms: int = LEFT_MS) -> Departure:
    return Departure(broker_epoch, Cause.BROKER_CRASHED, at_ms, f"h:{broker_epoch}")


def ids(
    departures: dict[int, Departure],
    *,
    registered: tuple[int, ...] = (),
    holders: tuple[int, ...] = (),
    wall_ms: int = LEFT_MS,
) -> list[int]:
    missed = departed_brokers(departures, registered, lambda broker: broker in holders, wall_ms)
    return [departure.broker_id for departure in missed]


def test_the_newest_departure_comes_first() -> None:
    assert ids({1: left(10, 5), 2: left(11, 9), 3: left(12, 7)}) == [2, 3, 1]


def test_a_returned_broker_is_not_listed() -> None:
    assert ids({1: left(10), 2: left(11)}, registered=(2,)) == [1]


def test_a_departed_broker_without_replicas_is_listed_for_a_day() -> None:
    departures = {1: left(10), 2: left(11)}
    assert ids(departures, holders=(2,), wall_ms=LEFT_MS + REPORT_WITHOUT_REPLICAS_MS) == [1, 2]
    assert ids(departures, holders=(2,), wall_ms=LEFT_MS + REPORT_WITHOUT_REPLICAS_MS + 1) == [2]


def test_a_departed_incarnation_is_listed_as_stored() -> None:
    (missed,) = departed_brokers({1: left(10)}, (), bool, LEFT_MS)
    assert (missed.broker_epoch, missed.cause) == (10, "broker_crashed")
    assert (missed.at_ms, missed.address) == (LEFT_MS, "h:10")
