"""One replica fetcher for each leader, and another one for its `synced` topics.

A fetch of `synced` partitions waits until the records of the answer before it are on the disk, so
that it can report them. In a fetch of their own these partitions do not delay the others, which do
not need to wait for a disk. The price is a second stream between brokers that share partitions of
both kinds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from tidelog.inspection.state_reports import NOT_KNOWN, FollowerState
from tidelog.model import NO_LEADER
from tidelog_broker.background import Faults
from tidelog_broker.core.follower_session import FollowerSession
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.replication.digest_reports import DigestReports, DigestSource
from tidelog_broker.replication.fetch_state import FetchLimits, UnansweredFetch
from tidelog_broker.replication.follower_context import FollowerContext
from tidelog_broker.replication.move_throttle import ReceiveThrottle
from tidelog_broker.replication.replica_fetcher import ReplicaFetcher
from tidelog_broker.replication.transport import Peers


class FetchStream(NamedTuple):
    leader: int
    synced: bool


class _Followed(NamedTuple):
    stream: FetchStream
    leader_epoch: int


class Fetchers:
    """The fetchers of this broker.

    `is_syncing`: whether a partition's log is being synced or is about to be. Its provider calls
    `log_synced` when that is over.
    """

    def __init__(
        self,
        context: FollowerContext,
        peers: Peers,
        limits: FetchLimits,
        rng: random.Random,
        faults: Faults,
        is_syncing: Callable[[Partition], bool],
        moves: ReceiveThrottle,
        digests: DigestSource,
    ) -> None:
        self._digests = digests
        self._context = context
        self._peers = peers
        self._limits = limits
        self._rng = rng
        self._faults = faults
        self._is_syncing = is_syncing
        self._moves = moves
        self._session_numbers = count(1)
        self._fetchers: dict[FetchStream, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._following: dict[Partition, _Followed] = {}
        # Cancelled tasks that have not ended yet.
        self._ending: set[asyncio.Task[None]] = set()
        self._only_in_sync = False
        self._closed = False

    def update(self, partitions: Iterable[Partition]) -> None:
        """Each of these may have a new leader, or no leader to follow.

        A new epoch of the same leader counts as well: the fetch that waits there is completed
        early. A partition that continues in its epoch, as when a move begins, does not cause that.
        After `close` no leader is followed, not even by a replica whose repair ends only then.
        """
        if self._closed:
            return
        arrivals: dict[FetchStream, list[Partition]] = {}
        for partition in partitions:
            stream = FetchStream(self._leader_of(partition), partition.synced)
            before, now = self._following.get(partition), _Followed(stream, partition.leader_epoch)
            if before == now:
                self._fetchers[stream][0].resend_position(partition)
                continue
            if before is not None and before.stream != stream:
                self.forget(partition)
            if stream.leader != NO_LEADER:
                self._following[partition] = now
                arrivals.setdefault(stream, []).append(partition)
        for stream, followed in arrivals.items():
            self._fetcher(stream).follow(followed)
        self._stop_idle()

    def follow_only_in_sync(self) -> None:
        """Follows a partition no longer once its state has this broker out of the ISR.

        For a broker that is about to stop. Otherwise it would name thousands of partitions to their
        new leaders in the middle of its shutdown.
        """
        self._only_in_sync = True

    def _leader_of(self, partition: Partition) -> int:
        if self._only_in_sync and not partition.is_in_sync(partition.broker_id):
            return NO_LEADER
        return partition.leader_to_follow

    def forget(self, partition: Partition) -> None:
        fetcher = self._fetcher_of(partition)
        self._following.pop(partition, None)
        if fetcher is not None:
            fetcher.forget(partition)

    def log_synced(self, partition: Partition) -> None:
        fetcher = self._fetcher_of(partition)
        if fetcher is not None:
            fetcher.resend_position(partition)

    def digest_found(self, partition: Partition) -> None:
        """Notes that the scrub has read the digest of a range of this log, for its leader."""
        fetcher = self._fetcher_of(partition)
        if fetcher is not None:
            fetcher.digests.note(partition)

    def progress_of(self, partition: Partition) -> FollowerState | None:
        """Returns None if the partition follows no leader."""
        fetcher = self._fetcher_of(partition)
        return None if fetcher is None else fetcher.progress_of(partition)

    def rejection_of(self, partition: Partition) -> tuple[str, int] | None:
        """See `ReplicaFetcher.rejection_of`."""
        fetcher = self._fetcher_of(partition)
        return None if fetcher is None else fetcher.rejection_of(partition)

    def _fetcher_of(self, partition: Partition) -> ReplicaFetcher | None:
        followed = self._following.get(partition)
        if followed is None or followed.stream not in self._fetchers:
            return None
        return self._fetchers[followed.stream][0]

    def unanswered(self) -> dict[int, UnansweredFetch]:
        """Returns the leaders from which all fetchers here wait for an answer.

        The value is that of the fetcher whose wait began last.
        """
        found: dict[int, UnansweredFetch | None] = {}
        for stream, (fetcher, _) in self._fetchers.items():
            latest, this = found.get(stream.leader, fetcher.unanswered), fetcher.unanswered
            found[stream.leader] = max(latest, this) if latest and this else None
        return {leader: entry for leader, entry in found.items() if entry is not None}

    def last_answers_ms(self) -> dict[int, int]:
        """Returns how long ago each followed leader answered last.

        Leaders that never answered are left out.
        """
        found: dict[int, int] = {}
        for stream, (fetcher, _) in self._fetchers.items():
            ago_ms = fetcher.last_answer_ms
            if ago_ms != NOT_KNOWN:
                found[stream.leader] = min(ago_ms, found.get(stream.leader, ago_ms))
        return found

    async def close(self) -> None:
        self._closed = True
        for stream in list(self._fetchers):
            self._stop(stream)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _fetcher(self, stream: FetchStream) -> ReplicaFetcher:
        if stream not in self._fetchers:
            fetcher = ReplicaFetcher(
                stream.leader,
                self._context,
                self._peers,
                self._limits,
                self._rng,
                self._is_syncing,
                FollowerSession(self._session_numbers, synced=stream.synced),
                self._moves,
                DigestReports(self._digests),
            )
            name = f"replica-fetcher-{stream.leader}" + ("-synced" if stream.synced else "")
            task = asyncio.create_task(fetcher.run(), name=name)
            task.add_done_callback(self._faults.on_end)
            self._fetchers[stream] = (fetcher, task)
        return self._fetchers[stream][0]

    def _stop_idle(self) -> None:
        for stream in [at for at, (fetcher, _) in self._fetchers.items() if fetcher.is_idle]:
            self._stop(stream)

    def _stop(self, stream: FetchStream) -> None:
        task = self._fetchers.pop(stream)[1]
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
