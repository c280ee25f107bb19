"""The broker of a fetcher, and a leader that answers as the test scripts it."""

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from itertools import count, pairwise

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import EpochEnd, TopicPartition
from tidelog_broker.core.fetch_messages import (
    NO_SESSION,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
)
from tidelog_broker.core.follower_session import FollowerSession
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.membership.metadata_cache import VersionedState
from tidelog_broker.replication.digest_reports import DigestReports
from tidelog_broker.replication.fetch_state import FetchLimits
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.replication.replica_fetcher import ReplicaFetcher
from tidelog_broker.replication.transport import PeerUnreachableError
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import (
    PATIENCE_SECONDS,
    DiskNotes,
    KeptDigests,
    address_of,
    at_work,
    on,
)
from unit.broker.fake_log import TOPIC_ID, FakeLog, Notes, epoch_of, stamped, state
from unit.metadata.virtual_time import virtual_clock

LEADER = 1
ME = 2


class ReceivedFetch:
    """One fetch that waits at the leader."""

    def __init__(self, address: str, request: ReplicaFetchRequest) -> None:
        self.at = virtual_clock().time()
        self.address = address
        self.request = request
        self.given_up = False
        self.completed_early = 0
        self._answer: asyncio.Future[ReplicaFetchResponse] = (
            asyncio.get_running_loop().create_future()
        )

    @property
    def numbers(self) -> list[int]:
        return sorted(entry.replica.partition for entry in self.request.entries)

    def entry(self, number: int = 0) -> ReplicaFetchEntry:
        (found,) = [e for e in self.request.entries if e.replica.partition == number]
        return found

    def answer(self, *results: ReplicaFetchResult, session_id: int = NO_SESSION) -> None:
        self._answer.set_result(ReplicaFetchResponse(None, results, session_id))

    def reject(self, error: TidelogError) -> None:
        self._answer.set_result(ReplicaFetchResponse(error, ()))

    def break_off(self) -> None:
        self._answer.set_exception(PeerUnreachableError(f"{self.address}: connection refused"))

    def data(
        self, *offsets: int, number: int = 0, high_watermark: int = 0, epoch: int = 5
    ) -> ReplicaFetchResult:
        answer = FetchAnswer(high_watermark, 0, 5, [stamped(o, epoch) for o in offsets])
        return ReplicaFetchResult(self.entry(number).replica, answer, None, 0)

    def parts_at(self, end: EpochEnd) -> ReplicaFetchResult:
        return ReplicaFetchResult(self.entry().replica, FetchAnswer(0, 0, 5, (), end), None, 0)

    def failed(
        self, code: ErrorCode, *, number: int = 0, log_start_offset: int = 0
    ) -> ReplicaFetchResult:
        error = TidelogError(code, "as the test wants it")
        return ReplicaFetchResult(self.entry(number).replica, None, error, log_start_offset)

    async def wait(self) -> ReplicaFetchResponse:
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.given_up = True
            raise


class Follower:
    """Broker 2, its partitions, and all fetches that it sent."""

    def __init__(self, *, synced: bool = False) -> None:
        self.broker_id = ME
        self.broker_epoch = epoch_of(ME)
        self.leader: tuple[str, int] | None = (address_of(LEADER), epoch_of(LEADER))
        self.failures: list[str] = []
        self.received: list[ReceivedFetch] = []
        self.unreachable = False
        # Not even a stream can be opened.
        self.gone = False
        self.reached_in_vain = 0
        self._came = asyncio.Event()
        self.syncing: list[Partition] = []
        self.state_changes = StateChangeLog("broker-2", virtual_clock())
        self.disk = DiskNotes()
        self.keys: dict[TopicPartition, VersionedState] = {}  # as the watch has delivered them
        self.rate: int | None = None  # bytes per second that it may receive by moves
        self.digests = KeptDigests()
        self.moves = MoveThrottle(ME, self, virtual_clock(), lambda: self.rate)
        self.fetcher = ReplicaFetcher(
            LEADER,
            self,
            self,
            FetchLimits(500, 4096, 1024),
            random.Random(1),
            lambda partition: partition in self.syncing,
            FollowerSession(count(1), synced=synced),
            self.moves,
            DigestReports(self.digests),
        )

    # The interface of a fetcher to its broker and peers.

    def wall_ms(self) -> int:
        return 0

    def note_peer_clock(self, broker_id: int, wall_ms: int) -> None:
        pass

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        assert broker_id == LEADER
        return self.leader

    def state_of(self, partition: TopicPartition) -> VersionedState | None:
        return self.keys.get(partition)

    def replica_failed(self, partition: Partition, error: LogError) -> None:
        self.failures.append(f"{partition.name}: {error}")

    async def reach(self, address: str) -> None:
        if self.gone:
            self.reached_in_vain += 1
            raise PeerUnreachableError(f"{address}: connection refused")

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        received = ReceivedFetch(address, request)
        self.received.append(received)
        self._came.set()
        if self.unreachable:
            raise PeerUnreachableError(f"{address}: connection refused")
        return await received.wait()

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        (received,) = [received for received in self.received if received.request is request]
        assert received.address == address
        received.completed_early += 1

    async def close(self) -> None:
        pass

    # The interface of the tests.

    def follow(
        self, number: int = 0, log: FakeLog | None = None, new_state: LeaderAndIsr | None = None
    ) -> Partition:
        partition = Partition(
            on(number),
            TOPIC_ID,
            ME,
            FakeLog() if log is None else log,
            high_watermark=0,
            listener=Notes(),
        )
        taken = new_state or state(leader=LEADER)
        partition.take(taken, 10, broker_epoch=self.broker_epoch, now_ms=1)
        self.keys[partition.name] = VersionedState(taken, 10)
        self.fetcher.follow([partition])
        return partition

    def pauses(self) -> list[float]:
        """The pauses between consecutive fetches, in seconds."""
        times = [received.at for received in self.received]
        return [round(later - earlier, 6) for earlier, later in pairwise(times)]

    async def next(self, position: int) -> ReceivedFetch:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.received) <= position:
                self._came.clear()
                await self._came.wait()
        return self.received[position]


def following(follower: Follower) -> AbstractAsyncContextManager[None]:
    return at_work(follower.fetcher.run())


def log_of(partition: Partition) -> FakeLog:
    assert isinstance(partition.log, FakeLog)
    return partition.log
