"""The incarnations of a partition name. Pure.

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
    def has_key(self) -> bool:
        """Whether there are other events than those of replicas, which may be left over."""
        return bool(self.changes) or self.created_ms is not None or self.deletion is not None


def incarnations(
    traces: Sequence[ChangeTrace], observed_period: ObservedPeriod
) -> list[Incarnation]:
    """Returns the incarnations of a partition's name. `traces`: in causal order, at least one."""
    spans = [_span(group) for of_topic in _by_topic(traces) for group in _by_creation(of_topic)]
    spans = [span for span in spans if span.has_key] or spans[-1:]
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


def _by_topic(traces: Sequence[ChangeTrace]) -> list[list[ChangeTrace]]:
    """Replicas of a previous topic may report changes while a new topic exists."""
    topic_id = next((trace.headline.topic_id for trace in traces if trace.headline.topic_id), "")
    groups: dict[str, list[ChangeTrace]] = {}
    for trace in traces:
        topic_id = trace.headline.topic_id or topic_id
        groups.setdefault(topic_id, []).append(trace)
    return list(groups.values())


def _by_creation(traces: Sequence[ChangeTrace]) -> list[list[ChangeTrace]]:
    groups: list[list[ChangeTrace]] = [[]]
    for trace in traces:
        if groups[-1] and _created_ms(trace) is not None:
            groups.append([])
        groups[-1].append(trace)
    return groups


def _span(traces: Sequence[ChangeTrace]) -> _Span:
    deletion = next((trace for trace in traces if _deleted_ms(trace) is not None), None)
    before = traces if deletion is None else traces[: traces.index(deletion)]
    return _Span(
        next((trace.headline.topic_id for trace in traces if trace.headline.topic_id), ""),
        traces[0].began_ms,
        _created_ms(traces[0]),
        None if deletion is None else _deleted_ms(deletion),
        list(key_changes(before)),
        deletion,
    )


def _created_ms(trace: ChangeTrace) -> int | None:
    """None: it does not create a partition, or its completion is not reported."""
    is_it = trace.headline.kind is Kind.CREATE and trace.cause in _CREATED
    return _done_ms(trace) if is_it else None


def _deleted_ms(trace: ChangeTrace) -> int | None:
    """Time of the first completed stage of a deletion; None: it deletes no partition.

    At that stage the store has no replicas of the partition any more. It deletes the key after
    the replicas are deleted.
    """
    is_it = trace.headline.kind in (Kind.STOP, Kind.DELETE) and trace.cause in _DELETED
    return _done_ms(trace) if is_it else None


def _done_ms(trace: ChangeTrace) -> int | None:
    return min(
        (
            event.time_ms
            for part in trace.parts
            for event in part.stages
            if event.stage is Stage.COMPLETED
        ),
        default=None,
    )
