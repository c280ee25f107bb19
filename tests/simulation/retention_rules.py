"""What retention may delete, by true time and not by the clock of any machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simulation.partition_id import PartitionId
from simulation.replicas import Replica, where
from simulation.shadow_logs import Entry
from simulation.violation import Violation
from tidelog.model import BatchHeader
from tidelog_runtime.topic_config import UNLIMITED, TopicConfig

# A batch, by its partition, the leader epoch that wrote it, and its first offset.
_Batch = tuple[PartitionId, int, int]


class RetentionRules:
    """Checks deletions. Keeps when each batch was first in any log, in true milliseconds."""

    def __init__(self) -> None:
        self._first_ms: dict[_Batch, int | None] = {}

    def appended(
        self, partition: PartitionId, headers: Iterable[BatchHeader], true_ms: int | None
    ) -> None:
        """Notes batches.

        `true_ms` None: the machine cannot know the time, and they are not checked.
        """
        for header in headers:
            key = (partition, header.leader_epoch, header.base_offset)
            self._first_ms.setdefault(key, true_ms)

    def deleted(
        self, replica: Replica, start: int, config: Mapping[str, str], true_ms: int | None
    ) -> None:
        """Checks the deletion of what lies below `start`.

        Raises `Violation` for a batch that is younger than its topic's `retention_ms`. If
        `true_ms` is None, the machine cannot know the time, and others delete the same after
        it.
        """
        retention_ms = retention_of(config)
        for entry in replica.log.entries:
            if entry.next_offset > start:
                return
            if true_ms is None:
                self._first_ms[replica.partition, entry.leader_epoch, entry.base_offset] = None
                continue
            age_ms = self.age_ms(replica.partition, entry, true_ms)
            if age_ms is not None and (retention_ms == UNLIMITED or age_ms < retention_ms):
                raise Violation(
                    "deleted_within_retention",
                    f"{entry} was deleted after {age_ms} ms, of {retention_ms}",
                    **where(replica),
                )

    def age_ms(self, partition: PartitionId, entry: Entry, true_ms: int) -> int | None:
        """Returns the time since the first append of a batch, or None if it is not known."""
        first_ms = self._first_ms.get((partition, entry.leader_epoch, entry.base_offset))
        return None if first_ms is None else true_ms - first_ms


def retention_of(config: Mapping[str, str]) -> int:
    """Returns the `retention_ms` of a topic."""
    default: int = TopicConfig.model_fields["retention_ms"].default
    return int(config.get("retention_ms", default))
