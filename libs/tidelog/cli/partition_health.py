"""Describes problems of partitions. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.model import NO_EPOCH, NO_LEADER

if TYPE_CHECKING:
    from tidelog.client.descriptions import PartitionDescription, TopicDescription

SOUND = "ok"


def partition_health(partition: PartitionDescription) -> str:
    """Names the worst problem first."""
    problems = []
    if partition.leader == NO_LEADER:
        problems.append("no leader")
    if len(partition.isr) < partition.min_isr:
        problems.append("below min ISR")
    elif partition.is_under_replicated:
        problems.append("under-replicated")
    if partition.unclean_leader_epoch != NO_EPOCH:
        problems.append(f"unclean election in epoch {partition.unclean_leader_epoch}")
    return ", ".join(problems) or SOUND


@dataclass(frozen=True, slots=True)
class HealthCounts:
    """A partition below its min ISR also counts as under-replicated."""

    partitions: int
    without_leader: int
    below_min_isr: int
    under_replicated: int

    @classmethod
    def of(cls, topics: Iterable[TopicDescription]) -> HealthCounts:
        return cls.of_partitions([p for topic in topics for p in topic.partitions])

    @classmethod
    def of_partitions(cls, partitions: Sequence[PartitionDescription]) -> HealthCounts:
        return cls(
            len(partitions),
            sum(p.leader == NO_LEADER for p in partitions),
            sum(len(p.isr) < p.min_isr for p in partitions),
            sum(p.is_under_replicated for p in partitions),
        )

    def __str__(self) -> str:
        problems = [
            f"{count} {what}"
            for count, what in (
                (self.without_leader, "without leader"),
                (self.below_min_isr, "below min ISR"),
                (self.under_replicated, "under-replicated"),
            )
            if count
        ]
        return ", ".join(problems) or SOUND
