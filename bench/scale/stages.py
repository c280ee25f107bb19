"""The stages of a change of very many leaders, from the events of services. Pure.

Times are milliseconds of the wall clock, which all processes of one machine share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.state_changes.event import Kind, Stage, StateChange


class MissingEventsError(Exception):
    """Events of a stage are missing, or are fewer than the partitions."""


class Failover(NamedTuple):
    """The stages of a failover, in milliseconds.

    - `detected`: from the SIGKILL until a controller detected it.
    - `decided`: the part of `stored` until the last election was requested.
    - `stored`: from then until the store had the last election.
    - `received`: until the last new leader had received its command.
    - `writable`: until the last new leader led.
    """

    leaders: int
    detected: float
    decided: float
    stored: float
    received: float
    writable: float

    @property
    def after_detection(self) -> float:
        return self.stored + self.received + self.writable


class Takeover(NamedTuple):
    """The stages of a takeover, in milliseconds.

    - `elected`: from the SIGKILL until another controller was elected. The lease of its predecessor
      has to expire.
    - `loaded`, `first_command`, `all_taken`: from then until everything was loaded, until the first
      command, and until all brokers had acknowledged their commands.
    """

    elected: float
    loaded: float
    first_command: float
    all_taken: float


def failover(
    events: Iterable[StateChange], topics: Iterable[str], leaders: int, killed_ms: float
) -> Failover:
    """Raises `MissingEventsError`."""
    named = set(topics)
    since = [event for event in events if event.time_ms >= killed_ms - 1]
    noticed = _times(since, Kind.BROKER_FENCED, Stage.REQUESTED) or _times(
        since, Kind.BROKER_LEFT, Stage.COMPLETED
    )
    if not noticed:
        raise MissingEventsError("no controller reported the loss of the broker")
    ours = [event for event in since if event.topic in named]
    requested = _last(ours, Kind.ELECTION, Stage.REQUESTED, leaders)
    stored = _last(ours, Kind.ELECTION, Stage.COMPLETED, leaders)
    received = _last(ours, Kind.BECOME_LEADER, Stage.RECEIVED, leaders)
    led = _last(ours, Kind.BECOME_LEADER, Stage.COMPLETED, leaders)
    detected = min(noticed)
    return Failover(
        leaders,
        detected - killed_ms,
        max(0.0, requested - detected),
        max(0.0, stored - detected),
        max(0.0, received - stored),
        max(0.0, led - max(received, stored)),
    )


def takeover(events: Iterable[StateChange], killed_ms: float, brokers: int) -> Takeover:
    """Raises `MissingEventsError`."""
    since = [event for event in events if event.time_ms >= killed_ms - 1]
    elected = _first(since, Kind.CONTROLLER_ELECTED, Stage.COMPLETED)
    loaded = _first(since, Kind.CONTROLLER_LOADED, Stage.COMPLETED)
    of_term = [
        event
        for event in since
        if event.service.startswith("controller") and event.time_ms >= elected
    ]
    first = _first(of_term, Kind.COMMAND, Stage.REQUESTED)
    taken = _last(of_term, Kind.COMMAND, Stage.ACKNOWLEDGED, brokers)
    return Takeover(elected - killed_ms, loaded - elected, first - elected, taken - elected)


def handed_over(events: Iterable[StateChange], broker: int, requested_ms: float) -> float:
    """Returns the milliseconds from the SIGTERM until a broker had transferred all leaderships.

    Raises `MissingEventsError`, also if the broker did not transfer all.
    """
    of_broker = [e for e in events if e.broker == broker and e.time_ms >= requested_ms - 1]
    return _first(of_broker, Kind.BROKER_STOPPING, Stage.COMPLETED) - requested_ms


def elections(events: Iterable[StateChange], topics: Iterable[str], since_ms: float) -> int:
    named = set(topics)
    return sum(
        event.topic in named
        and event.kind is Kind.ELECTION
        and event.stage is Stage.COMPLETED
        and event.time_ms >= since_ms
        for event in events
    )


def last_in_sync(events: Iterable[StateChange], topics: Iterable[str], since_ms: float) -> float:
    """Returns the milliseconds until the last replica was in its ISR again.

    Raises `MissingEventsError`.
    """
    named = set(topics)
    ours = [e for e in events if e.topic in named and e.time_ms >= since_ms - 1]
    return _last(ours, Kind.ISR_EXPAND, Stage.COMPLETED, 1) - since_ms


def _times(events: Iterable[StateChange], kind: Kind, stage: Stage) -> list[int]:
    return [event.time_ms for event in events if event.kind is kind and event.stage is stage]


def _first(events: Sequence[StateChange], kind: Kind, stage: Stage) -> int:
    times = _times(events, kind, stage)
    if not times:
        raise MissingEventsError(f"there is no event {kind.value} {stage.value}")
    return min(times)


def _last(events: Sequence[StateChange], kind: Kind, stage: Stage, at_least: int) -> int:
    times = _times(events, kind, stage)
    if len(times) < at_least:
        raise MissingEventsError(
            f"there are {len(times):,} events {kind.value} {stage.value}, not {at_least:,}"
        )
    return max(times)
