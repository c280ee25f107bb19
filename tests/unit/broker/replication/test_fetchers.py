"""One fetcher for each leader."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.background import Faults
from tidelog_broker.core.fetch_messages import ReplicaFetchRequest, ReplicaFetchResponse
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.range_digest import LogDigests
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.fetch_state import FetchLimits
from tidelog_broker.replication.fetchers import Fetchers
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import LeaderAndIsr, Moving
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import DiskNotes, KeptDigests, address_of, on, until_idle
from unit.broker.fake_log import TOPIC_ID, FakeLog, Notes, epoch_of, state
from unit.broker.log.builders import batches_from
from unit.metadata.virtual_time import virtual_clock


class Broker:
    """Broker 3 and the fetches that wait at each leader."""

    broker_id = 3
    broker_epoch = epoch_of(3)

    def __init__(self) -> None:
        self.waiting: dict[str, list[TopicPartition]] = {}
        self.waiting_synced: dict[str, list[TopicPartition]] = {}
        self.synced: list[TopicPartition] = []
        self.fault: Exception | None = None
        self.completed_early = 0
        # By leader and kind: the partitions in its session, and whether the fetch there is hurried.
        self._asked_for: dict[tuple[str, bool], list[ReplicaKey]] = {}
        self._completed_early: dict[tuple[str, bool], asyncio.Event] = {}
        self.state_changes = StateChangeLog("broker-3", virtual_clock())
        self.disk = DiskNotes()
        self.digests = KeptDigests()
        # By address: the start offsets of the ranges reported to that leader.
        self.reported: dict[str, list[int]] = {}
        self.fetchers = Fetchers(
            self,
            self,
            FetchLimits(500, 4096, 1024),
            random.Random(1),
            Faults(),
            lambda _: False,
            MoveThrottle(3, MetadataCache(Keys("test")), virtual_clock(), lambda: None),
            self.digests,
        )

    def wall_ms(self) -> int:
        return 0

    def note_peer_clock(self, broker_id: int, wall_ms: int) -> None:
        pass

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        return address_of(broker_id), epoch_of(broker_id)

    def replica_failed(self, partition: Partition, error: LogError) -> None:
        raise AssertionError(f"{partition.name}: {error}")

    async def reach(self, address: str) -> None:
        pass

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        if self.fault is not None:
            raise self.fault
        waiting = self.waiting_synced if request.synced else self.waiting
        assert address not in waiting, "two fetches of one kind at one leader"
        starts = [reported.digest.start for reported in request.digests]
        self.reported[address] = [*self.reported.get(address, []), *starts]
        stream = (address, request.synced)
        before = self._asked_for.get(stream, []) if request.session_id else []
        named = [entry.replica for entry in request.entries]
        self._asked_for[stream] = [*(r for r in before if r not in request.forgotten), *named]
        waiting[address] = sorted(on(replica.partition) for replica in self._asked_for[stream])
        self._completed_early[stream] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._completed_early[stream].wait()
            return ReplicaFetchResponse(None, (), session_id=1)
        finally:
            del waiting[address]

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        self.completed_early += 1
        self._completed_early[address, request.synced].set()

    async def close(self) -> None:
        pass

    def new_partition(self, number: int, new_state: LeaderAndIsr) -> Partition:
        partition = Partition(
            on(number), TOPIC_ID, 3, FakeLog(), high_watermark=0, listener=Notes()
        )
        partition.set_synced(on(number) in self.synced)
        self.take(partition, new_state, 10)
        return partition

    def take(self, partition: Partition, new_state: LeaderAndIsr, revision: int) -> None:
        partition.take(new_state, revision, broker_epoch=self.broker_epoch, now_ms=1)
        self.fetchers.update([partition])


async def test_each_leader_is_asked_for_the_partitions_that_it_leads() -> None:
    broker = Broker()
    broker.new_partition(0, state(leader=1))
    broker.new_partition(1, state(leader=2))
    broker.new_partition(2, state(leader=1))
    await until_idle()
    assert broker.waiting == {address_of(1): [on(0), on(2)], address_of(2): [on(1)]}
    await broker.fetchers.close()


@pytest.mark.rule("one-fetch-for-all-partitions")
async def test_synced_partitions_are_fetched_separately() -> None:
    broker = Broker()
    broker.synced = [on(1), on(2)]
    for number in range(3):
        broker.new_partition(number, state(leader=1))
    await until_idle()
    assert broker.waiting == {address_of(1): [on(0)]}
    assert broker.waiting_synced == {address_of(1): [on(1), on(2)]}
    await broker.fetchers.close()


async def test_of_two_fetches_at_a_leader_the_later_determines_its_silence() -> None:
    broker = Broker()
    broker.synced = [on(1)]
    broker.new_partition(0, state(leader=1))
    await asyncio.sleep(1)
    broker.new_partition(1, state(leader=1))
    broker.new_partition(2, state(leader=2))
    await until_idle()
    silent = broker.fetchers.unanswered()
    assert sorted(silent) == [1, 2]
    assert silent[1].since == silent[2].since
    await broker.fetchers.close()


async def test_a_partition_that_becomes_synced_moves_to_the_other_fetch() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1))
    await until_idle()
    broker.synced = [on(0)]
    partition.set_synced(True)
    broker.fetchers.update([partition])
    await until_idle()
    assert (broker.waiting, broker.waiting_synced) == ({}, {address_of(1): [on(0)]})
    await broker.fetchers.close()


@pytest.mark.rule("follower-truncates-by-epoch")
async def test_a_partition_changes_its_leader_at_once() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1))
    broker.new_partition(1, state(leader=1))
    await until_idle()
    broker.take(partition, state(leader=2, epoch=6), 11)
    await until_idle()
    assert broker.waiting[address_of(2)] == [on(0)]
    await asyncio.sleep(0.6)
    assert broker.waiting == {address_of(1): [on(1)], address_of(2): [on(0)]}
    await broker.fetchers.close()


@pytest.mark.rule("leader-stops-fetching")
async def test_a_new_leader_follows_no_broker() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1))
    await until_idle()
    broker.take(partition, state(leader=3, epoch=6), 11)
    await until_idle()
    assert broker.waiting == {}


async def test_a_partition_that_lost_its_leader_follows_no_broker() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1))
    await until_idle()
    broker.take(partition, state(leader=NO_LEADER, epoch=6), 11)
    await until_idle()
    assert broker.waiting == {}


async def test_a_partition_that_is_removed_is_not_followed() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1))
    await until_idle()
    broker.fetchers.forget(partition)
    await asyncio.sleep(0.6)
    assert broker.waiting == {}
    await broker.fetchers.close()


async def test_fetchers_that_follow_nothing_are_stopped() -> None:
    broker = Broker()
    before = asyncio.all_tasks()
    partition = broker.new_partition(0, state(leader=1))
    for revision in range(11, 20):
        broker.take(partition, state(leader=1 + revision % 2, epoch=revision), revision)
        await until_idle()
    assert len(asyncio.all_tasks() - before) <= 2  # a fetcher, and the end of the previous one
    await broker.fetchers.close()


async def test_close_leaves_no_task_behind() -> None:
    broker = Broker()
    before = asyncio.all_tasks()
    partition = broker.new_partition(0, state(leader=1))
    broker.new_partition(1, state(leader=2))
    await until_idle()
    # A fetcher is stopped as idle, and may not have ended yet.
    broker.take(partition, state(leader=2, epoch=6), 11)
    await broker.fetchers.close()
    assert asyncio.all_tasks() == before


async def test_a_fault_in_a_fetcher_is_seen() -> None:
    with capture_logs() as lines:
        broker = Broker()
        broker.fault = ValueError("a fault of the program")
        broker.new_partition(0, state(leader=1))
        await until_idle()
    (line,) = [line for line in lines if line["log_level"] == "critical"]
    assert (line["event"], line["task"]) == ("task_failed", "replica-fetcher-1")
    await broker.fetchers.close()


async def test_after_close_no_leader_is_followed() -> None:
    """Otherwise a replica whose repair ends while the broker stops would append to closed logs."""
    broker = Broker()
    await broker.fetchers.close()
    broker.new_partition(0, state(leader=1))
    await until_idle()
    assert broker.waiting == {}
    await broker.fetchers.close()


async def test_a_state_within_its_epoch_hurries_no_fetch_and_a_new_epoch_does() -> None:
    broker = Broker()
    partition = broker.new_partition(0, state(leader=1, epoch=5))
    await until_idle()
    moving = Moving("op", (1, 2, 3), (1, 3, 4))
    begun = replace(state(leader=1, epoch=5), replicas=moving.replicas, moving=moving)
    broker.take(partition, begun, 11)
    await until_idle()
    assert broker.completed_early == 0
    broker.take(partition, state(leader=1, epoch=6), 12)
    await until_idle()
    assert broker.completed_early == 1
    await broker.fetchers.close()


async def test_a_stopping_broker_follows_only_where_it_is_in_sync() -> None:
    broker = Broker()
    handed_over = broker.new_partition(0, state(leader=1))
    awaited = broker.new_partition(1, state(leader=1))
    await until_idle()
    broker.fetchers.follow_only_in_sync()
    broker.take(handed_over, state(leader=2, epoch=6, isr=(1, 2)), 11)
    broker.take(awaited, state(leader=2, epoch=6), 11)
    await until_idle()
    assert broker.waiting == {address_of(2): [on(1)]}
    await broker.fetchers.close()


async def test_each_new_leader_gets_the_reports_of_all_ranges() -> None:
    broker = Broker()
    digests = LogDigests(4, 0)
    digests.appended(batches_from(0, 10))
    broker.digests.kept[ReplicaKey(TOPIC_ID, 0)] = digests
    partition = broker.new_partition(0, state(leader=1))
    partition.high_watermark = 10
    await asyncio.sleep(5)
    assert sorted(broker.reported[address_of(1)]) == [0, 4, 8]
    broker.take(partition, state(leader=2, epoch=6), 11)
    await asyncio.sleep(5)
    assert sorted(broker.reported[address_of(1)]) == [0, 4, 8]
    assert sorted(broker.reported[address_of(2)]) == [0, 4, 8]
    await broker.fetchers.close()
