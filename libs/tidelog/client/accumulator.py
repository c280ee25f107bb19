"""What a producer holds until it is delivered: batches by partition, in order. No I/O.

Records gather in a partition's open batch until it is full or has lingered; a sealed
batch waits in its partition's queue; `drain` takes batches from the queues into one
request per broker; a settled batch leaves, a failed one goes back to where it was.

Order: a partition's batches are numbered when they are sealed, and its queue is always
sorted by that number. After a failure nothing more is sent for the partition until all
that is in flight for it has been answered, so that what failed together is sent again in
order. Even so a batch that failed while a later one was appended comes after it, and one
whose answer was lost is appended twice: only an idempotent producer can rule that out.
For it a batch gets its sequence in `drain`, when it is first sent, and keeps it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.delivery import Appended, Outcome
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, TopicPartition
from tidelog.record_batch import EncodedRecords

# One batch of a group is at fault, and nothing was appended: the others may pass alone.
_FAULT_OF_ONE = frozenset({ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH})

# What one batch takes in a request beside its records, generously.
BATCH_OVERHEAD_BYTES = 128


@dataclass(slots=True, eq=False)
class SealedBatch:
    """A batch on its way. `number` orders it within its partition; `batch` is made when
    it is first sent, with whatever sequence it then gets, and never changes."""

    partition: TopicPartition
    number: int
    encoded: EncodedRecords
    deadline_ms: int
    on_settled: Callable[[Outcome], None]
    batch: Batch | None = None
    # Refused together with others: sent by itself, to learn which of them is at fault.
    alone: bool = False

    @property
    def wire_bytes(self) -> int:
        return len(self.encoded.records) + BATCH_OVERHEAD_BYTES


class Group(NamedTuple):
    """Batches of one partition that travel in one request and succeed or fail together."""

    partition: TopicPartition
    leader: Leader
    batches: Sequence[SealedBatch]


@dataclass(slots=True)
class Request:
    leader: Leader
    groups: list[Group] = field(default_factory=list)
    wire_bytes: int = 0


@dataclass(slots=True)
class _Queue:
    partition: TopicPartition
    waiting: deque[SealedBatch] = field(default_factory=deque)
    in_flight: int = 0
    # A batch failed while others were in flight: nothing is sent until they are answered.
    settling: bool = False
    next_number: int = 0
    route: Route = field(default_factory=Route)


class Accumulator:
    """Bounds: `max_in_flight_per_broker` requests to a broker, `max_in_flight_per_partition`
    of them with batches of one partition, `max_request_bytes` in a request unless a single
    batch is larger. What it holds in all is the caller's to bound."""

    def __init__(
        self,
        backoff: Backoff,
        *,
        max_request_bytes: int,
        max_in_flight_per_broker: int,
        max_in_flight_per_partition: int,
    ) -> None:
        self._backoff = backoff
        self._max_request_bytes = max_request_bytes
        self._max_in_flight_per_broker = max_in_flight_per_broker
        self._max_in_flight_per_partition = max_in_flight_per_partition
        self._queues: dict[TopicPartition, _Queue] = {}
        # Queues with waiting batches; those that were just served are at the end.
        self._waiting: dict[TopicPartition, _Queue] = {}
        self._in_flight: dict[int, int] = {}
        self.unsettled = 0

    def seal(
        self,
        partition: TopicPartition,
        encoded: EncodedRecords,
        *,
        deadline_ms: int,
        on_settled: Callable[[Outcome], None],
    ) -> None:
        """Puts a batch at the end of its partition's queue."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue(partition)
        batch = SealedBatch(partition, queue.next_number, encoded, deadline_ms, on_settled)
        queue.next_number += 1
        queue.waiting.append(batch)
        self._waiting[partition] = queue
        self.unsettled += 1

    def drain(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> list[Request]:
        """Takes all that may be sent now; every request counts as in flight until
        `answered` or `failed`."""
        full: list[Request] = []
        filling: dict[int, Request] = {}
        for queue in list(self._waiting.values()):
            if queue.settling or queue.in_flight >= self._max_in_flight_per_partition:
                continue
            leader = leader_of(queue.partition)
            if leader is None or not queue.route.open_to(leader, now_ms):
                continue
            request = self._request_for(leader, queue.waiting[0], filling, full)
            if request is not None:
                self._take(queue, leader, request)
        return [*full, *filling.values()]

    def _request_for(
        self,
        leader: Leader,
        first: SealedBatch,
        filling: dict[int, Request],
        full: list[Request],
    ) -> Request | None:
        request = filling.get(leader.broker_id)
        if request is not None:
            if request.wire_bytes + first.wire_bytes <= self._max_request_bytes:
                return request
            full.append(filling.pop(leader.broker_id))
        in_flight = self._in_flight.get(leader.broker_id, 0)
        if in_flight >= self._max_in_flight_per_broker:
            return None
        self._in_flight[leader.broker_id] = in_flight + 1
        request = filling[leader.broker_id] = Request(leader)
        return request

    def _take(self, queue: _Queue, leader: Leader, request: Request) -> None:
        taken: list[SealedBatch] = []
        while queue.waiting:
            batch = queue.waiting[0]
            if taken and (
                batch.alone
                or taken[0].alone
                or request.wire_bytes + batch.wire_bytes > self._max_request_bytes
            ):
                break
            if batch.batch is None:
                batch.batch = batch.encoded.to_batch()
            taken.append(queue.waiting.popleft())
            request.wire_bytes += batch.wire_bytes
        request.groups.append(Group(queue.partition, leader, taken))
        queue.in_flight += 1
        del self._waiting[queue.partition]
        if queue.waiting:
            self._waiting[queue.partition] = queue

    def finish(self, request: Request) -> None:
        """The request has been answered, or never will be. Each of its groups is told by
        itself, through `appended` or `failed`."""
        self._in_flight[request.leader.broker_id] -= 1

    def appended(self, group: Group, where: Appended) -> list[SealedBatch]:
        """Settles the batches of a group; returns them."""
        queue = self._landed(group)
        queue.route.succeeded()
        offset = where.base_offset
        for batch in group.batches:
            self._settle(batch, where._replace(base_offset=offset))
            if offset >= 0:
                offset += batch.encoded.record_count
        return list(group.batches)

    def failed(
        self, group: Group, error: TidelogError, now_ms: int, *, stale: bool
    ) -> list[SealedBatch]:
        """Puts the batches of a group back where a retry may help, else settles them with
        the error; returns those. `stale`: fresh metadata may name another leader."""
        queue = self._landed(group)
        apart = error.code in _FAULT_OF_ONE and len(group.batches) > 1
        if not error.retriable and not apart:
            for batch in group.batches:
                self._settle(batch, error)
            return list(group.batches)
        if error.retriable:
            queue.route.failed(group.leader.leader_epoch, now_ms, self._backoff, stale=stale)
        queue.settling = queue.in_flight > 0
        for batch in group.batches:
            batch.alone = batch.alone or apart
            insort(queue.waiting, batch, key=_number)
        self._waiting[queue.partition] = queue
        return self._expire(queue, now_ms, error)

    def expire(self, now_ms: int) -> list[SealedBatch]:
        """Settles what has waited beyond its deadline, and returns it. Looks at every
        partition that has something waiting: meant to be called now and then."""
        expired: list[SealedBatch] = []
        for queue in list(self._waiting.values()):
            expired += self._expire(queue, now_ms, None)
        return expired

    def fail_all(self, error: TidelogError) -> list[SealedBatch]:
        """Settles all that waits; what is in flight stays so."""
        batches = [batch for queue in self._waiting.values() for batch in queue.waiting]
        for queue in self._waiting.values():
            queue.waiting.clear()
        self._waiting.clear()
        for batch in batches:
            self._settle(batch, error)
        return batches

    def next_retry_ms(self, now_ms: int) -> int | None:
        """When the next partition that failed may be tried again. One whose time has come
        waits for something else, whose coming is noticed by itself."""
        return min(
            (
                queue.route.retry_at_ms
                for queue in self._waiting.values()
                if queue.route.failures and queue.route.retry_at_ms > now_ms
            ),
            default=None,
        )

    def wants_metadata(self, leader_of: Callable[[TopicPartition], Leader | None]) -> bool:
        """Whether some partition has something to send and looks for a (newer) leader."""
        return any(
            queue.route.wants_metadata(leader_of(partition))
            for partition, queue in self._waiting.items()
        )

    def waiting(self) -> Mapping[TopicPartition, int]:
        """How many batches wait in each queue."""
        return {partition: len(queue.waiting) for partition, queue in self._waiting.items()}

    def _landed(self, group: Group) -> _Queue:
        queue = self._queues[group.partition]
        queue.in_flight -= 1
        if not queue.in_flight:
            queue.settling = False
        return queue

    def _expire(self, queue: _Queue, now_ms: int, error: TidelogError | None) -> list[SealedBatch]:
        # In order of their numbers, and so of their deadlines.
        expired: list[SealedBatch] = []
        while queue.waiting and queue.waiting[0].deadline_ms <= now_ms:
            expired.append(queue.waiting.popleft())
        if not queue.waiting:
            self._waiting.pop(queue.partition, None)
        for batch in expired:
            self._settle(batch, _not_in_time(batch, queue.route, error))
        return expired

    def _settle(self, batch: SealedBatch, outcome: Outcome) -> None:
        self.unsettled -= 1
        batch.on_settled(outcome)


def _number(batch: SealedBatch) -> int:
    return batch.number


def _not_in_time(batch: SealedBatch, route: Route, error: TidelogError | None) -> TidelogError:
    tried = f"after {route.failures} failures" if route.failures else "without having been sent"
    last = f"; the last: {error.message}" if error is not None else ""
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"a batch of {batch.encoded.record_count} records for {batch.partition} was not "
        f"delivered within delivery_timeout_ms, {tried}{last}; whether it was appended is "
        f"{'not known' if batch.batch is not None else 'known: it was not'}",
    )
