"""Every broker in turn is stopped by SIGTERM and started again, under a load with acks=all.

The bench measures the latency of sends meanwhile (`python -m bench rolling`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.clusters import running_cluster
from integration.load import load
from integration.logs import LogSince
from integration.topics import create_topic, read, until_in_sync
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 6


def events(cluster: LocalCluster, name: str) -> list[dict[str, Any]]:
    """The log lines of all services since the cluster was started."""
    logs = [LogSince(process.log_path, from_start=True) for process in cluster.processes()]
    return [event for log in logs for event in log.events(name)]


@pytest.mark.rule("controlled-shutdown-leaves-every-isr")
@pytest.mark.parametrize("config", [{}, {"durability": "synced"}], ids=["replicated", "synced"])
async def test_no_send_fails_and_nothing_is_lost(tmp_path: Path, config: Mapping[str, str]) -> None:
    async with running_cluster(tmp_path) as cluster:
        before = now = await create_topic(cluster, "sea", PARTITIONS, config=dict(config))
        statuses, handed_over = [], 0
        async with load(cluster, "sea") as written:
            for broker_id in cluster.broker_ids:
                handed_over += sum(p.leader == broker_id for p in now.partitions)
                await cluster.stop_broker(broker_id)
                statuses.append(cluster.broker_process(broker_id).exit_status)
                await written.acknowledges(50)
                cluster.start_broker(broker_id)
                await cluster.ready()
                now = await until_in_sync(cluster, "sea")
            await written.acknowledges(50)
        records = await read(cluster, "sea")
        written.assert_all_in(records)
        # Batches that are retried across a leadership transfer are written once.
        values = [record.value for record in records]
        assert len(values) == len(set(values))

        assert statuses == [0] * len(cluster.broker_ids)
        # Each transfer completed before its broker stopped, and no stop was taken for a crash: a
        # service that suspected one found the registration already gone.
        assert events(cluster, "stopped_before_hand_over") == []
        fenced = [change["stage"] for change in events(cluster, "broker_fenced")]
        assert fenced.count("requested") == fenced.count("failed")
        # Each partition that a stopping broker led was moved once, and nothing else was.
        epochs = [sum(p.leader_epoch for p in topic.partitions) for topic in (before, now)]
        assert epochs[1] - epochs[0] == handed_over
        assert [p.unclean_leader_epoch for p in now.partitions] == [-1] * PARTITIONS
