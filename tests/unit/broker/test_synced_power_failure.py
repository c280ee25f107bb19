"""Complete brokers with a `synced` topic whose machines lose power."""

import copy
import random
from pathlib import Path

import pytest

from unit.broker.broker_parts import address_of
from unit.broker.broker_processes import Cluster, Process
from unit.broker.log.memory_disk import MemoryDisk

SYNCED = {"durability": "synced"}


async def started(cluster: Cluster, disks: list[MemoryDisk], boot_id: str) -> list[Process]:
    return [
        await Process(cluster, number, boot_id, disk).start()
        for number, disk in enumerate(disks, start=1)
    ]


async def cut_off(cluster: Cluster, processes: list[Process], rng: random.Random | None) -> None:
    """Cut the power of running brokers. Returns the state of their disks at this moment."""
    disks = [copy.deepcopy(process.disk) for process in processes]
    for process in processes:
        cluster.listening.pop(address_of(process.broker_id), None)
        process.store.disconnect()  # a clean stop would reach the store
        await process.broker.stop()
        cluster.lease_ends(process)
    for process, disk in zip(processes, disks, strict=True):
        assert isinstance(disk, MemoryDisk)
        disk.power_failure(rng)
        process.disk = disk


@pytest.mark.rule("stronger-durability-by-configuration")
@pytest.mark.parametrize("seed", range(10))
async def test_acknowledged_records_survive_a_power_failure_of_all_and_count_as_intact(
    tmp_path: Path, seed: int
) -> None:
    cluster = Cluster(tmp_path)
    cluster.topic_config = SYNCED
    previous = await started(cluster, [MemoryDisk(), MemoryDisk()], "boot 1")
    leader, follower = previous
    wanted, revision = cluster.elect(leader, follower)
    for process in previous:
        await cluster.command(process, wanted, revision)
    for _ in range(3):
        assert (await leader.produce()).appended is not None
    since = [process.registration.synced_whole_since or process.epoch for process in previous]
    await cut_off(cluster, previous, random.Random(seed))

    disks = [process.disk for process in previous if isinstance(process.disk, MemoryDisk)]
    again = await started(cluster, disks, "boot 2")
    wanted, revision = cluster.elect(again[0], again[1], epoch=6)
    for process, epoch in zip(again, since, strict=True):
        assert process.registration.synced_whole_since == epoch
        assert process.data_directory.identity.whole_since == process.epoch
        await cluster.command(process, wanted, revision)
        assert process.partition.log.log_end_offset == 3
    for process in again:
        await process.stop()


async def test_a_started_copy_loses_nothing_in_a_power_failure(tmp_path: Path) -> None:
    """cp and rsync sync nothing, and the original's recovery points claim that everything is
    synced.
    """
    cluster = Cluster(tmp_path)
    cluster.topic_config = SYNCED
    [process] = await started(cluster, [MemoryDisk()], "boot 1")
    await cluster.command(process, *cluster.elect(process))
    for _ in range(3):
        assert (await process.produce()).appended is not None
    since = process.registration.synced_whole_since or process.epoch
    await process.stop()
    copy = process.disk
    assert isinstance(copy, MemoryDisk)
    copy.restore(copy.contents())
    copied = await started(cluster, [copy], "boot 2")
    await cut_off(cluster, copied, None)

    assert isinstance(copied[0].disk, MemoryDisk)
    [again] = await started(cluster, [copied[0].disk], "boot 3")
    assert again.registration.synced_whole_since == since
    await cluster.command(again, *cluster.elect(again, epoch=7))
    assert again.partition.log.log_end_offset == 3
    await again.stop()


async def test_without_synced_the_same_failure_leaves_nothing(tmp_path: Path) -> None:
    """This shows that the test above depends on `synced`."""
    cluster = Cluster(tmp_path)
    previous = await started(cluster, [MemoryDisk()], "boot 1")
    await cluster.command(previous[0], *cluster.elect(previous[0]))
    assert (await previous[0].produce()).appended is not None
    await cut_off(cluster, previous, None)
    assert isinstance(previous[0].disk, MemoryDisk)
    again = await started(cluster, [previous[0].disk], "boot 2")
    await cluster.command(again[0], *cluster.elect(again[0], epoch=6))
    assert again[0].partition.log.log_end_offset == 0
    await again[0].stop()
