"""etcd stops and comes back: the data plane continues, and the rest recovers by itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from integration.clusters import QUICK_BROKERS
from integration.load import load
from integration.logs import LogSince
from integration.topics import create_once_registered, create_topic, new_name, read, until_in_sync
from integration.waiting import until_true
from integration.wire_client import WireClient, assert_rejected
from tidelog.client import Consumer
from tidelog.v1 import admin_pb2, errors_pb2
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.etcd_member import LocalEtcd

# Longer than every lease, and than the lag that removes a follower from the ISR.
OUTAGE_SECONDS = 1.5 * float(str(QUICK_BROKERS["lease_ttl_seconds"]))

Step = Callable[[LocalEtcd], Awaitable[None]]


async def pause(etcd: LocalEtcd) -> None:
    etcd.pause()


async def resume(etcd: LocalEtcd) -> None:
    etcd.resume()


async def kill(etcd: LocalEtcd) -> None:
    await etcd.kill()


async def start_again(etcd: LocalEtcd) -> None:
    await etcd.start_again()


HOW = pytest.mark.parametrize(
    ("lose", "bring_back"), [(pause, resume), (kill, start_again)], ids=["paused", "killed"]
)


def etcd_of(cluster: LocalCluster) -> LocalEtcd:
    assert cluster.etcd is not None, "these tests need an etcd of their own"
    return cluster.etcd


@pytest.mark.rule("data-flows-without-the-store")
@HOW
async def test_without_etcd_writes_and_reads_continue_and_all_recovers(
    cluster: LocalCluster, lose: Step, bring_back: Step
) -> None:
    topic = new_name("sea")
    before = await create_topic(cluster, topic, 3)
    pids = [cluster.broker_process(b).pid for b in cluster.broker_ids]
    seen = 0
    async with Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
        await consumer.assign_topic(topic)
        await lose(etcd_of(cluster))
        try:
            async with load(cluster, topic) as written:
                ends_at = time.monotonic() + OUTAGE_SECONDS
                while time.monotonic() < ends_at:
                    await written.acknowledges(20, timeout_seconds=5)
                    seen += len(await consumer.poll())
        finally:
            await bring_back(etcd_of(cluster))
    await cluster.ready()
    after = await until_in_sync(cluster, topic)
    later = await create_once_registered(cluster, new_name("sea"))

    assert seen > 0
    assert [cluster.broker_process(b).pid for b in cluster.broker_ids] == pids
    assert after.topic_id == before.topic_id
    assert all(p.unclean_leader_epoch == -1 for p in after.partitions)
    assert len(later.partitions[0].isr) == 3
    written.assert_all_in(await read(cluster, topic))


async def test_without_etcd_a_topic_creation_fails_with_the_reason(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    active = await cluster.active_controller()
    assert active is not None
    request = admin_pb2.CreateTopicRequest(
        topic=topic, partitions=1, replication_factor=3, timeout_ms=1_000
    )
    async with WireClient(cluster.controller_address(active)) as controller:
        await kill(etcd_of(cluster))
        try:
            answer = await controller.admin.CreateTopic(request, timeout=15)
        finally:
            await start_again(etcd_of(cluster))
    await cluster.ready()
    later = new_name("sea")
    await create_once_registered(cluster, later)

    assert_rejected(
        answer.error,
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        "the metadata store did not answer in time",
        f"whether topic {topic} exists is visible once it answers",
    )


async def test_a_leader_that_dies_without_etcd_is_replaced_when_etcd_is_back(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    [partition] = (await create_topic(cluster, topic)).partitions
    etcd = etcd_of(cluster)

    async with load(cluster, topic) as written:
        etcd.pause()
        try:
            await written.acknowledges(20)
            await cluster.kill(partition.leader)
        finally:
            etcd.resume()
        await written.acknowledges(20)
    cluster.start_broker(partition.leader)
    await cluster.ready()
    await until_in_sync(cluster, topic)

    written.assert_all_in(await read(cluster, topic))


async def test_every_service_logs_the_loss_and_return_of_etcd_once(
    cluster: LocalCluster,
) -> None:
    logs = [LogSince(process.log_path) for process in cluster.processes()[1:]]
    etcd = etcd_of(cluster)

    await kill(etcd)
    try:
        await until_true(
            lambda: all(log.events("etcd_lost") for log in logs), "every service logs etcd_lost"
        )
    finally:
        await start_again(etcd)
    await until_true(
        lambda: all(log.events("etcd_back") for log in logs), "every service logs etcd_back"
    )
    await cluster.ready()

    for log in logs:
        [lost] = log.events("etcd_lost")
        assert etcd.endpoint in lost["why"]
        assert "start etcd again" in lost["fix"]
        assert len(log.events("etcd_back")) == 1
        assert "Traceback" not in log.text()
