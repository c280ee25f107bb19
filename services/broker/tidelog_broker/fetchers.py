"""One replica fetcher for each leader that this broker follows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from tidelog.model import NO_LEADER
from tidelog_broker.background import Faults
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replica_fetcher import FetchLimits, FollowerContext, ReplicaFetcher
from tidelog_broker.transport import Peers


class Fetchers:
    def __init__(
        self,
        context: FollowerContext,
        peers: Peers,
        limits: FetchLimits,
        rng: random.Random,
        faults: Faults,
    ) -> None:
        self._context = context
        self._peers = peers
        self._limits = limits
        self._rng = rng
        self._faults = faults
        self._fetchers: dict[int, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._following: dict[Partition, int] = {}
        # Cancelled, and not yet gone.
        self._ending: set[asyncio.Task[None]] = set()

    def update(self, partitions: Iterable[Partition]) -> None:
        """Each of these may have a new leader, or none to follow any more. A new epoch of
        the same leader counts: the fetch that waits there is asked anew."""
        arrivals: dict[int, list[Partition]] = {}
        for partition in partitions:
            leader = partition.leader_to_follow
            if self._following.get(partition, NO_LEADER) not in (NO_LEADER, leader):
                self.forget(partition)
            if leader != NO_LEADER:
                self._following[partition] = leader
                arrivals.setdefault(leader, []).append(partition)
        for leader, followed in arrivals.items():
            self._fetcher(leader).follow(followed)
        self._stop_idle()

    def forget(self, partition: Partition) -> None:
        leader = self._following.pop(partition, NO_LEADER)
        if leader in self._fetchers:
            self._fetchers[leader][0].forget(partition)

    async def close(self) -> None:
        for leader in list(self._fetchers):
            self._stop(leader)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        if leader not in self._fetchers:
            fetcher = ReplicaFetcher(leader, self._context, self._peers, self._limits, self._rng)
            task = asyncio.create_task(fetcher.run(), name=f"replica-fetcher-{leader}")
            task.add_done_callback(self._faults.on_end)
            self._fetchers[leader] = (fetcher, task)
        return self._fetchers[leader][0]

    def _stop_idle(self) -> None:
        for leader in [b for b, (fetcher, _) in self._fetchers.items() if fetcher.is_idle]:
            self._stop(leader)

    def _stop(self, leader: int) -> None:
        task = self._fetchers.pop(leader)[1]
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
