"""Emits events of a follower: its leader stops or resumes answering; its log is truncated."""

from __future__ import annotations

from typing import Protocol

from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class EventSource(Protocol):
    """The broker that emits the events."""

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def state_changes(self) -> StateChangeLog: ...


class FollowerEvents:
    """Events about one leader."""

    def __init__(self, leader: int, source: EventSource) -> None:
        self._leader = leader
        self._source = source
        self._unreachable: Change | None = None  # the change of the last event

    def unreachable(self, broker_epoch: int, why: str, partitions: int) -> None:
        """Emits the event once, until the leader is reached again."""
        if self._unreachable:
            return
        subject = f"leader-{self._leader}"
        self._unreachable = self._source.state_changes.condition_change(subject, Cause.NO_ANSWER)
        self._source.state_changes.emit(
            Kind.LEADER_UNREACHABLE,
            Stage.COMPLETED,
            change=self._unreachable,
            broker=self._leader,
            broker_epoch=broker_epoch,
            details={"why": why, "partitions": partitions},
        )

    def reached(self, broker_epoch: int) -> None:
        change, self._unreachable = self._unreachable, None
        if change is None:
            return
        self._source.state_changes.emit(
            Kind.LEADER_REACHED,
            Stage.COMPLETED,
            change=change,
            broker=self._leader,
            broker_epoch=broker_epoch,
        )

    def truncated(self, partition: Partition, end: int, epoch: int, cause: Cause) -> None:
        """Emits a truncation.

        `end`, `epoch`: those of the log before it. Emits nothing if nothing was cut.
        """
        log = partition.log
        if log.log_end_offset == end and log.latest_epoch == epoch:
            return
        assert partition.state is not None
        self._source.state_changes.emit(
            Kind.TRUNCATION,
            Stage.COMPLETED,
            change=partition.state.change,
            cause=cause,
            name=partition.name,
            topic_id=partition.topic_id,
            broker=self._source.broker_id,
            broker_epoch=self._source.broker_epoch,
            controller_epoch=partition.state.controller_epoch,
            leader_epoch=partition.leader_epoch,
            revision=partition.revision,
            details={
                "from": end,
                "to": log.log_end_offset,
                "epoch": epoch,
                "log_start_offset": log.log_start_offset,
                "high_watermark": partition.high_watermark,
            },
        )
