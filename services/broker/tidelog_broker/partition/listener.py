"""Who is told of what happens in a partition. All are called in the middle of a step: they
may only take note."""

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
        """What they told counts anew, by another durability."""


class PartitionListener(ReplicaWatch, Protocol):
    def sync_needed(self, partition: Partition) -> None:
        """Its durability is `synced`, and its log holds what is not on the disk yet."""

    def isr_needs_judging(self, partition: Partition) -> None: ...
