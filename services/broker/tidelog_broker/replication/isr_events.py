"""Emits the ISR changes of a leader, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.state_changes.event import Cause, Detail, Kind, Stage
from tidelog_broker.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class IsrChangeEvent(NamedTuple):
    """A shrink or an expansion of an ISR. Both may belong to one proposal, with one change id.

    - `state`: the proposed one.
    - `revision`: that of the value which the proposal replaces.
    """

    kind: Kind
    name: TopicPartition
    state: LeaderAndIsr
    revision: int
    details: Mapping[str, Detail]


def isr_events(
    partition: Partition, before: LeaderAndIsr, proposed: LeaderAndIsr, now_ms: int
) -> tuple[IsrChangeEvent, ...]:
    """Returns the events of a proposal, with the values by which the leader decided.

    To be called at the moment of the decision.
    """
    leaving = sorted(before.isr_ids - proposed.isr_ids)
    joining = sorted(proposed.isr_ids - before.isr_ids)
    return tuple(
        IsrChangeEvent(
            kind,
            partition.name,
            proposed,
            partition.revision,
            _details(partition, brokers, proposed, now_ms),
        )
        for kind, brokers in ((Kind.ISR_SHRINK, leaving), (Kind.ISR_EXPAND, joining))
        if brokers
    )


def _details(
    partition: Partition, brokers: list[int], proposed: LeaderAndIsr, now_ms: int
) -> dict[str, Detail]:
    """Returns the details of one event.

    `behind_ms`: the time since each broker was caught up, or since the epoch began.
    """
    assert partition.leading is not None
    progress = {broker: partition.leading.followers.get(broker) for broker in brokers}
    return {
        "brokers": brokers,
        "end_offsets": [p.log_end_offset if p else NO_OFFSET for p in progress.values()],
        "behind_ms": [now_ms - p.last_caught_up_ms if p else 0 for p in progress.values()],
        "leader_end_offset": partition.counted_end,
        "high_watermark": partition.high_watermark,
        "isr": sorted(proposed.isr_ids),
        "min_isr": proposed.min_isr,
    }


def emit_stage(
    log: StateChangeLog,
    events: tuple[IsrChangeEvent, ...],
    stage: Stage,
    *,
    revision: int | None = None,
    cause: Cause | None = None,
) -> None:
    """Emits a stage of the events.

    `revision`: that at which the change was written, or that of the value found instead; None: that
    on which the proposal rests.
    """
    for event in events:
        log.emit(
            event.kind,
            stage,
            change=event.state.change,
            cause=cause,
            name=event.name,
            topic_id=event.state.topic_id,
            controller_epoch=event.state.controller_epoch,
            leader_epoch=event.state.leader_epoch,
            revision=event.revision if revision is None else revision,
            # Emitted once: the other stages have the same id.
            details=event.details if stage is Stage.REQUESTED else None,
        )
