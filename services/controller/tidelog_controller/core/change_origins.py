"""The origin of each write of a partition: the id of its change, its cause, and its trace id.

The origin is part of the decision: it is stored with the partition's state and sent to brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import Cause, Change
from tidelog_controller.policies.causes import Circumstances, cause_of, change_id
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import PartitionBatch, PartitionWrite
from tidelog_runtime.metadata.schema import Departure, LeaderAndIsr

# Causes of changes that a client requested, under a trace of its own.
_REQUESTED_CAUSES = frozenset(
    {
        Cause.TOPIC_CREATED,
        Cause.TOPIC_DELETED,
        Cause.PARTITIONS_ADDED,
        Cause.PARTITIONS_REMOVED,
        Cause.CONSENT,
        Cause.REASSIGNED,
        Cause.CANCELLED,
    }
)


class ChangeOrigins:
    """Attaches origins to decided writes.

    `departed`: by broker, its last incarnation whose end was detected.
    """

    def __init__(
        self, context: Context, controller_epoch: int, departed: Mapping[int, Departure]
    ) -> None:
        self._context = context
        self._controller_epoch = controller_epoch
        self._departed = departed

    def attach(self, batch: PartitionBatch, transaction_id: int, wall_ms: int) -> PartitionBatch:
        """Returns the batch with a change in every write and every new state.

        `transaction_id`: the id that the batch's transaction will have.
        """
        name = change_id(self._controller_epoch, transaction_id)
        circumstances = Circumstances(self._context.live, self._departed)
        changes: dict[tuple[Cause, str], Change] = {}
        writes: list[PartitionWrite] = []
        for write in batch.writes:
            cause = write.why
            if cause is Cause.NONE:
                cause = self._cause(write, circumstances)
            trace_id = write.trace_id
            if cause in _REQUESTED_CAUSES:
                trace_id = self._trace_id(cause, write.partition)
            change = changes.get((cause, trace_id))
            if change is None:
                change = changes[cause, trace_id] = Change(name, cause, wall_ms, trace_id)
            new = None if write.new is None else _with_change(write.old, write.new, change)
            writes.append(write.originating(new, change))
        return PartitionBatch(tuple(writes), batch.topic_guard)

    def _cause(self, write: PartitionWrite, circumstances: Circumstances) -> Cause:
        partition, old, new = write[:3]
        deleting = self._context.is_being_deleted(partition)
        added = old is None and self._is_added(partition)
        if deleting or added or write.deposes or write.consent_revision:
            circumstances = circumstances._replace(
                deleting=deleting,
                alone=partition.topic not in self._context.deletions,
                added=added,
                deposes=write.deposes,
                consented=bool(write.consent_revision),
            )
        return cause_of(old, new, circumstances)

    def _is_added(self, partition: TopicPartition) -> bool:
        addition = self._context.additions.get(partition.topic)
        return addition is not None and 0 < addition.entry.first <= partition.partition

    def _trace_id(self, cause: Cause, partition: TopicPartition) -> str:
        """The trace id of the request that caused the change; empty if there is none."""
        context = self._context
        match cause:
            case Cause.TOPIC_CREATED:
                return context.topics[partition.topic].entry.trace_id
            case Cause.TOPIC_DELETED:
                return context.deletions[partition.topic].trace_id
            case Cause.PARTITIONS_ADDED:
                return context.additions[partition.topic].entry.trace_id
            case Cause.PARTITIONS_REMOVED:
                return context.removals[partition.topic].entry.trace_id
            case Cause.CONSENT:
                return context.consents[partition].entry.trace_id
            case Cause.REASSIGNED | Cause.CANCELLED:
                # A begun move continues even after its operation is no longer known.
                wanted = context.requested_moves.get(partition)
                return wanted.trace_id if wanted else ""
            case _:
                return ""


def _with_change(old: LeaderAndIsr | None, new: LeaderAndIsr, change: Change) -> LeaderAndIsr:
    """Returns the state with its change, and with the time if it is an unclean election.

    Later changes of the ISR keep that time.
    """
    changed = new.with_change(change)
    is_new_epoch = old is None or old.leader_epoch < new.leader_epoch
    if is_new_epoch and NO_EPOCH < new.leader_epoch == new.unclean_leader_epoch:
        return replace(changed, unclean_elected_at_ms=change.requested_at_ms)
    return changed
