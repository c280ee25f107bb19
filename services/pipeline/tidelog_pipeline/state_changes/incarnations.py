"""Which partitions bore one name, one after the other: a topic may be created again, and a
partition removed and added again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.state_changes.change_life import ChangeLife
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_pipeline.state_changes.key_changes import KeyChange, key_changes

_CREATED = (Cause.TOPIC_CREATED, Cause.PARTITIONS_ADDED)
_DELETED = (Cause.TOPIC_DELETED, Cause.PARTITIONS_REMOVED)


class Told(NamedTuple):
    """When the first and the last of all events were told."""

    since_ms: int
    until_ms: int


class Incarnation(NamedTuple):
    """From its creation to its deletion, or as long as anything is told. `deletion`: none of its
    `changes`; None: it is not told."""

    topic_id: str
    begin_ms: int
    end_ms: int
    changes: Sequence[KeyChange]
    deletion: ChangeLife | None


class _Span(NamedTuple):
    """What is told of one. `first_ms`: whatever comes first of it."""

    topic_id: str
    first_ms: int
    created_ms: int | None
    deleted_ms: int | None
    changes: Sequence[KeyChange]
    deletion: ChangeLife | None

    @property
    def is_of_its_key(self) -> bool:
        """And not of replicas alone, as of one that is left over of a former partition."""
        return bool(self.changes) or self.created_ms is not None or self.deletion is not None


def incarnations(lives: Sequence[ChangeLife], told: Told) -> list[Incarnation]:
    """`lives` of one name, in causal order, at least one."""
    spans = [_span(group) for of_topic in _by_topic(lives) for group in _by_creation(of_topic)]
    spans = [span for span in spans if span.is_of_its_key] or spans[-1:]
    begins = [span.first_ms if span.created_ms is None else span.created_ms for span in spans]
    if spans[0].created_ms is None:
        begins[0] = told.since_ms
    # One whose deletion is not told has gone when the next one comes.
    gone = [*begins[1:], told.until_ms]
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


def _by_topic(lives: Sequence[ChangeLife]) -> list[list[ChangeLife]]:
    """Replicas of a former topic may tell of it while there is another."""
    topic_id = next((life.headline.topic_id for life in lives if life.headline.topic_id), "")
    groups: dict[str, list[ChangeLife]] = {}
    for life in lives:
        topic_id = life.headline.topic_id or topic_id
        groups.setdefault(topic_id, []).append(life)
    return list(groups.values())


def _by_creation(lives: Sequence[ChangeLife]) -> list[list[ChangeLife]]:
    groups: list[list[ChangeLife]] = [[]]
    for life in lives:
        if groups[-1] and _created_ms(life) is not None:
            groups.append([])
        groups[-1].append(life)
    return groups


def _span(lives: Sequence[ChangeLife]) -> _Span:
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


def _created_ms(life: ChangeLife) -> int | None:
    """None: it creates nothing, or that is not told to be done."""
    is_it = life.headline.kind is Kind.CREATE and life.cause in _CREATED
    return _done_ms(life) if is_it else None


def _deleted_ms(life: ChangeLife) -> int | None:
    """The store has first that no replica is one any more, and no longer has the key when they are
    deleted."""
    is_it = life.headline.kind in (Kind.STOP, Kind.DELETE) and life.cause in _DELETED
    return _done_ms(life) if is_it else None


def _done_ms(life: ChangeLife) -> int | None:
    return min(
        (
            told.time_ms
            for part in life.parts
            for told in part.stages
            if told.stage is Stage.COMPLETED
        ),
        default=None,
    )
