"""The times at which brokers were lost, as other services reported them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.state_changes.event import Cause, Kind, StateChange
from tidelog.state_changes.tracing import CAUSE_WINDOW_MS, traces_of

DEPARTURE_KINDS = (Kind.BROKER_FENCED, Kind.BROKER_LEFT)


class Departure(NamedTuple):
    """The end of a broker's incarnation.

    - `at_ms`: of its first sign; for an expired lease, when the expiry was noticed.
    """

    at_ms: int
    broker: int
    broker_epoch: int
    cause: Cause


Departures = Mapping[int, Sequence[Departure]]


def departures_in(events: Iterable[StateChange]) -> Departures:
    """Returns departures by broker, ordered by time.

    Each incarnation of a broker ends once, however many services report it.
    """
    first: dict[tuple[int, int], Departure] = {}
    for trace in traces_of(event for event in events if event.kind in DEPARTURE_KINDS):
        headline = trace.headline
        found = Departure(trace.began_ms, headline.broker, headline.broker_epoch, trace.cause)
        key = (headline.broker, headline.broker_epoch)
        first[key] = min(first.get(key, found), found)
    departures: dict[int, list[Departure]] = {}
    for found in sorted(first.values()):
        departures.setdefault(found.broker, []).append(found)
    return departures


def departure_before(departures: Departures, broker: int, time_ms: int) -> Departure | None:
    """Returns the broker's last departure that is recent enough to be the cause of an event."""
    near = [
        one
        for one in departures.get(broker, ())
        if time_ms - CAUSE_WINDOW_MS <= one.at_ms <= time_ms
    ]
    return near[-1] if near else None
