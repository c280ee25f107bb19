"""Partitions that an event touched, until they are decided and their writes are on the way."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from itertools import chain

from tidelog.model import TopicPartition
from tidelog_controller.control.log_descriptions import Descriptions
from tidelog_controller.core.deferred_touches import MAX_TAKEN_PER_STEP, DeferredTouches
from tidelog_controller.core.reconcile import missing_logs, next_write
from tidelog_controller.core.write_pace import WritePace
from tidelog_controller.state.context import Context
from tidelog_controller.state.failing_disks import FailingDisks
from tidelog_controller.state.metadata_records import Addition, Removal
from tidelog_controller.state.mutations import (
    PartitionBatch,
    PartitionWrite,
    TopicGuard,
)
from tidelog_controller.state.transactions import Transactions
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES

# Partitions decided for one batch, including those that need no write or go into another batch, as
# new partitions of many topics do. It takes a few milliseconds.
MAX_DECIDED_PER_BATCH = 2 * MAX_TRANSACTION_CHANGES
# Created or removed partitions in one batch. They cost each watching service more than an election
# and are less urgent: a batch of this size blocks no event loop for long.
MAX_CREATED_OR_REMOVED_PER_BATCH = 48


class DirtyPartitions:
    """Touched partitions. One with a write in flight stays here until the outcome is known."""

    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        descriptions: Descriptions,
        unreachable: UnreachableLeaders,
        failing_disks: FailingDisks,
        is_acknowledged: Callable[[TopicPartition], bool],
        controller_epoch: int,
        full_states_acknowledged: Callable[[], bool],
        pace: WritePace,
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._descriptions = descriptions
        self._unreachable = unreachable
        self._failing_disks = failing_disks
        self._is_acknowledged = is_acknowledged
        self._controller_epoch = controller_epoch
        self._full_states_acknowledged = full_states_acknowledged
        self._pace = pace
        # In insertion order, unlike a set: equal events give equal commands. The value says whether
        # the last write conflicted with another change.
        self._dirty: dict[TopicPartition, bool] = {}
        # Partitions of a large change, taken from `_later`; none of them is in `_dirty`. They come
        # after those, so that no election waits for the deletion of a large topic.
        self._bulk: dict[TopicPartition, bool] = {}
        self._later = DeferredTouches(context)
        # Partitions whose unclean election waits for the watch, with the revision that it waits
        # for; and the watch's position at the last check.
        self._awaiting_watch: dict[TopicPartition, int] = {}
        self._watched_to = 0

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._dirty.setdefault(partition, False)
            self._bulk.pop(partition, None)

    def touch_many(self, partitions: Collection[TopicPartition]) -> None:
        """Those beyond one step's share follow with the next steps."""
        if len(partitions) <= MAX_TAKEN_PER_STEP:
            self.touch(partitions)
        else:
            self._later.add(partitions)

    def touch_topic(self, topic: str, first: int = 0) -> None:
        """Touches the topic's partitions that have a key, from number `first` on, some per step."""
        numbers = sorted(self._context.held_of(topic))
        self._later.add_numbers(topic, numbers[bisect_left(numbers, first) :])

    def touch_resized(self, topic: str, *intents: Addition | Removal | None) -> None:
        """Touches partitions that a removal removes or an addition places.

        `intents`: the topic's intent before and after.
        """
        removals = [intent.entry.first for intent in intents if isinstance(intent, Removal)]
        if removals:
            self.touch_topic(topic, min(removals))
        self.touch_unplaced(topic)

    def touch_unplaced(self, topic: str) -> None:
        """Touches the topic's partitions without replicas, some in each step."""
        self._later.add_numbers(topic, self._context.unplaced.of(topic))

    def touch_led_by(self, broker_id: int) -> None:
        """Touches the partitions that the broker leads, some in each step."""
        self._later.add_led_by(broker_id, self._context.names_on(broker_id))

    def rejected(self, writes: Iterable[PartitionWrite]) -> None:
        """Touches all writes of a rejected batch again; those that conflicted go by themselves."""
        for write in writes:
            held = self._context.partition(write.partition)
            self._bulk.pop(write.partition, None)
            self._dirty[write.partition] = (held.revision if held else 0) != write.expected
            self._pace.rejected(write)

    def advance(self, now_ms: int) -> None:
        """Touches the partitions whose turn has come."""
        self.touch(self._pace.due(now_ms))

    def wake_at_ms(self, now_ms: int) -> int | None:
        return self._pace.wake_at_ms(now_ms)

    def next_batch(self, now_ms: int) -> tuple[PartitionBatch | None, bool]:
        """Decides as many partitions as one transaction takes.

        Returns the batch, or None if those need no write, and whether no others are left. One batch
        has partitions that conflicted before, or others, but not both: one conflict does not delay
        the rest. New partitions in one batch share one topic.
        """
        self._take_later()
        self.touch(self._caught_up_by_watch())
        writes: list[PartitionWrite] = []
        decided: list[TopicPartition] = []
        kind: tuple[bool, str | None] | None = None
        size = checked = 0
        is_last = not self._later
        for partition, contended in chain(self._dirty.items(), self._bulk.items()):
            if self._transactions.writes(partition):
                continue
            if size == MAX_TRANSACTION_CHANGES or checked == MAX_DECIDED_PER_BATCH:
                is_last = False
                break
            checked += 1
            write = self._next_write(partition)
            if write is None:
                decided.append(partition)
                self._pace.release(partition)
                self._request_logs(partition)
                continue
            if not self._pace.may_write(write, now_ms):
                decided.append(partition)
                continue
            this_kind = (contended, partition.topic if write.old is None else None)
            kind = kind or this_kind
            if size + write.changes > _max_changes(write):
                is_last = False
                break
            if kind == this_kind:
                size += write.changes
                decided.append(partition)
                self._pace.release(partition)
                writes.append(write)
            else:
                is_last = False
        for partition in decided:
            self._dirty.pop(partition, None)
            self._bulk.pop(partition, None)
        if kind is None:
            return None, is_last
        guard = None
        if kind[1] is not None:
            guard = TopicGuard(kind[1], self._context.topics[kind[1]].create_revision)
        return PartitionBatch(tuple(writes), guard), is_last

    def _take_later(self) -> None:
        if len(self._bulk) < MAX_TAKEN_PER_STEP:
            taken = (partition for partition in self._later.take() if partition not in self._dirty)
            self._bulk.update(dict.fromkeys(taken, False))

    def _next_write(self, partition: TopicPartition) -> PartitionWrite | None:
        held = self._context.partition(partition)
        if held is None and self._may_conflict_with_removed(partition):
            return None
        revision = held.revision if held else 0
        write = next_write(
            self._context,
            partition,
            self._is_acknowledged,
            self._controller_epoch,
            self._descriptions.logs(partition, revision, self._context.live),
            self._unreachable.reporters(partition, held.state) if held else (),
            self._failing_disks.cause(partition, held.state) if held else None,
        )
        if write is not None and write.logs is not None and revision > self._context.revision:
            # A member that could lead without loss may have registered before the state was
            # written. The answer of that write has arrived, but the watch may not have delivered
            # the registration.
            self._awaiting_watch[partition] = revision
            return None
        return write

    def _caught_up_by_watch(self) -> list[TopicPartition]:
        """The partitions whose revision the watch has reached by now."""
        if not self._awaiting_watch or self._watched_to == self._context.revision:
            return []
        self._watched_to = self._context.revision
        found = [p for p, at in self._awaiting_watch.items() if at <= self._watched_to]
        for partition in found:
            del self._awaiting_watch[partition]
        return found

    def _may_conflict_with_removed(self, partition: TopicPartition) -> bool:
        """Whether a broker may still hold a replica of a removed partition of this name.

        A broker sets such a replica aside when it receives a full state that does not name it. So
        nothing is placed while a broker has not received its full state, or keeps such replicas.
        """
        topic = self._context.topics.get(partition.topic)
        if topic is None or not topic.entry.shrunk:
            return False
        unreadable = partition.topic in self._context.unreadable_topics()
        return unreadable or not self._full_states_acknowledged()

    def _request_logs(self, partition: TopicPartition) -> None:
        """Requests descriptions of logs if the election depends on them."""
        held = self._context.partition(partition)
        topic_id, revision = (held.state.topic_id, held.revision) if held else ("", 0)
        self._descriptions.request(
            partition,
            topic_id,
            revision,
            missing_logs(self._context, partition),
            self._context.live,
        )


def _max_changes(write: PartitionWrite) -> int:
    """The maximum size of the batch that the write joins."""
    if write.old is None or write.new is None:
        return MAX_CREATED_OR_REMOVED_PER_BATCH
    return MAX_TRANSACTION_CHANGES
