"""The successive partitions of one name. Pure.

A topic may be created again, and a partition may be removed and added again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.state_changes.change_trace import ChangeTrace
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_pipeline.state_changes.core.key_changes import KeyChange, key_changes

_CREATED = (Cause.TOPIC_CREATED, Cause.PARTITIONS_ADDED)
_DELETED = (Cause.TOPIC_DELETED, Cause.PARTITIONS_REMOVED)


class ObservedPeriod(NamedTuple):
    """The times of the first and the last event."""

    since_ms: int
    until_ms: int


class Incarnation(NamedTuple):
    """A partition from its creation to its deletion, or as long as events report it.

    - `deletion`: not one of `changes`; None: no deletion is reported.
    """

    topic_id: str
    begin_ms: int
    end_ms: int
    changes: Sequence[KeyChange]
    deletion: ChangeTrace | None


class _Span(NamedTuple):
    """The events of one partition. `first_ms`: time of the first one."""

    topic_id: str
    first_ms: int
    created_ms: int | None
    deleted_ms: int | None
    changes: Sequence[KeyChange]
    deletion: ChangeTrace | None

    @property
    def is_of_its_key(self) -> bool:
        """Whether there are events besides those of replicas, e.g. of a leftover replica."""
        return bool(self.changes) or self.created_ms is not None or self.deletion is not None


def incarnations(
    lives: Sequence[ChangeTrace], observed_period: ObservedPeriod
) -> list[Incarnation]:
    """Returns the incarnations of a partition's name. `lives`: in causal order, at least one."""
    spans = [_span(group) for of_topic in _by_topic(lives) for group in _by_creation(of_topic)]
    spans = [span for span in spans if span.is_of_its_key] or spans[-1:]
    begins = [span.first_ms if span.created_ms is None else span.created_ms for span in spans]
    if spans[0].created_ms is None:
        begins[0] = observed_period.since_ms
    # If its deletion is not reported, an incarnation ends when the next one begins.
    gone = [*begins[1:], observed_period.until_ms]
    return [
        Incarnation(
            span.topic_id,
            begin_ms,
            max(begin_ms, gone_ms if span.deleted_ms is None else span.deleted_ms),
            span.changes,
            span.deletion,
        )
        for span, begin_ms, gone_ms in zip(spans, begins, gone, strict=True)
    ]


def _by_topic(lives: Sequence[ChangeTrace]) -> list[list[ChangeTrace]]:
    """Replicas of a previous topic may report changes while a new topic exists."""
    topic_id = next((life.headline.topic_id for life in lives if life.headline.topic_id), "")
    groups: dict[str, list[ChangeTrace]] = {}
    for life in lives:
        topic_id = life.headline.topic_id or topic_id
        groups.setdefault(topic_id, []).append(life)
    return list(groups.values())


def _by_creation(lives: Sequence[ChangeTrace]) -> list[list[ChangeTrace]]:
    groups: list[list[ChangeTrace]] = [[]]
    for life in lives:
        if groups[-1] and _created_ms(life) is not None:
            groups.append([])
        groups[-1].append(life)
    return groups


def _span(lives: Sequence[ChangeTrace]) -> _Span:
    deletion = next((life for life in lives if _deleted_ms(life) is not None), None)
    before = lives if deletion is None else lives[: lives.index(deletion)]
    return _Span(
        next((life.headline.topic_id for life in lives if life.headline.topic_id), ""),
        lives[0].began_ms,
        _created_ms(lives[0]),
        None if deletion is None else _deleted_ms(deletion),
        list(key_changes(before)),
        deletion,
    )


def _created_ms(life: ChangeTrace) -> int | None:
    """None: it does not create a partition, or its completion is not reported."""
    is_it = life.headline.kind is Kind.CREATE and life.cause in _CREATED
    return _done_ms(life) if is_it else None


def _deleted_ms(life: ChangeTrace) -> int | None:
    """Time of the first completed stage of a deletion; None: it deletes no partition.

    At that stage the store has no replicas of the partition any more. It deletes the key after
    the replicas are deleted.
    """
    is_it = life.headline.kind in (Kind.STOP, Kind.DELETE) and life.cause in _DELETED
    return _done_ms(life) if is_it else None


def _done_ms(life: ChangeTrace) -> int | None:
    return min(
        (
            observed_period.time_ms
            for part in life.parts
            for observed_period in part.stages
            if observed_period.stage is Stage.COMPLETED
        ),
        default=None,
    )
