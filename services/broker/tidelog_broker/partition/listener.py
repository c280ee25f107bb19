"""The interfaces that receive the events of a partition. They are called in the middle of a step,
and may only record the event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog_broker.partition.partition import Partition


class ReplicaWatch(Protocol):
    def log_grew(self, partition: Partition) -> None: ...

    def high_watermark_moved(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None:
        """Followers delete what the leader has deleted."""

    def leadership_ended(self, partition: Partition) -> None: ...

    def followers_forgotten(self, partition: Partition) -> None:
        """The durability has changed, so that followers have to report their positions again."""


class PartitionListener(ReplicaWatch, Protocol):
    def sync_needed(self, partition: Partition) -> None:
        """The durability is `synced`, and the log holds data that is not on disk yet."""

    def isr_needs_evaluation(self, partition: Partition) -> None: ...
