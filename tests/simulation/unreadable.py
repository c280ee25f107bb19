"""Records that are reported to clients as damaged on the last disk that held them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simulation.partition_id import PartitionId
from simulation.violation import Violation
from simulation.world import World
from tidelog.batch import is_damaged
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.partition.replica_log import ReplicaLog
from tidelog_runtime.metadata.schema import decode_leader_and_isr

SKIPPED = "unreadable records reported to a reader"


class Range(NamedTuple):
    first_offset: int
    next_offset: int


class Unreadable:
    """The reported ranges, which are bounded by what the disks of one seed lose."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ranges: dict[PartitionId, set[Range]] = {}

    def reported(self, place: PartitionId, found: Range) -> None:
        """Notes a range that a leader has reported to a consumer.

        Raises `Violation` if no disk has lost anything, or if an in-sync replica still has all
        of these records.
        """
        self._ranges.setdefault(place, set()).add(found)
        losses = self._world.data_losses
        if not any(losses.last_of(broker_id, place) for broker_id in self._world.brokers):
            raise Violation("unreadable_without_loss", f"{found} of {place}, and no disk lost data")
        holder = self._in_sync_holder(place, found)
        if holder is not None:
            raise Violation(
                "unreadable_though_held",
                f"{found} of {place} is reported as unreadable, and broker {holder}, which is in "
                "the ISR, has it",
            )

    def _in_sync_holder(self, place: PartitionId, found: Range) -> int | None:
        """Returns an in-sync broker with all of it: parts of unreadable batches are not copied."""
        for broker_id, process in self._world.brokers.items():
            for partition in self._world.partitions_of(process):
                if PartitionId(partition.topic_id, partition.name.partition) != place:
                    continue
                # A follower's own state may be older than its admission to the ISR.
                item = self._world.store_data.get(self._world.keys.leader_and_isr(partition.name))
                state = None if item is None else decode_leader_and_isr(item.value)
                if state is None or broker_id not in state.isr_ids or process.broker is None:
                    continue
                with process.machine.disk.looked_at():
                    if _holds(partition.log, found):
                        return broker_id
        return None

    def covers(self, place: PartitionId, offset: int) -> bool:
        ranges = self._ranges.get(place, ())
        return any(first <= offset < following for first, following in ranges)

    def ranges(self) -> Iterator[tuple[PartitionId, Range]]:
        for place, ranges in self._ranges.items():
            for found in sorted(ranges):
                yield place, found


def _holds(log: ReplicaLog, found: Range) -> bool:
    offset, end = found
    if not log.log_start_offset <= offset <= end <= log.log_end_offset:
        return False
    while offset < end:
        try:
            [batch, *_] = log.read(offset, max_bytes=1, up_to=log.log_end_offset)
        except LogError:
            return False
        if is_damaged(batch.header):
            return False
        offset = batch.header.next_offset
    return True
