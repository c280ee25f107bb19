"""All machines reboot at once: unsynced records may be lost, and no replica is intact."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from integration.clusters import running_cluster
from integration.topics import (
    create_topic,
    partition_of,
    read_values,
    until_in_sync,
    until_isr,
    write,
)
from tidelog.cli.exit_status import ExitStatus
from tidelog.model import NO_LEADER
from tidelog_runtime.local.cluster import LocalCluster

# Less than one of the records that are written last.
TORN_BYTES = 10


async def kill_all(cluster: LocalCluster) -> None:
    await asyncio.gather(*(cluster.kill(broker_id) for broker_id in cluster.broker_ids))


async def start_all(cluster: LocalCluster) -> None:
    for broker_id in cluster.broker_ids:
        cluster.start_broker(broker_id)
    await cluster.ready()


def tear_off(cluster: LocalCluster, broker_id: int, topic_id: str) -> None:
    """Simulates that the end of a log had not reached the disk."""
    (log,) = (
        path
        for path in cluster.broker_data_dir(broker_id).rglob("*.log")
        if topic_id in str(path.parent)
    )
    os.truncate(log, log.stat().st_size - TORN_BYTES)


async def tidelog(cluster: LocalCluster, *arguments: str) -> tuple[int | None, str]:
    """The exit status, and the complete output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "--bootstrap", cluster.bootstrap, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_after_a_reboot_of_all_machines_the_best_log_leads_and_the_partition_is_marked(
    tmp_path: Path,
) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot 1")
    settings = {"boot_id_file": str(boot_id)}
    async with running_cluster(tmp_path / "cluster", broker_config=settings) as cluster:
        balanced = await create_topic(cluster, "balanced")
        await create_topic(cluster, "manual", config={"recovery": "manual"})
        for topic in ("balanced", "manual"):
            await write(cluster, topic, [b"%d" % i for i in range(100)])
            await write(cluster, topic, [b"the last"])
        preferred = balanced.partitions[0].replicas[0]

        await kill_all(cluster)
        boot_id.write_text("boot 2")
        tear_off(cluster, preferred, balanced.topic_id)
        await start_all(cluster)

        healed = (await until_in_sync(cluster, "balanced")).partitions[0]
        assert healed.unclean_leader_epoch == healed.leader_epoch
        assert healed.leader != preferred
        assert len(await read_values(cluster, "balanced")) == 101

        assert (await partition_of(cluster, "manual")).leader == NO_LEADER
        status, output = await tidelog(cluster, "topics", "recover", "manual", "--yes")
        assert (status, output) == (0, "Partition 0 of topic manual has a leader.\n")
        recovered = (await until_in_sync(cluster, "manual")).partitions[0]
        assert recovered.unclean_leader_epoch == recovered.leader_epoch
        assert len(await read_values(cluster, "manual")) == 101


async def test_a_permanently_lost_replica_is_awaited_until_an_administrator_declares_it_lost(
    tmp_path: Path,
) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot 1")
    settings = {"boot_id_file": str(boot_id)}
    async with running_cluster(tmp_path / "cluster", broker_config=settings) as cluster:
        await create_topic(cluster, "sea")
        await write(cluster, "sea", [b"%d" % i for i in range(100)])
        lost, *left = cluster.broker_ids

        for broker_id in left:
            await cluster.kill(broker_id)
        await until_isr(cluster, "sea", {lost})
        await cluster.kill(lost)
        boot_id.write_text("boot 2")
        for broker_id in left:
            cluster.start_broker(broker_id)
        await cluster.ready()

        recover = ("topics", "recover", "sea", "--yes")
        status, output = await tidelog(cluster, *recover, "--timeout", "1")
        assert status == ExitStatus.TIMED_OUT
        assert f"waits for the replicas [{lost}]" in output
        assert (await partition_of(cluster, "sea")).leader == NO_LEADER

        status, output = await tidelog(cluster, *recover, "--from-live-replicas")
        assert (status, output) == (0, "Partition 0 of topic sea has a leader.\n")
        assert len(await read_values(cluster, "sea")) == 100
        cluster.start_broker(lost)
        await until_in_sync(cluster, "sea")
