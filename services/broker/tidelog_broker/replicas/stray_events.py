"""Emits which strays have been deleted. That is the last event of a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from tidelog.state_changes.event import Cause, Change, Kind, Stage, set_aside
from tidelog_broker.storage.strays import Stray
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# Strays of one topic that get an event each in one round. More of them share one event, which names
# their partitions.
MAX_TOLD_SINGLY = 10

_log = structlog.get_logger()


class Life(Protocol):
    """The incarnation of the broker."""

    broker_id: int
    broker_epoch: int


class StrayEvents:
    """Events of deleted strays.

    `revision` returns the store revision that this broker has read. As of it the strays are not
    assigned here.
    """

    def __init__(
        self, life: Life, revision: Callable[[], int], state_changes: StateChangeLog
    ) -> None:
        self._life = life
        self._revision = revision
        self._state_changes = state_changes

    def deleted(self, strays: Sequence[Stray]) -> None:
        """Emits the deletion of strays.

        The deletion by a command was emitted then, and only its files are gone now. It is emitted
        here if a previous incarnation may have died before it did so.
        """
        by_topic: dict[tuple[str, str], list[Stray]] = {}
        for stray in strays:
            if stray.since_ms or stray.by_previous_incarnation:
                by_topic.setdefault((stray.name.topic, stray.key.topic_id), []).append(stray)
        for of_topic in by_topic.values():
            if len(of_topic) > MAX_TOLD_SINGLY:
                self._emit_together(of_topic)
            else:
                for stray in of_topic:
                    self._emit(stray)
        removed = len(strays) - sum(map(len, by_topic.values()))
        if removed:
            _log.info("deleted_replicas_removed", replicas=removed)

    def _emit(self, stray: Stray) -> None:
        self._state_changes.emit(
            Kind.DELETE,
            Stage.COMPLETED,
            change=self._change(stray),
            name=stray.name,
            topic_id=stray.key.topic_id,
            broker=self._life.broker_id,
            broker_epoch=self._life.broker_epoch,
            revision=self._revision(),
        )

    def _emit_together(self, strays: Sequence[Stray]) -> None:
        """Emits one event for all, with the time for which the oldest was kept."""
        oldest = min(strays, key=lambda stray: stray.since_ms)
        self._state_changes.emit(
            Kind.DELETE,
            Stage.COMPLETED,
            change=self._change(oldest),
            topic=oldest.name.topic,
            topic_id=oldest.key.topic_id,
            broker=self._life.broker_id,
            broker_epoch=self._life.broker_epoch,
            revision=self._revision(),
            details={"partitions": sorted(stray.name.partition for stray in strays)},
        )

    def _change(self, stray: Stray) -> Change:
        if stray.since_ms:
            return set_aside(self._life.broker_id, stray.since_ms)
        return Change(f"b{self._life.broker_id}-{self._life.broker_epoch}-removed", Cause.STRAY)
