"""Brokers that are started without etcd answer, report that they wait for it, and are not taken for
paused. When etcd is back, they continue."""

from __future__ import annotations

import asyncio
from pathlib import Path

from integration.clusters import running_cluster
from integration.explaining import causes_of, create_pairs, faults_of, the, tidelog, until_found
from integration.waiting import until
from tidelog_runtime.local.cluster import LocalCluster

STARTED = 3


async def test_brokers_that_start_without_etcd_are_reported_as_starting(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        pairs = await create_pairs(cluster, "pairs")
        etcd = cluster.etcd
        assert etcd is not None
        etcd.pause()
        try:
            await _of_one(cluster, pairs[STARTED, 1], pairs[1, 2])
            await _of_all(cluster)
        finally:
            etcd.resume()
        await cluster.ready()


async def _of_one(cluster: LocalCluster, led: str, untouched: str) -> None:
    """One starting broker, while the others serve the partitions that they led."""
    await cluster.kill(STARTED)
    cluster.start_broker(STARTED)
    found = await until_found(
        cluster,
        ("broker_starting", STARTED),
        ("store_unreachable", -1),
        ("no_leader", STARTED),
    )
    starting = the(found, "broker_starting")
    assert "it waits for the cluster id from the metadata store" in starting.summary
    assert "store_unreachable" in starting.because
    missing = the(found, "no_leader", STARTED)
    assert led in missing.partitions
    assert f"broker_starting of broker {STARTED}" in missing.because
    assert not {cause for cause, _ in causes_of(found)} & {"broker_paused", "replica_dead"}
    assert await faults_of(cluster, untouched) == []


async def _of_all(cluster: LocalCluster) -> None:
    """All brokers start; the request comes from a client that knows only brokers."""
    await asyncio.gather(*(cluster.kill(broker_id) for broker_id in cluster.broker_ids))
    for broker_id in cluster.broker_ids:
        cluster.start_broker(broker_id)
    found = await until_found(
        cluster,
        *(("broker_starting", b) for b in cluster.broker_ids),
        ("store_unreachable", -1),
        # As long as a controller reports what they led.
        also=[("no_leader", b) for b in cluster.broker_ids],
    )
    assert "broker_paused" not in {cause for cause, _ in causes_of(found)}
    brokers = [cluster.broker_address(b) for b in cluster.broker_ids]

    async def check() -> str | None:
        status, output = await tidelog(cluster, "explain", bootstrap=brokers)
        assert status == 1, output
        # A broker may still wait for the answer to its first request.
        return output if "CRITICAL store_unreachable" in output else None

    output = await until(check, "brokers report that they miss the store")
    assert output is not None
    for broker_id in cluster.broker_ids:
        assert f"broker_starting: broker {broker_id} is starting" in output
    assert "broker_paused" not in output
    assert "no_controller" not in output
