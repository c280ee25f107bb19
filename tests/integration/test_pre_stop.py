"""The command that a broker's pod runs before it stops (`preStop` of the manifests), on processes:
brokers are restarted one after another without a pause; the command alone keeps writes going."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
import yaml

from integration.clusters import running_cluster
from integration.load import load
from integration.topics import create_topic, read
from tidelog.client import Admin
from tidelog_runtime.local.cluster import LocalCluster

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "tidelog.yaml"
ROUNDS = 3
PARTITIONS = 6
OF_A_POD = "127.0.0.1:7500"


def pre_stop() -> list[str]:
    for document in yaml.safe_load_all(MANIFESTS.read_text()):
        if (document["kind"], document["metadata"]["name"]) == ("StatefulSet", "tidelog-broker"):
            (container,) = document["spec"]["template"]["spec"]["containers"]
            command: list[str] = container["lifecycle"]["preStop"]["exec"]["command"]
            return command
    raise AssertionError("the manifests have no brokers")


async def run_pre_stop(cluster: LocalCluster, broker_id: int) -> int:
    """Runs the command as the pod of the broker does; returns its exit status."""
    shell, option, line = pre_stop()
    assert OF_A_POD in line
    process = await asyncio.create_subprocess_exec(
        *(shell, option, line.replace(OF_A_POD, cluster.broker_address(broker_id))),
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TIDELOG_BROKER_ID": str(broker_id),
        },
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def brokers_down(cluster: LocalCluster) -> list[int]:
    """The brokers that do not run, or whose replicas are not all in sync."""
    async with Admin(cluster.bootstrap) as admin:
        found = await admin.describe_brokers()
    return [b.broker_id for b in found if b.status != "running" or b.out_of_sync]


@pytest.mark.rule("controlled-shutdown-leaves-every-isr")
async def test_three_rounds_over_all_brokers_lose_no_write(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_topic(cluster, "sea", PARTITIONS)
        statuses, down = [], []
        async with load(cluster, "sea") as written:
            for _ in range(ROUNDS):
                for broker_id in cluster.broker_ids:
                    # The broker before has only just been started.
                    statuses.append(await run_pre_stop(cluster, broker_id))
                    down.append(await brokers_down(cluster))
                    await cluster.stop_broker(broker_id)
                    cluster.start_broker(broker_id)
            await cluster.ready()
            await written.acknowledges(50)
        records = await read(cluster, "sea")
        written.assert_all_in(records)
        stops = ROUNDS * len(cluster.broker_ids)
        assert (statuses, down) == ([0] * stops, [[]] * stops)
