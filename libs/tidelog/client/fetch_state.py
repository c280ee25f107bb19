"""Fetch state of a consumer, partition by partition. No I/O.

`plan` says what to fetch from which leader. Answers return through `received` and `failed`.
`take_batches` and `take_records` return fetched data, in order within a partition and in turn
between partitions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tidelog.batch import is_intact
from tidelog.batch_slices import decoded_size
from tidelog.client.assigned_partition import Assigned
from tidelog.client.fetch_collector import FetchCollector
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.log_continuity import Found, LogTruncatedError
from tidelog.client.partition_errors import PartitionErrors, confirm_missing
from tidelog.client.record_deserializer import RecordDeserializer
from tidelog.client.retry import Backoff, Leader
from tidelog.errors import STALE_METADATA, ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Batch, OffsetPosition, OnDamage, Record, TopicPartition
from tidelog.request_bounds import MAX_FETCH_PARTITIONS

# Maximum number of fetches in flight to a leader: partitions that are added while a fetch waits for
# data need not wait for it.
MAX_FETCHES_PER_LEADER = 4
# A batch that arrives damaged this often in a row is reported.
MAX_CORRUPT_FETCHES = 3
# An offset is out of range when leaders have said so this often, with fresh metadata in between,
# because one leader may be a zombie (rule `zombie-resets-no-client`).
OUT_OF_RANGE_CONFIRMATIONS = 2
# A topic is gone if all brokers have reported it as unknown for this long.
UNKNOWN_TOPIC_TIMEOUT_MS = 30_000

_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_STALE = STALE_METADATA | {ErrorCode.UNKNOWN_LEADER_EPOCH}


class OnOutOfRange(enum.Enum):
    """Policy for an offset that is no longer, or not yet, in the log."""

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"


_RESET_TO = {
    OnOutOfRange.EARLIEST: OffsetPosition.EARLIEST,
    OnOutOfRange.LATEST: OffsetPosition.LATEST,
}


class Want(NamedTuple):
    """One partition of a fetch. `offset` is below the next missing offset if the leader has to
    prove that its log has the records read before."""

    assigned: Assigned
    generation: int
    offset: int
    max_bytes: int


class FetchPlan(NamedTuple):
    leader: Leader
    # Each partition has its own leader entry, because the topic ids differ.
    wants: Sequence[tuple[Want, Leader]]


class Fetched(NamedTuple):
    """A leader's answer for one partition."""

    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    batches: Sequence[Batch]


class FetchState:
    """Positions, buffers and errors of the assigned partitions.

    Bound: a partition fetches nothing while it holds more than half of its share of
    `prefetch_bytes`, and never more than fills its share, in decompressed bytes. Of an answer
    beyond its share one batch is kept, and the rest is fetched again."""

    def __init__(
        self,
        backoff: Backoff,
        *,
        prefetch_bytes: int,
        on_out_of_range: OnOutOfRange,
        on_damage: OnDamage = OnDamage.RAISE,
        deserializer: RecordDeserializer | None = None,
    ) -> None:
        self._backoff = backoff
        self._prefetch_bytes = prefetch_bytes
        self._on_out_of_range = on_out_of_range
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._turn = 0
        self._fetches: dict[int, int] = {}
        self._on_damage = on_damage
        self._truncations: list[LogTruncatedError] = []
        self.taking = FetchCollector(self._cannot_open, deserializer)
        self.errors = PartitionErrors()
        self._skipped: list[RecordsDamagedError] = []

    def assign(
        self,
        partitions: Iterable[TopicPartition],
        start: OffsetPosition,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Keeps the state of partitions that stay, and starts new ones at `start`. `topic_ids`: by
        name, for topics where no other topic of the name may be read."""
        self.taking.lending.recall()
        before = self._assigned
        self._assigned = {p: before.get(p) or Assigned(p, start) for p in partitions}
        for partition, assigned in before.items():
            if partition not in self._assigned:
                assigned.seek(None)
        for partition, assigned in self._assigned.items():
            assigned.topic_id = assigned.topic_id or topic_ids.get(partition.topic, "")
        self.errors.keep(self._assigned)

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._assigned)

    @property
    def has_partitions(self) -> bool:
        return bool(self._assigned)

    @property
    def buffered_bytes(self) -> int:
        return sum(assigned.buffered_bytes for assigned in self._assigned.values())

    def has_sought_in(self, topic: str, topic_id: str) -> bool:
        """Whether the caller has sought in this topic since a topic of its name was deleted."""
        return any(
            a.error is None and not a.missing and a.topic_id in ("", topic_id)
            for p, a in self._assigned.items()
            if p.topic == topic
        )

    def get(self, partition: TopicPartition) -> Assigned:
        """Returns the state of a partition. Raises `TidelogError` if it is not assigned."""
        assigned = self._assigned.get(partition)
        if assigned is None:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{partition} is not assigned to this consumer; assign it first",
            )
        return assigned

    def position(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the next record for the user."""
        return self.taking.lending.position(self.get(partition))

    def to_find(self) -> dict[OffsetPosition, list[tuple[Assigned, int]]]:
        """Returns partitions without a position, with their generations; each of them once."""
        found: dict[OffsetPosition, list[tuple[Assigned, int]]] = {}
        for assigned in self._assigned.values():
            if assigned.reset is not None and not assigned.finding and assigned.error is None:
                assigned.finding = True
                found.setdefault(assigned.reset, []).append((assigned, assigned.generation))
        return found

    @property
    def _share(self) -> int:
        """Share of one partition in `prefetch_bytes`."""
        return max(self._prefetch_bytes // max(len(self._assigned), 1), 1)

    def plan(
        self, now_ms: int, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> list[FetchPlan]:
        """Returns the fetches to send now. Each is in flight until `finish`."""
        share = self._share
        by_leader: dict[int, tuple[Leader, list[tuple[Want, Leader]]]] = {}
        for assigned in self._assigned.values():
            if not assigned.may_fetch(share):
                continue
            leader = leader_of(assigned.partition)
            if leader is None or not self._usable(assigned, leader, now_ms):
                continue
            if self._fetches.get(leader.broker_id, 0) >= MAX_FETCHES_PER_LEADER:
                continue
            want = Want(
                assigned,
                assigned.generation,
                assigned.continuity.first_offset(assigned.fetch_offset, leader.leader_epoch),
                max(int((share - assigned.buffered_bytes) / assigned.expansion), 1),
            )
            by_leader.setdefault(leader.broker_id, (leader, []))[1].append((want, leader))
        plans = [FetchPlan(leader, _longest_waiting(w)) for leader, w in by_leader.values()]
        for plan in plans:
            self._fetches[plan.leader.broker_id] = self._fetches.get(plan.leader.broker_id, 0) + 1
            self._turn += 1
            for want, _ in plan.wants:
                want.assigned.in_flight = True
                want.assigned.fetch_turn = self._turn
        return plans

    def _usable(self, assigned: Assigned, leader: Leader, now_ms: int) -> bool:
        if assigned.topic_id and leader.topic_id != assigned.topic_id:
            assigned.reset_position(leader.topic_id)
            error = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {assigned.partition.topic!r} was deleted and created again; its offsets "
                "start again; seek to the offset at which reading shall begin",
            )
            self.errors.add(assigned, error)
            return False
        if leader.leader_epoch < assigned.newest_epoch:
            # Records of a newer leader have been read, so this leader is deposed.
            if not assigned.route.stale:
                assigned.route.failed(leader, now_ms, self._backoff, stale=True)
            return False
        return assigned.route.open_to(leader, now_ms)

    def finish(self, plan: FetchPlan) -> None:
        """Ends a fetch that is answered or never will be. The caller reports the result of each
        partition."""
        self._fetches[plan.leader.broker_id] -= 1

    def received(self, want: Want, leader: Leader, fetched: Fetched, now_ms: int) -> None:
        assigned = want.assigned
        if assigned.generation != want.generation:
            return
        assigned.in_flight = False
        if fetched.leader_epoch < assigned.newest_epoch:
            assigned.route.failed(leader, now_ms, self._backoff, stale=True)
            return
        assigned.topic_id = leader.topic_id
        assigned.out_of_range = 0
        assigned.missing_reported &= assigned.missing
        if want.offset < assigned.fetch_offset and not self._continues(
            assigned, leader, fetched.batches, now_ms
        ):
            return
        if not self._keep(assigned, leader, fetched.batches, now_ms):
            return
        assigned.route.succeeded()
        assigned.failing_since_ms = 0
        # Move the partition to the end, so that the others are fetched first.
        if fetched.batches and self._assigned.get(assigned.partition) is assigned:
            del self._assigned[assigned.partition]
            self._assigned[assigned.partition] = assigned

    def _keep(
        self, assigned: Assigned, leader: Leader, batches: Sequence[Batch], now_ms: int
    ) -> bool:
        """Buffers as many batches as there is room for. Returns False if one is damaged."""
        wire_bytes = decoded_bytes = kept = 0
        for batch in batches:
            if batch.header.next_offset <= assigned.fetch_offset:
                continue
            size = decoded_size(batch)
            wire_bytes += len(batch.records)
            decoded_bytes += size
            assigned.expansion = max(decoded_bytes / max(wire_bytes, 1), 1.0)
            # One batch of each answer is kept, or it would be requested again at once.
            if kept and assigned.buffered_bytes + size > self._share:
                break
            if not is_intact(batch):
                self._corrupt(assigned, batch, leader, now_ms)
                return False
            assigned.buffered.append(batch)
            assigned.buffered_bytes += size
            assigned.fetch_offset = batch.header.next_offset
            assigned.newest_epoch = max(assigned.newest_epoch, batch.header.leader_epoch)
            assigned.continuity.read(batch.header, leader.leader_epoch)
            assigned.corrupt = 0
            kept += 1
        return True

    def _continues(
        self, assigned: Assigned, leader: Leader, batches: Sequence[Batch], now_ms: int
    ) -> bool:
        """Returns whether a new leader has proved that its log has the records read before."""
        if batches and not is_intact(batches[0]):
            self._corrupt(assigned, batches[0], leader, now_ms)
            return False
        found = assigned.continuity.compare(batches)
        if found is Found.SAME:
            assigned.continuity.leader_epoch = leader.leader_epoch
            return True
        assigned.route.succeeded()
        if found is Found.OTHER:
            self._truncated(assigned, leader, now_ms)
        return False

    def _truncated(self, assigned: Assigned, leader: Leader, now_ms: int) -> None:
        error = LogTruncatedError(
            assigned.partition,
            assigned.fetch_offset,
            assigned.continuity.read_epoch,
            leader.leader_epoch,
        )
        if not assigned.reported_truncation:
            assigned.reported_truncation = True
            self._truncations.append(error)
        if self._on_out_of_range is OnOutOfRange.ERROR:
            self.errors.add(assigned, error)
        else:
            self._reset(assigned, leader, now_ms)

    def _reset(self, assigned: Assigned, leader: Leader, now_ms: int) -> None:
        if assigned.buffered:
            # The buffered records are returned first.
            assigned.route.failed(leader, now_ms, self._backoff, stale=False)
        else:
            assigned.route.succeeded()
            assigned.seek(None, _RESET_TO[self._on_out_of_range])

    def take_truncations(self) -> list[LogTruncatedError]:
        """Returns truncations since the last call. The policy "error" raises them as well."""
        found, self._truncations = self._truncations, []
        return found

    def take_skipped(self) -> list[RecordsDamagedError]:
        """Returns damaged records that were skipped since the last call."""
        found, self._skipped = self._skipped, []
        return found

    def give_up(self, want: Want) -> None:
        """Gives up a fetch because its leader hangs and there is a newer one. A late answer is
        dropped."""
        assigned = want.assigned
        if assigned.generation == want.generation:
            assigned.generation += 1
            assigned.in_flight = False

    def _corrupt(self, assigned: Assigned, batch: Batch, leader: Leader, now_ms: int) -> None:
        assigned.corrupt += 1
        assigned.route.failed(leader, now_ms, self._backoff, stale=False)
        if assigned.corrupt >= MAX_CORRUPT_FETCHES:
            error = TidelogError(
                ErrorCode.CORRUPT_BATCH,
                f"the batch at offset {batch.header.base_offset} of {assigned.partition} fails "
                f"its CRC32C, {assigned.corrupt} times from {leader.address}; its replica there "
                "is damaged",
            )
            self.errors.add(assigned, error)

    def _cannot_open(self, assigned: Assigned, error: TidelogError) -> None:
        assigned.close_buffered()
        self.errors.add(assigned, error)

    def failed(
        self,
        want: Want,
        leader: Leader,
        error: TidelogError,
        now_ms: int,
        *,
        stale: bool,
        answer: Fetched | None = None,
    ) -> None:
        """Handles the error of a fetch. `answer`: the result that came with it; None if the leader
        did not answer."""
        assigned = want.assigned
        if assigned.generation != want.generation:
            return
        assigned.in_flight = False
        if not assigned.route.failures:
            assigned.failing_since_ms = now_ms
        stale = stale or error.code in _STALE
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and answer is not None:
            self._out_of_range(assigned, want, leader, answer, error, now_ms)
            return
        if isinstance(error, RecordsDamagedError):
            self._damaged(assigned, want, error)
            return
        assigned.route.failed(leader, now_ms, self._backoff, stale=stale)
        failing_ms = now_ms - assigned.failing_since_ms
        gone = error.code in _UNKNOWN_TOPIC and failing_ms >= UNKNOWN_TOPIC_TIMEOUT_MS
        if gone or not error.retriable:
            self.errors.add(assigned, error)

    def _damaged(self, assigned: Assigned, want: Want, error: RecordsDamagedError) -> None:
        assigned.route.succeeded()
        if want.offset < assigned.fetch_offset:
            # The records were intact when they were read. Nothing can be compared with them now.
            assigned.continuity.forget()
        elif self._on_damage is OnDamage.RAISE:
            self.errors.add(assigned, error)
        else:
            assigned.continuity.forget()
            assigned.fetch_offset = error.next_offset
            if not assigned.buffered:
                assigned.position = error.next_offset
            self._skipped.append(error)

    def _out_of_range(
        self,
        assigned: Assigned,
        want: Want,
        leader: Leader,
        answer: Fetched,
        error: TidelogError,
        now_ms: int,
    ) -> None:
        checking = want.offset < assigned.fetch_offset
        if checking and want.offset < answer.log_start_offset <= assigned.fetch_offset:
            # The records that were read are no longer kept, so there is nothing to compare.
            assigned.continuity.forget()
            return
        # The fetch had the epoch that is known here; a leader of another epoch rejects it. An
        # answer with an error may have no epoch (0); if it has one, that is checked.
        answered_epoch = answer.leader_epoch or leader.leader_epoch
        believed = answered_epoch >= max(leader.leader_epoch, assigned.newest_epoch)
        assigned.out_of_range += believed
        if assigned.out_of_range < OUT_OF_RANGE_CONFIRMATIONS:
            assigned.route.failed(leader, now_ms, self._backoff, stale=True)
            return
        if checking and answer.log_start_offset <= want.offset:
            self._truncated(assigned, leader, now_ms)
            return
        if self._on_out_of_range is not OnOutOfRange.ERROR:
            self._reset(assigned, leader, now_ms)
            return
        assigned.route.succeeded()
        holds = f"the log holds offsets {answer.log_start_offset} to {answer.high_watermark}"
        if answer.high_watermark < 0:
            holds = error.message
        range_error = TidelogError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {assigned.fetch_offset} of {assigned.partition} is out of range: {holds}; "
            "seek to one of these, or set on_out_of_range to earliest or latest",
        )
        self.errors.add(assigned, range_error)

    def update_missing(
        self,
        leader_of: Callable[[TopicPartition], Leader | None],
        gone: Callable[[TopicPartition], TidelogError | None],
    ) -> None:
        """Sets the errors that `gone` returns for partitions that no longer exist, until they
        exist again."""
        self.errors.update_missing(self._assigned.values(), leader_of, gone)

    def confirm_missing(self, topic: str) -> None:
        """Records that a broker has just been queried about this topic."""
        confirm_missing(self._assigned.values(), topic)

    def wants_metadata(self, leader_of: Callable[[TopicPartition], Leader | None]) -> bool:
        return any(
            a.reset is None and a.error is None and a.route.wants_metadata(leader_of(p))
            for p, a in self._assigned.items()
        )

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Returns when the next failed partition may be retried; None: none after `now_ms`. A
        partition whose retry time has passed waits for another event, which wakes the fetcher."""
        return min(
            (
                a.route.retry_at_ms
                for a in self._assigned.values()
                if a.route.failures and a.route.retry_at_ms > now_ms
            ),
            default=None,
        )

    def take_batches(self, max_batches: int) -> list[FetchedBatch]:
        """Raises a partition's error as `PartitionErrors` says. If it must be confirmed first,
        `errors.unconfirmed` is the partition."""
        self.taking.lending.recall()
        self.errors.raise_new()
        taken = self.taking.take_batches(self._assigned.values(), max_batches)
        if not taken:
            self.errors.raise_any(self._assigned.values())
        return taken

    def take_records(
        self, max_records: int, enough: Callable[[], bool] = lambda: False
    ) -> list[Record]:
        """Raises errors as `take_batches`. If it ends at a costly batch, `taking.costly` is the
        partition: the caller opens the batch and takes again. Ends early, with some records, once
        `enough` returns true, which is checked every RECORDS_PER_CHECK records."""
        self.taking.lending.recall()
        self.errors.raise_new()
        taken = self.taking.take(self._assigned.values(), max_records, enough)
        if not taken and self.taking.costly is None:
            self.errors.raise_any(self._assigned.values())
        return taken

    @property
    def has_error(self) -> bool:
        return any(assigned.error is not None for assigned in self._assigned.values())


def _longest_waiting(wants: list[tuple[Want, Leader]]) -> list[tuple[Want, Leader]]:
    """Returns as many partitions as one fetch may name: those that were fetched longest ago."""
    if len(wants) <= MAX_FETCH_PARTITIONS:
        return wants
    return sorted(wants, key=lambda entry: entry[0].assigned.fetch_turn)[:MAX_FETCH_PARTITIONS]
