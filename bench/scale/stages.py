"""The stages of a change of very many leaders, from the events of services. Pure.

Times are milliseconds of the wall clock, which all processes of one machine share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.state_changes.event import Kind, Stage, StateChange


class MissingEventsError(Exception):
    """Events of a stage are missing, or are fewer than the partitions."""


class Failover(NamedTuple):
    """Milliseconds, one after the other: from the SIGKILL until a controller detected it; until the
    store had the last election; until the last new leader was sent its command; until the last one
    led.

    `decided`: the part of `stored` until the last election was requested."""

    leaders: int
    detected: float
    decided: float
    stored: float
    told: float
    writable: float

    @property
    def after_detection(self) -> float:
        return self.stored + self.told + self.writable


class Takeover(NamedTuple):
    """Milliseconds: from the SIGKILL until another controller was elected (its predecessor's lease
    has to expire); from then until everything was loaded; until the first command; until all
    brokers had acknowledged theirs."""

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
        raise MissingEventsError("no controller told that the broker had gone")
    ours = [event for event in since if event.topic in named]
    asked = _last(ours, Kind.ELECTION, Stage.REQUESTED, leaders)
    stored = _last(ours, Kind.ELECTION, Stage.COMPLETED, leaders)
    told = _last(ours, Kind.BECOME_LEADER, Stage.RECEIVED, leaders)
    led = _last(ours, Kind.BECOME_LEADER, Stage.COMPLETED, leaders)
    detected = min(noticed)
    return Failover(
        leaders,
        detected - killed_ms,
        max(0.0, asked - detected),
        max(0.0, stored - detected),
        max(0.0, told - stored),
        max(0.0, led - max(told, stored)),
    )


def takeover(events: Iterable[StateChange], killed_ms: float, brokers: int) -> Takeover:
    """Raises `MissingEventsError`."""
    since = [event for event in events if event.time_ms >= killed_ms - 1]
    elected = _first(since, Kind.CONTROLLER_ELECTED, Stage.COMPLETED)
    loaded = _first(since, Kind.CONTROLLER_LOADED, Stage.COMPLETED)
    of_reign = [
        event
        for event in since
        if event.service.startswith("controller") and event.time_ms >= elected
    ]
    first = _first(of_reign, Kind.COMMAND, Stage.REQUESTED)
    taken = _last(of_reign, Kind.COMMAND, Stage.ACKNOWLEDGED, brokers)
    return Takeover(elected - killed_ms, loaded - elected, first - elected, taken - elected)


def handed_over(events: Iterable[StateChange], broker: int, asked_ms: float) -> float:
    """Milliseconds from the SIGTERM until a broker had transferred all leaderships. Raises
    `MissingEventsError`, also if it gave up."""
    told = [e for e in events if e.broker == broker and e.time_ms >= asked_ms - 1]
    return _first(told, Kind.BROKER_STOPPING, Stage.COMPLETED) - asked_ms


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
    """Milliseconds until the last replica was back in its ISR. Raises `MissingEventsError`."""
    named = set(topics)
    ours = [e for e in events if e.topic in named and e.time_ms >= since_ms - 1]
    return _last(ours, Kind.ISR_EXPAND, Stage.COMPLETED, 1) - since_ms


def _times(events: Iterable[StateChange], kind: Kind, stage: Stage) -> list[int]:
    return [event.time_ms for event in events if event.kind is kind and event.stage is stage]


def _first(events: Sequence[StateChange], kind: Kind, stage: Stage) -> int:
    times = _times(events, kind, stage)
    if not times:
        raise MissingEventsError(f"nobody told {kind.value} {stage.value}")
    return min(times)


def _last(events: Sequence[StateChange], kind: Kind, stage: Stage, at_least: int) -> int:
    times = _times(events, kind, stage)
    if len(times) < at_least:
        raise MissingEventsError(
            f"{kind.value} {stage.value} was told {len(times):,} times, not {at_least:,}"
        )
    return max(times)
