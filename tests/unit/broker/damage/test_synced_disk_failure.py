"""Complete brokers with a `synced` topic, one of whose disks fails to sync (rule
`damaged-replica-resigns-first`).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tidelog.errors import ErrorCode
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
    decode_leader_and_isr,
)
from unit.broker.broker_parts import KEYS, until
from unit.broker.broker_processes import Cluster, Process
from unit.broker.fake_log import NAME
from unit.broker.log.memory_disk import MemoryDisk


class Pair:
    """Broker 1 leads, broker 2 follows."""

    def __init__(self, path: Path) -> None:
        self.cluster = Cluster(path)
        self.cluster.topic_config = {"durability": "synced"}
        self.disks = [MemoryDisk(), MemoryDisk()]

    def stored(self) -> tuple[LeaderAndIsr, int]:
        item = self.cluster.data.get(KEYS.leader_and_isr(NAME))
        assert item is not None
        return decode_leader_and_isr(item.value), item.mod_revision

    async def start(self) -> tuple[Process, Process]:
        leader, follower = [
            await Process(self.cluster, number, disk=disk).start()
            for number, disk in enumerate(self.disks, start=1)
        ]
        ranges_to_request, revision = self.cluster.elect(leader, follower)
        for process in (leader, follower):
            await self.cluster.command(process, ranges_to_request, revision)
        assert (await leader.produce()).appended is not None
        return leader, follower


async def test_a_follower_whose_sync_fails_leaves_the_isr_and_comes_back(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path)
    leader, follower = await pair.start()
    pair.disks[1].fail_sync = True
    outcome = await leader.produce(timeout_ms=30_000)
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.LEADER_CHANGED
    assert leader.partition.high_watermark == 1
    # It has resigned, which raises its leader's epoch; the controller commands both brokers.
    resigned, revision = pair.stored()
    assert [member.broker_id for member in resigned.isr] == [1]
    await pair.cluster.command(leader, resigned, revision)
    assert leader.partition.high_watermark == 2
    pair.disks[1].fail_sync = False
    await until(lambda: follower.partition.in_service)
    await pair.cluster.command(follower, resigned, revision)
    await until(lambda: pair.cluster.isr() == {1, 2})
    assert follower.partition.log.flushed_offset == 2
    for process in (leader, follower):
        await process.stop()


async def test_a_leader_whose_sync_fails_resigns_and_acknowledges_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    leader, follower = await pair.start()
    pair.disks[0].fail_sync = True
    outcome = await leader.produce(timeout_ms=30_000)
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.LEADER_CHANGED
    assert outcome.error.outcome_unknown
    assert leader.partition.high_watermark == 1
    members = (Member(1, NOT_WHOLE), Member(2, follower.epoch))
    await until(lambda: pair.stored()[0].isr == members)
    pair.disks[0].fail_sync = False
    for process in (leader, follower):
        await process.stop()


async def test_a_leader_whose_sync_hangs_counts_as_rejecting_until_it_returns(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    cluster.topic_config = {"durability": "synced"}
    works = asyncio.Event()
    works.set()

    async def run_blocking(work: Callable[[], None]) -> None:
        await works.wait()
        work()

    leader = await Process(cluster, 1, disk=MemoryDisk(), run_blocking=run_blocking).start()
    await cluster.command(leader, *cluster.elect(leader))
    assert (await leader.produce()).appended is not None
    works.clear()
    producing = asyncio.create_task(leader.produce(timeout_ms=60_000))
    disk = leader.broker.manager.disk
    await until(lambda: bool(disk))
    (rejection,) = [each for _, each in disk.standing()]
    assert "a sync of orders/0 has not returned for 10 s" in rejection.message
    assert not producing.done()
    works.set()
    assert (await producing).appended is not None
    assert rejection.taken_since
    await leader.stop()
