"""Produce: check, append, and wait for the replicas where the client asks for it.

`synced` holds for whatever is acknowledged: with acks=1 the answer waits for the leader's
own disk, with acks=all the high watermark does for every replica's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Acks, Batch, TopicPartition
from tidelog_broker.log.errors import LogError, LogFailedError
from tidelog_broker.partition.exchange import Appended
from tidelog_broker.partition.partition import Partition
from tidelog_broker.purgatory import Committed, Purgatory
from tidelog_broker.replica_manager import ReplicaManager
from tidelog_runtime.clock import Clock

MAX_TIMEOUT_MS = 300_000

_log = structlog.get_logger()

# Raises TidelogError for a batch that is corrupt or not what its header says.
CheckBatch = Callable[[Batch], None]


class ProduceEntry(NamedTuple):
    name: TopicPartition
    topic_id: str
    batches: Sequence[Batch]


class ProduceOutcome(NamedTuple):
    """One of `appended` and `error` is set."""

    appended: Appended | None
    error: TidelogError | None
    log_start_offset: int


class Produce:
    def __init__(
        self, manager: ReplicaManager, purgatory: Purgatory, clock: Clock, check: CheckBatch
    ) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock
        self._check = check

    async def __call__(
        self, entries: Sequence[ProduceEntry], acks: Acks, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """One outcome for each entry, in order. Raises INVALID_REQUEST for the whole."""
        _require_valid(entries, timeout_ms)
        outcomes: list[ProduceOutcome] = []
        waits: dict[int, Committed] = {}
        for position, entry in enumerate(entries):
            outcome, partition = self._append(entry, acks)
            outcomes.append(outcome)
            if partition is None or outcome.appended is None:
                continue
            if acks is Acks.ALL:
                waits[position] = self._purgatory.committed(partition, outcome.appended.next_offset)
            elif acks is Acks.LEADER and partition.synced:
                waits[position] = self._purgatory.synced(partition, outcome.appended.next_offset)
        if waits:
            await self._wait(entries, outcomes, waits, acks, timeout_ms)
        return [_told(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=True)]

    def _append(self, entry: ProduceEntry, acks: Acks) -> tuple[ProduceOutcome, Partition | None]:
        partition = None
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
            limit = self._manager.max_batch_bytes(partition)
            for batch in entry.batches:
                if len(batch.records) > limit:
                    raise TidelogError(
                        ErrorCode.BATCH_TOO_LARGE,
                        f"a batch for {entry.name} has {len(batch.records)} bytes; the topic "
                        f"takes at most {limit} (max_batch_bytes)",
                    )
                self._check(batch)
            appended = partition.append(entry.batches, acks, self._clock.wall_ms())
        except TidelogError as error:
            return ProduceOutcome(None, error, -1), None
        except LogError as error:
            assert partition is not None
            refused = self._manager.replica_failed(partition, error, "written")
            if isinstance(error, LogFailedError):
                refused = TidelogError(
                    ErrorCode.LEADER_CHANGED,
                    f"{entry.name}: the leader's disk failed in the middle of the append; whether "
                    "it was kept is not known",
                )
            return ProduceOutcome(None, refused, -1), None
        return ProduceOutcome(appended, None, partition.log.log_start_offset), partition

    async def _wait(
        self,
        entries: Sequence[ProduceEntry],
        outcomes: list[ProduceOutcome],
        waits: dict[int, Committed],
        acks: Acks,
        timeout_ms: int,
    ) -> None:
        def give_up() -> None:
            for position, future in waits.items():
                name = entries[position].name
                self._purgatory.give_up(name, acks, future, _timed_out(name, acks, timeout_ms))

        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, give_up)
        try:
            for position, future in waits.items():
                error = await future
                if error is not None:
                    outcomes[position] = ProduceOutcome(None, error, -1)
        finally:
            timer.cancel()
            # Also when the client has gone, and this call is cancelled.
            give_up()


def _told(entry: ProduceEntry, outcome: ProduceOutcome) -> ProduceOutcome:
    if outcome.appended is None or outcome.appended.base_offset != NO_OFFSET:
        return outcome
    error = TidelogError(
        ErrorCode.DUPLICATE_SEQUENCE,
        f"all batches for {entry.name} are in the log, some since an earlier attempt; their "
        "offsets are not remembered, or not in one stretch",
    )
    return ProduceOutcome(None, error, -1)


def _timed_out(name: TopicPartition, acks: Acks, timeout_ms: int) -> TidelogError:
    who = "the replicas in sync" if acks is Acks.ALL else "the leader's disk"
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{name}: {who} did not have the batch within {timeout_ms} ms; it may still be committed",
    )


def _require_valid(entries: Sequence[ProduceEntry], timeout_ms: int) -> None:
    if len({entry.name for entry in entries}) < len(entries):
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "a partition appears twice in one Produce request; put its batches into one entry",
        )
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"timeout_ms is {timeout_ms}; it must be between 1 and {MAX_TIMEOUT_MS}",
        )
    for entry in entries:
        if not entry.batches:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST, f"no batch for {entry.name}; leave the partition out"
            )
