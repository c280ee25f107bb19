"""Undelivered batches of a producer, in order within each partition. No I/O.

Records gather in the open batch of their partition (`gathers_until`). A sealed batch waits in the
queue of its partition. `drain` moves batches from the queues into requests, each for one broker. A
batch with an outcome is removed; a failed batch that can be retried returns to its place.

Order: the batches of a partition are numbered when they are sealed, and the queue is sorted by
that number. After a failure no batch of the partition is sent until all its batches in flight
are answered, so batches that failed together are sent again in order. Batches of an idempotent
producer also have a sequence (`sequences`), so brokers append each of them once and in order.
Without sequences, a batch that failed while a later one was appended comes after that one, and a
batch whose response was lost may be appended twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import cache

from tidelog.client.delivery import Appended, Outcome
from tidelog.client.open_batches import MAX_GATHERING_MS
from tidelog.client.outgoing_requests import OutgoingRequests, RequestRound
from tidelog.client.partition_queue import Idempotence, PartitionQueue
from tidelog.client.produce_errors import (
    SEQUENCE_REJECTED,
    SINGLE_BATCH_FAULTS,
    final_error,
    foreign_sequence,
    maybe_appended,
    name_in_doubt,
    name_taken,
    not_in_time,
    not_written_before,
)
from tidelog.client.retry import Backoff, Leader
from tidelog.client.sealed_batch import Group, Request, SealedBatch
from tidelog.client.sequences import Identity, Numbering, WriteOutcome
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.record_batch import EncodedRecords
from tidelog.rpc.trace_context import Metadata

# While a partition has batches in flight, an idempotent producer sends this many more together.
SHARED_BATCHES = 3


class Accumulator:
    """Queues of sealed batches by partition.

    Bounds: those of `OutgoingRequests`; `max_in_flight_per_partition` requests with batches of one
    partition; MAX_UNSETTLED_BATCHES of a partition without an outcome. The caller bounds the total
    size.
    `fatal`: the error that ended an idempotent producer. Later batches fail with it."""

    def __init__(
        self,
        backoff: Backoff,
        *,
        max_request_bytes: int,
        max_in_flight_per_broker: int,
        max_in_flight_per_partition: int,
        idempotence: Idempotence = Idempotence.OFF,
        producer_name: str = "",
    ) -> None:
        self._backoff = backoff
        self._requests = OutgoingRequests(
            max_request_bytes=max_request_bytes, max_in_flight_per_broker=max_in_flight_per_broker
        )
        self._max_in_flight_per_partition = max_in_flight_per_partition
        self._idempotence = idempotence
        self._name = producer_name
        self._identity: Identity | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # Queues with waiting batches; the queues that were served last are at the end.
        self._waiting: dict[TopicPartition, PartitionQueue] = {}
        self.unsettled = 0
        self.fatal: TidelogError | None = None

    def seal(
        self,
        partition: TopicPartition,
        encoded: EncodedRecords,
        *,
        deadline_ms: int,
        on_settled: Callable[[Outcome], None],
        trace_context: Metadata | None = None,
    ) -> None:
        """Appends a batch to the queue of its partition. Fails it if `fatal` is set."""
        if self.fatal is not None:
            on_settled(self.fatal)
            return
        queue = self._queue(partition)
        batch = SealedBatch(
            partition, queue.next_number, encoded, deadline_ms, on_settled, trace_context
        )
        queue.add(batch)
        self._waiting[partition] = queue
        self.unsettled += 1

    def begin_at(self, partition: TopicPartition, next_sequence: int) -> None:
        """Sets the sequence of a partition's next batch, for a named producer with an identity."""
        queue = self._queue(partition)
        assert queue.numbering is not None, "the producer is idempotent"
        queue.numbering.adopt(self._identity)
        queue.numbering.positioned(next_sequence)

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self._new_numbering())
        return queue

    def _new_numbering(self) -> Numbering | None:
        if self._idempotence is Idempotence.OFF:
            return None
        return Numbering(named=self._idempotence.of_a_name)

    def gathers_until(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> Callable[[TopicPartition], int]:
        """Returns a function that gives the time until which a partition's open batch gathers.

        A batch that has lingered is due if that time is not after `now_ms`. Requests cost brokers
        more than records do. So while the newest request to a broker has no answer and is younger
        than MAX_GATHERING_MS, partial batches for it keep gathering (Nagle, RFC 896), unless a
        request is sent to it anyway. So do batches that would only wait in their queues."""
        to_be_asked = cache(lambda: self._brokers_to_ask(now_ms, leader_of))
        blocked_ms = now_ms + MAX_GATHERING_MS

        def of(partition: TopicPartition) -> int:
            leader = leader_of(partition)
            if leader is None:
                return now_ms
            queue = self._queues.get(partition)
            if queue is not None and self._would_wait(queue, leader, now_ms):
                return blocked_ms
            newest_ms = self._requests.newest_ms(leader.broker_id)
            if newest_ms is None:
                return now_ms
            if not self._requests.has_room(leader.broker_id):
                return blocked_ms
            until_ms = newest_ms + MAX_GATHERING_MS
            return until_ms if leader.broker_id not in to_be_asked() else now_ms

        return of

    def _brokers_to_ask(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> set[int]:
        """Returns the brokers to which a waiting batch can be sent now."""
        found = set()
        for queue in self._waiting.values():
            leader = leader_of(queue.partition)
            if leader is not None and self._can_send(queue, leader, now_ms):
                found.add(leader.broker_id)
        return found

    def _can_send(self, queue: PartitionQueue, leader: Leader, now_ms: int) -> bool:
        """Returns whether the queue's next batch can be sent to `leader` now, given room for a
        request. Updates the numbering of the queue."""
        if queue.settling or queue.in_flight >= self._max_in_flight_per_partition:
            return False
        if queue.removal_error is not None:
            return False
        if queue.numbering is not None and not self._can_number(queue, queue.numbering):
            return False
        return queue.route.open_to(leader, now_ms)

    def _would_wait(self, queue: PartitionQueue, leader: Leader, now_ms: int) -> bool:
        """Returns whether a batch at the end of the queue could not be sent now."""
        no_room = queue.numbering is not None and not queue.numbering.room
        return no_room or not self._can_send(queue, leader, now_ms)

    def drain(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> list[Request]:
        """Moves batches that can be sent now into requests, at most one group per partition. Each
        request is in flight until `finish`. To send all, call this until it returns nothing."""
        requests = RequestRound(self._requests, now_ms)
        for queue in list(self._waiting.values()):
            leader = leader_of(queue.partition)
            if leader is None or not self._can_send(queue, leader, now_ms):
                continue
            if requests.take(queue, leader):
                del self._waiting[queue.partition]
                if queue.waiting:
                    self._waiting[queue.partition] = queue
        return requests.filled

    def _can_number(self, queue: PartitionQueue, numbering: Numbering) -> bool:
        """Returns whether the next batch has a sequence or can get one."""
        if not queue.in_flight:
            numbering.reclaim_sequences()
        if not queue.waits_for_number:
            return True
        numbering.adopt(self._identity)
        if not numbering.may_number:
            return False
        # If the room of each answer were used at once, batches would never share a request again.
        return not queue.in_flight or numbering.room >= min(len(queue.waiting), SHARED_BATCHES)

    def finish(self, request: Request) -> None:
        """Ends a request that is answered or never will be. The caller reports the result of each
        group through `appended` or `failed`."""
        self._requests.finish(request)

    def appended(self, group: Group, where: Appended) -> list[SealedBatch]:
        """Completes the batches of a group; returns them."""
        queue = self._landed(group)
        queue.route.succeeded()
        queue.last_error = None
        offset = where.base_offset
        for batch in group.batches:
            self._settle(queue, batch, where._replace(base_offset=offset))
            if offset >= 0:
                offset += batch.encoded.record_count
        self._end_removed(queue)
        return list(group.batches)

    def failed(
        self, group: Group, error: TidelogError, now_ms: int, *, stale: bool
    ) -> list[SealedBatch]:
        """Puts a group's batches back if a retry may help, else completes them; returns the
        completed ones. `stale`: newer metadata may name another leader."""
        batches = [batch for batch in group.batches if not batch.settled]
        in_doubt = any(batch.in_doubt for batch in batches)
        if error.code is ErrorCode.DUPLICATE_SEQUENCE:
            if not self._idempotence.of_a_name:
                # An earlier try was appended; its offset is no longer known.
                return self.appended(group, Appended(NO_OFFSET, group.leader.leader_epoch, -1))
            # A leader remembers as many batches as can be without an outcome. It would know an
            # earlier try of this batch and its offset, so another producer used the sequence.
            error = foreign_sequence(group.partition, self._name)
            self._end(error)
        elif error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
            error = name_taken(error, self._name)
            self._end(error)
        queue = self._landed(group)
        if queue.removal_error is not None:
            given_up = self._give_up(group, queue.removal_error, maybe_appended(error))
            self._end_removed(queue)
            return given_up
        queue.last_error = error
        retriable = error.retriable and self.fatal is None
        if queue.numbering is not None and error.code in SEQUENCE_REJECTED:
            # A batch behind another may only have overtaken it. The leader rejects a first batch
            # that was never in doubt because it does not know the sequences before it.
            alien = group.first_in_line and not in_doubt
            if alien:
                queue.numbering.mark_identity_unusable()
            elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
                retriable = not group.first_in_line
            retriable = (retriable or alien) and self.fatal is None
        apart = error.code in SINGLE_BATCH_FAULTS and len(group.batches) > 1 and self.fatal is None
        if not retriable and not apart:
            return self._give_up(group, self.fatal or error, maybe_appended(error))
        if retriable:
            queue.route.failed(group.leader, now_ms, self._backoff, stale=stale)
        queue.settling = queue.in_flight > 0
        for batch in batches:
            batch.suspect = batch.suspect or apart
            batch.failed_at(group.leader.topic_id, maybe_appended=maybe_appended(error))
            queue.put_back(batch)
        self._waiting[queue.partition] = queue
        return self._expire(queue, now_ms)

    def _give_up(self, group: Group, error: TidelogError, maybe: bool) -> list[SealedBatch]:
        for batch in group.batches:
            batch.failed_at(group.leader.topic_id, maybe_appended=maybe)
            given_up = final_error(batch, error, group.leader.topic_id)
            self._settle(self._queues[batch.partition], batch, given_up)
        return list(group.batches)

    def wants_identity(self) -> bool:
        """Returns whether a waiting batch needs a producer id, to be set by `identified`."""
        return self.fatal is None and any(
            queue.waits_for_number
            and queue.numbering is not None
            and queue.numbering.wants_identity(self._identity)
            for queue in self._waiting.values()
        )

    def identified(self, identity: Identity) -> None:
        self._identity = identity

    def identity_failed(self, error: TidelogError) -> None:
        """Records the error for batches that wait for an id; fails them if a retry cannot help."""
        for queue in list(self._waiting.values()):
            numbering = queue.numbering
            if queue.waits_for_number and numbering and numbering.wants_identity(self._identity):
                queue.last_error = error
                if not error.retriable:
                    self._fail_unnumbered(queue, error)

    def take_position_requests(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> list[tuple[TopicPartition, Leader]]:
        """Returns partitions for which to query the leader for the next sequence of a named
        producer. Each is returned once, until `positioned` or `position_failed`."""
        requests: list[tuple[TopicPartition, Leader]] = []
        for partition, queue in self._waiting.items():
            if queue.positioning or queue.numbering is None or not queue.waits_for_number:
                continue
            leader = leader_of(partition)
            if not queue.numbering.wants_position or leader is None:
                continue
            if queue.route.open_to(leader, now_ms):
                queue.positioning = True
                requests.append((partition, leader))
        return requests

    def positioned(self, partition: TopicPartition, next_sequence: int) -> None:
        queue = self._queues.get(partition)
        if queue is None or queue.numbering is None:
            return  # the partition is gone
        queue.positioning = False
        queue.route.succeeded()
        queue.numbering.positioned(next_sequence)

    def position_failed(
        self,
        partition: TopicPartition,
        leader: Leader,
        error: TidelogError,
        now_ms: int,
        *,
        stale: bool,
    ) -> None:
        queue = self._queues.get(partition)
        if queue is None or queue.numbering is None:
            return  # the partition is gone
        queue.positioning = False
        queue.last_error = error
        if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
            self._end(name_taken(error, self._name))
        elif error.retriable:
            queue.route.failed(leader, now_ms, self._backoff, stale=stale)
        else:
            self._fail_unnumbered(queue, error)

    def expire(self, now_ms: int) -> list[SealedBatch]:
        """Fails waiting batches beyond their deadline; returns them. Iterates over all partitions
        with waiting batches, so it is meant to be called periodically."""
        expired: list[SealedBatch] = []
        for queue in list(self._waiting.values()):
            expired += self._expire(queue, now_ms)
        return expired

    def expire_in_flight(self, group: Group, now_ms: int) -> None:
        """Fails the batches of a group in flight that are beyond their deadline."""
        queue = self._queues[group.partition]
        for batch in group.batches:
            if batch.deadline_ms <= now_ms and not batch.settled:
                batch.failed_at(group.leader.topic_id, maybe_appended=True)
                late = not_in_time(batch, queue.route.failures, queue.last_error)
                self._settle(queue, batch, late)

    def fail_all(self, error: TidelogError) -> list[SealedBatch]:
        """Fails all waiting batches. Batches in flight stay in flight."""
        batches = [batch for queue in self._waiting.values() for batch in queue.waiting]
        for queue in self._waiting.values():
            queue.waiting.clear()
        self._waiting.clear()
        for batch in batches:
            self._settle(self._queues[batch.partition], batch, final_error(batch, error))
        return batches

    def fail_removed(self, partition: TopicPartition, error: TidelogError) -> None:
        """Fails the batches of a partition that does not exist any more: those that wait at once,
        those in flight as soon as they are answered."""
        queue = self._queues[partition]
        self._waiting.pop(partition, None)
        batches = [*queue.waiting]
        queue.waiting.clear()
        queue.removal_error = error
        if self._idempotence is not Idempotence.GIVEN:
            # Its sequences end with the partition. No later batch continues them, and none uses
            # them again under this identity, because a leader that does not know of the end yet
            # would answer it as a duplicate.
            numbering, queue.numbering = queue.numbering, None
            if numbering and not numbering.named and numbering.identity == self._identity:
                self._identity = None
        self._end_removed(queue)
        for batch in batches:
            self._settle(queue, batch, final_error(batch, error))

    def _end_removed(self, queue: PartitionQueue) -> None:
        """Removes a deleted partition once nothing is in flight for it. Batches that wait by then
        belong to a later partition of the same name, and get sequences of their own."""
        if queue.removal_error is None or queue.in_flight:
            return
        queue.removal_error = None
        if self._idempotence is Idempotence.GIVEN:
            return
        if queue.waiting:
            queue.numbering = self._new_numbering()
        else:
            del self._queues[queue.partition]

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Returns when the next failed partition may be retried; None: none after `now_ms`. A
        partition whose retry time has passed waits for another event, which wakes the sender."""
        return min(
            (
                queue.route.retry_at_ms
                for queue in self._waiting.values()
                if queue.route.failures and queue.route.retry_at_ms > now_ms
            ),
            default=None,
        )

    def wants_metadata(self, leader_of: Callable[[TopicPartition], Leader | None]) -> bool:
        """Returns whether a partition with waiting batches needs a (newer) leader."""
        return any(
            queue.route.wants_metadata(leader_of(partition))
            for partition, queue in self._waiting.items()
        )

    def partitions(self) -> list[TopicPartition]:
        return list(self._queues)

    def waiting(self) -> Mapping[TopicPartition, int]:
        """Returns the number of waiting batches by partition."""
        return {partition: len(queue.waiting) for partition, queue in self._waiting.items()}

    def _landed(self, group: Group) -> PartitionQueue:
        queue = self._queues[group.partition]
        queue.in_flight -= 1
        if not queue.in_flight:
            queue.settling = False
        return queue

    def _expire(self, queue: PartitionQueue, now_ms: int) -> list[SealedBatch]:
        expired = queue.take_expired(now_ms)
        if not queue.waiting:
            self._waiting.pop(queue.partition, None)
        for batch in expired:
            self._settle(queue, batch, not_in_time(batch, queue.route.failures, queue.last_error))
        return expired

    def _fail_unnumbered(self, queue: PartitionQueue, error: TidelogError) -> None:
        failed = [batch for batch in queue.waiting if batch.batch is None]
        queue.waiting = deque(batch for batch in queue.waiting if batch.batch is not None)
        if not queue.waiting:
            self._waiting.pop(queue.partition, None)
        for batch in failed:
            self._settle(queue, batch, error)

    def _settle(self, queue: PartitionQueue, batch: SealedBatch, outcome: Outcome) -> None:
        if batch.settled:  # expired in flight
            return
        batch.settled = True
        numbering = queue.numbering
        queue.early.discard(batch)
        self.unsettled -= 1
        if numbering is not None:
            write = WriteOutcome.WRITTEN
            if isinstance(outcome, TidelogError):
                write = WriteOutcome.UNKNOWN if batch.in_doubt else WriteOutcome.NOT_WRITTEN
            numbering.settled(batch, write)
            is_unknown = write is WriteOutcome.UNKNOWN
            if is_unknown and numbering.named and isinstance(outcome, TidelogError):
                # The sequences of the name must not be used for other records.
                self._end(name_in_doubt(batch.partition, outcome))
            elif self._idempotence is Idempotence.GIVEN and isinstance(outcome, TidelogError):
                self._end(not_written_before(batch.partition, outcome))
        batch.on_settled(outcome)

    def _end(self, error: TidelogError) -> None:
        if self.fatal is None:
            self.fatal = error
            self.fail_all(error)
