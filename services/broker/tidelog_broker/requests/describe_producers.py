"""DescribeProducers: how far producers have come, and fences for the new holder of a name."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Acks, TopicPartition
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.producer_state import CommittedProducer
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.commit_wait import CommitWait, require_timeout, settled
from tidelog_broker.requests.produce import append_refused
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_runtime.clock import Clock

# Looked up without giving the loop away: a few milliseconds.
PRODUCERS_PER_TURN = 2_000


class DescribeEntry(NamedTuple):
    name: TopicPartition
    topic_id: str


class Fence(NamedTuple):
    producer_id: int
    producer_epoch: int
    timeout_ms: int


# The producers of one partition, or why they cannot be told.
DescribeOutcome = Sequence[CommittedProducer] | TidelogError


class DescribeProducers:
    def __init__(self, manager: ReplicaManager, purgatory: Purgatory, clock: Clock) -> None:
        self._manager = manager
        self._purgatory = purgatory
        self._clock = clock

    async def __call__(
        self,
        entries: Sequence[DescribeEntry],
        producer_ids: Collection[int],
        fence: Fence | None = None,
    ) -> list[DescribeOutcome]:
        """One outcome for each entry, in order. Raises INVALID_REQUEST for the whole."""
        if fence is None:
            return await self._describe_all(entries, producer_ids)
        _require_valid(fence)
        ids = producer_ids or (fence.producer_id,)
        errors: dict[int, TidelogError] = {}
        waits: dict[int, CommitWait] = {}
        epochs: dict[int, int] = {}
        for position, entry in enumerate(entries):
            try:
                partition = self._manager.partition(entry.name, entry.topic_id)
                holds_at = self._fence(partition, fence)
            except TidelogError as error:
                errors[position] = error
                continue
            epochs[position] = partition.leader_epoch
            waits[position] = CommitWait(entry.name, self._purgatory.committed(partition, holds_at))
        errors |= await settled(self._purgatory, waits, Acks.ALL, fence.timeout_ms)
        return [
            errors[position]
            if position in errors
            else await self._describe(entry, ids, fenced_in=epochs[position])
            for position, entry in enumerate(entries)
        ]

    async def _describe_all(
        self, entries: Sequence[DescribeEntry], producer_ids: Collection[int]
    ) -> list[DescribeOutcome]:
        outcomes: list[DescribeOutcome] = []
        looked_up = 0
        for entry in entries:
            outcomes.append(await self._describe(entry, producer_ids))
            looked_up += 10 + len(producer_ids)
            if looked_up >= PRODUCERS_PER_TURN:
                looked_up = 0
                await asyncio.sleep(0)
        return outcomes

    def _fence(self, partition: Partition, fence: Fence) -> int:
        self._manager.fence_former_holder(fence.producer_id, fence.producer_epoch)
        try:
            return partition.fence_producer(
                fence.producer_id, fence.producer_epoch, self._clock.wall_ms()
            )
        except LogError as error:
            raise append_refused(self._manager, partition, error) from error

    async def _describe(
        self, entry: DescribeEntry, producer_ids: Collection[int], fenced_in: int | None = None
    ) -> DescribeOutcome:
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
            if fenced_in not in (None, partition.leader_epoch):
                return TidelogError(
                    ErrorCode.LEADER_CHANGED,
                    f"{entry.name} changed its leader since the producer was fenced; ask again",
                )
            known = partition.log.producers.states
            wanted = sorted(set(producer_ids)) if producer_ids else known.ids
            found: list[CommittedProducer] = []
            for first in range(0, len(wanted), PRODUCERS_PER_TURN):
                found += partition.committed_producers(
                    wanted[first : first + PRODUCERS_PER_TURN],
                    leaves_out_unknown=not producer_ids,
                )
                if len(wanted) > PRODUCERS_PER_TURN:
                    await asyncio.sleep(0)
            return found
        except TidelogError as error:
            return error


def _require_valid(fence: Fence) -> None:
    if fence.producer_id < FIRST_NAMED_PRODUCER_ID or fence.producer_epoch < 0:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"a fence for producer {fence.producer_id} in epoch {fence.producer_epoch}; only one "
            "with a name has former holders: give id and epoch as InitProducerId gave them for "
            "the name",
        )
    require_timeout(fence.timeout_ms)
