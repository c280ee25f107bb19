"""Partitions that an event touched, until they are judged and their writes on the way."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from itertools import chain

from tidelog.model import TopicPartition
from tidelog_controller.control.descriptions import Descriptions
from tidelog_controller.core.lazy_touches import MAX_TAKEN_PER_STEP, LazyTouches
from tidelog_controller.core.reconcile import logs_needed, next_write
from tidelog_controller.core.write_pace import WritePace
from tidelog_controller.state.context import Context
from tidelog_controller.state.failing_disks import FailingDisks
from tidelog_controller.state.known import Addition, Removal
from tidelog_controller.state.purposes import (
    PartitionBatch,
    PartitionWrite,
    TopicGuard,
)
from tidelog_controller.state.transactions import Transactions
from tidelog_controller.state.unreachable_leaders import UnreachableLeaders
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES

# So many are judged for one batch, whether they need a write or not, or go into another one, as
# new partitions of many topics do: a few milliseconds.
MAX_JUDGED_PER_BATCH = 2 * MAX_TRANSACTION_CHANGES
# Of partitions that are created or removed, which cost each service that watches them more than an
# election, and are less urgent: a batch of them keeps no event loop for long.
MAX_CREATED_OR_REMOVED_PER_BATCH = 48


class DirtyPartitions:
    """What is in flight stays dirty, and is judged when its outcome is known."""

    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        descriptions: Descriptions,
        unreachable: UnreachableLeaders,
        failing_disks: FailingDisks,
        is_acknowledged: Callable[[TopicPartition], bool],
        controller_epoch: int,
        full_states_taken: Callable[[], bool],
        pace: WritePace,
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._descriptions = descriptions
        self._unreachable = unreachable
        self._failing_disks = failing_disks
        self._is_acknowledged = is_acknowledged
        self._controller_epoch = controller_epoch
        self._full_states_taken = full_states_taken
        self._pace = pace
        # Insertion order, not that of a set: equal events give equal commands. The value
        # says whether the last write met a change by another.
        self._dirty: dict[TopicPartition, bool] = {}
        # Partitions of a change to many, taken from `_later`; none of them is in `_dirty`. They
        # come after those, so that no election waits for the deletion of a large topic.
        self._bulk: dict[TopicPartition, bool] = {}
        self._later = LazyTouches(context)
        # Those whose unclean election waits for the watch, with the revision that it waits for;
        # and how far it was when they were looked at last.
        self._unwatched: dict[TopicPartition, int] = {}
        self._watched_to = 0

    def touch(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._dirty.setdefault(partition, False)
            self._bulk.pop(partition, None)

    def touch_many(self, partitions: Collection[TopicPartition]) -> None:
        """Those beyond one step's part follow with the next ones."""
        if len(partitions) <= MAX_TAKEN_PER_STEP:
            self.touch(partitions)
        else:
            self._later.add(partitions)

    def touch_topic(self, topic: str, first: int = 0) -> None:
        """Partitions from this number on that have a key, some in each step."""
        numbers = sorted(self._context.held_of(topic))
        self._later.add_numbers(topic, numbers[bisect_left(numbers, first) :])

    def touch_resized(self, topic: str, *intents: Addition | Removal | None) -> None:
        """`intents`: before and after. Those that one removes, and those that one places."""
        removals = [intent.entry.first for intent in intents if isinstance(intent, Removal)]
        if removals:
            self.touch_topic(topic, min(removals))
        self.touch_unplaced(topic)

    def touch_unplaced(self, topic: str) -> None:
        """Partitions without replicas, some in each step."""
        self._later.add_numbers(topic, self._context.unplaced.of(topic))

    def touch_led_by(self, broker_id: int) -> None:
        """Partitions that it leads, some in each step."""
        self._later.add_led_by(broker_id, self._context.names_on(broker_id))

    def refused(self, writes: Iterable[PartitionWrite]) -> None:
        """A refused batch is judged again whole; those that had changed, by themselves."""
        for write in writes:
            held = self._context.partition(write.partition)
            self._bulk.pop(write.partition, None)
            self._dirty[write.partition] = (held.revision if held else 0) != write.expected
            self._pace.refused(write)

    def advance(self, now_ms: int) -> None:
        """Touches those for which this time was waited."""
        self.touch(self._pace.due(now_ms))

    def wake_at_ms(self, now_ms: int) -> int | None:
        return self._pace.wake_at_ms(now_ms)

    def next_batch(self, now_ms: int) -> tuple[PartitionBatch | None, bool]:
        """Judges as many as one transaction takes; None: there is nothing to write of those that
        were judged. And whether there are no others.

        One batch holds partitions that conflicted before, or others, but not both: one
        conflict does not hold up the rest. New partitions share one topic."""
        self._take_later()
        self.touch(self._watched())
        writes: list[PartitionWrite] = []
        settled: list[TopicPartition] = []
        kind: tuple[bool, str | None] | None = None
        size = judged = 0
        is_last = not self._later
        for partition, contended in chain(self._dirty.items(), self._bulk.items()):
            if self._transactions.writes(partition):
                continue
            if size == MAX_TRANSACTION_CHANGES or judged == MAX_JUDGED_PER_BATCH:
                is_last = False
                break
            judged += 1
            write = self._next_write(partition)
            if write is None:
                settled.append(partition)
                self._pace.settled(partition)
                self._ask_for_logs(partition)
                continue
            if not self._pace.may_write(write, now_ms):
                settled.append(partition)
                continue
            this_kind = (contended, partition.topic if write.old is None else None)
            kind = kind or this_kind
            if size + write.changes > _max_changes(write):
                is_last = False
                break
            if kind == this_kind:
                size += write.changes
                settled.append(partition)
                self._pace.settled(partition)
                writes.append(write)
            else:
                is_last = False
        for partition in settled:
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
        if held is None and self._may_meet_former(partition):
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
            # A member that would do without loss may have registered before the state was
            # written: its answer has come, and what the watch brings before it has not.
            self._unwatched[partition] = revision
            return None
        return write

    def _watched(self) -> list[TopicPartition]:
        """Those for whose state the watch was waited."""
        if not self._unwatched or self._watched_to == self._context.revision:
            return []
        self._watched_to = self._context.revision
        found = [p for p, at in self._unwatched.items() if at <= self._watched_to]
        for partition in found:
            del self._unwatched[partition]
        return found

    def _may_meet_former(self, partition: TopicPartition) -> bool:
        """Whether a broker may still hold a replica of a partition that was removed, and whose
        topic and number this one has. By a full state, which does not name it, a broker sets
        it aside; so nothing is placed while one has yet to be taken, or sets none aside."""
        topic = self._context.topics.get(partition.topic)
        if topic is None or not topic.entry.shrunk:
            return False
        unreadable = partition.topic in self._context.unreadable_topics()
        return unreadable or not self._full_states_taken()

    def _ask_for_logs(self, partition: TopicPartition) -> None:
        """Where nobody can be elected before more is known of the replicas' logs."""
        held = self._context.partition(partition)
        topic_id, revision = (held.state.topic_id, held.revision) if held else ("", 0)
        self._descriptions.want(
            partition,
            topic_id,
            revision,
            logs_needed(self._context, partition),
            self._context.live,
        )


def _max_changes(write: PartitionWrite) -> int:
    """Of the batch that it goes into."""
    if write.old is None or write.new is None:
        return MAX_CREATED_OR_REMOVED_PER_BATCH
    return MAX_TRANSACTION_CHANGES
