"""DescribeProducers: the progress of producers, and fences for the new holder of a name."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Acks, TopicPartition
from tidelog.request_bounds import MAX_DESCRIBED_PRODUCERS
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.producer_state import CommittedProducer
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.commit_wait import CommitWait, require_timeout, settled
from tidelog_broker.requests.produce import append_refused
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_runtime.clock import Clock

# Producers that are looked up before the event loop runs: a few milliseconds.
PRODUCERS_PER_TURN = 2_000


class DescribeEntry(NamedTuple):
    name: TopicPartition
    topic_id: str


class Fence(NamedTuple):
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class Page(NamedTuple):
    """The part of each partition's producers that is described.

    - `size`: how many are looked up in all partitions together; 0: all, or the request is rejected.
    - `from_id`: the lowest id.
    """

    size: int = 0
    from_id: int = 0


EVERYTHING = Page()


class DescribedProducers(NamedTuple):
    """Producers of one partition. `next_id`: where its next page begins; None: there is none."""

    producers: Sequence[CommittedProducer]
    next_id: int | None = None


# The producers of one partition, or why they are not known.
DescribeOutcome = DescribedProducers | TidelogError


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
        page: Page = EVERYTHING,
    ) -> list[DescribeOutcome]:
        """Returns one outcome for each entry, in order.

        Raises INVALID_REQUEST for the whole request.
        """
        if fence is not None:
            _require_valid(fence)
            producer_ids = producer_ids or (fence.producer_id,)
        ids = sorted(set(producer_ids))
        self._require_bounded(entries, ids, page)
        errors: dict[int, TidelogError] = {}
        epochs: dict[int, int] = {}
        if fence is not None:
            errors = await self._fence_all(entries, fence, epochs)
        outcomes: list[DescribeOutcome] = []
        left = page.size or MAX_DESCRIBED_PRODUCERS
        in_turn = 0
        for position, entry in enumerate(entries):
            if position in errors:
                outcomes.append(errors[position])
                continue
            described, looked_up = await self._describe(
                entry, ids, page.from_id, left, epochs.get(position)
            )
            outcomes.append(described)
            left -= looked_up
            in_turn += 10 + looked_up
            if in_turn >= PRODUCERS_PER_TURN:
                in_turn = 0
                await asyncio.sleep(0)
        return outcomes

    async def _fence_all(
        self, entries: Sequence[DescribeEntry], fence: Fence, epochs: dict[int, int]
    ) -> dict[int, TidelogError]:
        """Returns why partitions are not fenced, by position.

        Adds the leader epochs of all others.
        """
        errors: dict[int, TidelogError] = {}
        waits: dict[int, CommitWait] = {}
        for position, entry in enumerate(entries):
            try:
                partition = self._manager.partition(entry.name, entry.topic_id)
                holds_at = self._fence(partition, fence)
            except TidelogError as error:
                errors[position] = error
                continue
            epochs[position] = partition.leader_epoch
            waits[position] = CommitWait(entry.name, self._purgatory.committed(partition, holds_at))
        return errors | await settled(self._purgatory, waits, Acks.ALL, fence.timeout_ms)

    def _require_bounded(
        self, entries: Sequence[DescribeEntry], producer_ids: Collection[int], page: Page
    ) -> None:
        """Raises INVALID_REQUEST if the request is invalid or too large."""
        if len({entry.name for entry in entries}) < len(entries):
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                "a partition appears twice in one DescribeProducers request; name each once",
            )
        if page.size < 0 or page.from_id < 0:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"page_size {page.size} and from_producer_id {page.from_id} must be 0 or more",
            )
        if page.size:
            return
        count = len(producer_ids) * len(entries) or sum(map(self._known, entries))
        if count > MAX_DESCRIBED_PRODUCERS:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{count} producers of {len(entries)} partitions are requested without a "
                f"page_size; at most {MAX_DESCRIBED_PRODUCERS} are allowed: set page_size, or "
                "name fewer partitions or producer_ids",
            )

    def _known(self, entry: DescribeEntry) -> int:
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
        except TidelogError:
            return 0
        return len(partition.log.producers.states)

    def _fence(self, partition: Partition, fence: Fence) -> int:
        self._manager.fence_former_holder(fence.producer_id, fence.producer_epoch)
        try:
            return partition.fence_producer(
                fence.producer_id, fence.producer_epoch, self._clock.wall_ms()
            )
        except LogError as error:
            raise append_refused(self._manager, partition, error) from error

    async def _describe(
        self,
        entry: DescribeEntry,
        producer_ids: Sequence[int],
        from_id: int,
        limit: int,
        fenced_in: int | None,
    ) -> tuple[DescribeOutcome, int]:
        """Returns the outcome, and how many producers were looked up: at most `limit`.

        - `producer_ids`: in order; empty: all.
        - `fenced_in`: the leader epoch of the fence; None: nothing was fenced.
        """
        try:
            partition = self._manager.partition(entry.name, entry.topic_id)
            if fenced_in not in (None, partition.leader_epoch):
                return TidelogError(
                    ErrorCode.LEADER_CHANGED,
                    f"{entry.name} changed its leader since the producer was fenced; send the "
                    "request again",
                ), 0
            if limit <= 0:
                return DescribedProducers([], from_id), 0
            known = partition.log.producers.states
            ids = producer_ids or known.ids
            begin = bisect_left(ids, from_id)
            wanted, rest = ids[begin : begin + limit], ids[begin + limit : begin + limit + 1]
            found: list[CommittedProducer] = []
            for first in range(0, len(wanted), PRODUCERS_PER_TURN):
                found += partition.committed_producers(
                    wanted[first : first + PRODUCERS_PER_TURN],
                    leaves_out_unknown=not producer_ids,
                )
                if len(wanted) > PRODUCERS_PER_TURN:
                    await asyncio.sleep(0)
            return DescribedProducers(found, rest[0] if rest else None), len(wanted)
        except TidelogError as error:
            return error, 0


def _require_valid(fence: Fence) -> None:
    if fence.producer_id < FIRST_NAMED_PRODUCER_ID or fence.producer_epoch < 0:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"producer {fence.producer_id} in epoch {fence.producer_epoch} cannot be fenced: "
            "only a named producer has previous holders; set id and epoch as InitProducerId "
            "returned them for the name",
        )
    require_timeout(fence.timeout_ms)
