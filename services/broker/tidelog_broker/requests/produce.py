"""Produce: checks, appends, and waits for the replicas if the client requires it.

In a `synced` topic whatever is acknowledged is synced: with acks=1 the answer waits for the
leader's own disk, with acks=all the high watermark waits for every replica's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from tidelog.batch import retimed
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Acks, Batch, TopicPartition
from tidelog_broker.core.partition.exchange import Appended
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.rejected_requests import RejectionCounts
from tidelog_broker.log.log_errors import LogError, LogFailedError
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.commit_wait import CommitWait, require_timeout, wait_for_commits
from tidelog_broker.requests.key_placements import KeyPlacements
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_runtime.clock import Clock
from tidelog_runtime.topic_config import UNLIMITED

# Work between two turns of the event loop, a millisecond or two. An append may have to open a file,
# and one that begins a leader epoch takes as long as several.
WORK_PER_TURN = 8
WORK_OF_NEW_EPOCH = 4

_log = structlog.get_logger()


class ProduceEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    batches: Sequence[Batch]


class ProduceOutcome(NamedTuple):
    """The result for one partition. One of `appended` and `error` is set."""

    appended: Appended | None
    error: TidelogError | None
    log_start_offset: int


class Produce:
    """Serves Produce requests.

    - `clock`: for timestamps of records.
    - `latest`: for times of appends, and for the limit on timestamps.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        checks: BatchChecks,
        latest: Clock | None = None,
    ) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock
        self._latest = latest or clock
        self._checks = checks
        self.rejections = RejectionCounts()
        self.key_placements = KeyPlacements()

    async def handle(
        self, entries: Sequence[ProduceEntry], acks: Acks, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """Returns one outcome for each entry, in order.

        Raises INVALID_REQUEST for the whole request.
        """
        _require_valid(entries, timeout_ms)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        outcomes: list[ProduceOutcome] = []
        waits: dict[int, CommitWait] = {}
        errors = {e.name: error for e in entries if (error := self._not_admitted(e)) is not None}
        admitted = {entry.name: entry.batches for entry in entries if entry.name not in errors}
        append_timed = {name for name in admitted if self._is_append_timed(name)}
        try:
            async with self._checks.checked(admitted, append_timed, timeout_ms) as checked:
                errors.update(checked.errors)
                errors.update(self._outgrown(checked.batches))
                timed = [
                    entry._replace(batches=checked.batches.get(entry.name, entry.batches))
                    for entry in entries
                ]
                await self._append_all(timed, acks, errors, outcomes, waits)
        except TidelogError as rejection:
            if rejection.code is not ErrorCode.TOO_MANY_REQUESTS:
                raise
            errors.update(dict.fromkeys(admitted, rejection))
            outcomes = [ProduceOutcome(None, errors[entry.name], -1) for entry in entries]
        if waits:
            left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
            late = await wait_for_commits(self._purgatory, waits, acks, left_ms)
            for position, error in late.items():
                outcomes[position] = ProduceOutcome(None, error, -1)
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.error is not None:
                now_ms = self._clock.monotonic_ms()
                self.rejections.add(entry.name.topic, outcome.error, now_ms)
        return [
            _with_known_offsets(entry, outcome)
            for entry, outcome in zip(entries, outcomes, strict=True)
        ]

    async def _append_all(
        self,
        entries: Sequence[ProduceEntry],
        acks: Acks,
        errors: Mapping[TopicPartition, TidelogError],
        outcomes: list[ProduceOutcome],
        waits: dict[int, CommitWait],
    ) -> None:
        """Fills `outcomes`, in the order of the entries, and `waits`."""
        work = 0
        for position, entry in enumerate(entries):
            if work >= WORK_PER_TURN:
                work = 0
                await asyncio.sleep(0)
            bad = errors.get(entry.name)
            if bad is not None:
                outcomes.append(ProduceOutcome(None, bad, -1))
                continue
            work += self._work_of_append(entry.name)
            outcome, partition = self._append(entry, acks)
            outcomes.append(outcome)
            if partition is None or outcome.appended is None:
                continue
            end = outcome.appended.next_offset
            if acks is Acks.ALL:
                waits[position] = CommitWait(entry.name, self._purgatory.committed(partition, end))
            elif acks is Acks.LEADER and partition.synced:
                waits[position] = CommitWait(entry.name, self._purgatory.synced(partition, end))

    def _work_of_append(self, name: TopicPartition) -> int:
        """Returns the work of an append.

        The first one of a leader epoch replaces a file, and may open another one.
        """
        partition = self._manager.find_led(name)
        if partition is None or partition.log.latest_epoch == partition.leader_epoch:
            return 1
        return WORK_OF_NEW_EPOCH

    def _is_append_timed(self, name: TopicPartition) -> bool:
        partition = self._manager.partition(name, "")
        return self._manager.batch_limits(partition).append_time

    def _outgrown(
        self, batches: Mapping[TopicPartition, Sequence[Batch]]
    ) -> dict[TopicPartition, TidelogError]:
        """Returns the errors of batches that are too large once they are compressed again.

        A producer may compress better than a broker, and the limit applies to what is appended,
        too.
        """
        errors: dict[TopicPartition, TidelogError] = {}
        for name, retimed_batches in batches.items():
            try:
                limit = self._manager.batch_limits(self._manager.partition(name, "")).max_bytes
            except TidelogError as error:
                # Leadership has moved while they were checked.
                errors[name] = error
                continue
            largest = max(len(batch.records) for batch in retimed_batches)
            if largest > limit:
                errors[name] = TidelogError(
                    ErrorCode.BATCH_TOO_LARGE,
                    f"a batch for {name} has {largest} bytes once its records have the time of "
                    f"their append (timestamp_type) and it is compressed again; the topic takes at "
                    f"most {limit} (max_batch_bytes): send smaller batches, or give all records "
                    "of a batch one timestamp",
                )
        return errors

    def _not_admitted(self, entry: ProduceEntry) -> TidelogError | None:
        """Returns the error of batches that are rejected without a check."""
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
        except TidelogError as error:
            return error
        limits = self._manager.batch_limits(partition)
        for batch in entry.batches:
            if len(batch.records) > limits.max_bytes:
                return TidelogError(
                    ErrorCode.BATCH_TOO_LARGE,
                    f"a batch for {entry.name} has {len(batch.records)} bytes; the topic "
                    f"takes at most {limits.max_bytes} (max_batch_bytes): send smaller records, or "
                    "compress them",
                )
            if batch.header.record_count > limits.max_records:
                return TidelogError(
                    ErrorCode.INVALID_BATCH,
                    f"a batch for {entry.name} has {batch.header.record_count} records; the topic "
                    f"takes at most {limits.max_records} (max_batch_records): send several batches",
                )
        return None

    def _append(self, entry: ProduceEntry, acks: Acks) -> tuple[ProduceOutcome, Partition | None]:
        partition = None
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
            now_ms, limits = self._latest.wall_ms(), self._manager.batch_limits(partition)
            for batch in entry.batches:
                if not limits.append_time:
                    _check_timestamp(entry.name, batch, limits.max_ahead_ms, now_ms)
                self._manager.fence_previous_holder(
                    batch.header.producer_id, batch.header.producer_epoch
                )
            batches = entry.batches
            if limits.append_time:
                timestamp_ms = self._clock.wall_ms()
                batches = [retimed(batch, timestamp_ms) for batch in batches]
            end = partition.log.log_end_offset
            appended = partition.append(batches, acks, now_ms)
            if self._manager.disk:
                self._manager.disk.took(partition.key, "written")
            partitions = self._manager.partition_count(entry.name.topic)
            steady_ms = self._clock.monotonic_ms()
            self.key_placements.note(entry.name, partitions, batches[0], steady_ms)
            if appended.next_offset <= end:
                _log.debug("duplicate_answered", partition=str(entry.name))
        except TidelogError as error:
            return ProduceOutcome(None, error, -1), None
        except LogError as error:
            assert partition is not None
            rejection = append_rejected(self._manager, partition, error)
            return ProduceOutcome(None, rejection, -1), None
        return ProduceOutcome(appended, None, partition.log.log_start_offset), partition


def _check_timestamp(name: TopicPartition, batch: Batch, max_ahead_ms: int, now_ms: int) -> None:
    """Raises INVALID_TIMESTAMP if a record is too far ahead of the leader's clock."""
    newest_ms = batch.header.max_timestamp_ms
    if max_ahead_ms != UNLIMITED and newest_ms > now_ms + max_ahead_ms:
        raise TidelogError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a batch for {name} has a record of timestamp {newest_ms}, which is "
            f"{newest_ms - now_ms} ms ahead of the leader's clock ({now_ms}); the topic takes "
            f"at most {max_ahead_ms} (timestamp_max_ahead_ms): timestamps are milliseconds since "
            "1970 (UTC), and the clock of the sender must be right",
        )


def append_rejected(manager: ReplicaManager, partition: Partition, error: LogError) -> TidelogError:
    """Returns the client's error for an append that the log rejected."""
    rejection = manager.replica_failed(partition, error, "written")
    if isinstance(error, LogFailedError):
        return TidelogError(
            ErrorCode.LEADER_CHANGED,
            f"{partition.name}: the leader's disk failed during the append, whose outcome is "
            "unknown",
        )
    return rejection


def _with_known_offsets(entry: ProduceEntry, outcome: ProduceOutcome) -> ProduceOutcome:
    if outcome.appended is None or outcome.appended.base_offset != NO_OFFSET:
        return outcome
    error = TidelogError(
        ErrorCode.DUPLICATE_SEQUENCE,
        f"all batches for {entry.name} are in the log, some from an earlier attempt; their "
        "offsets are unknown or not contiguous",
    )
    return ProduceOutcome(None, error, -1)


def _require_valid(entries: Sequence[ProduceEntry], timeout_ms: int) -> None:
    if len({entry.name for entry in entries}) < len(entries):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "a partition appears twice in one Produce request; put its batches into one entry",
        )
    require_timeout(timeout_ms)
    for entry in entries:
        if not entry.batches:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST, f"no batch for {entry.name}; leave the partition out"
            )
