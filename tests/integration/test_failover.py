"""Services of a cluster are killed, stopped and paused under load, and no record is lost."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from integration.inspected import replica_of
from integration.load import load
from integration.reconfigured import directory_id, restart_broker
from integration.topics import (
    create_topic,
    describe,
    new_name,
    partition_of,
    read,
    until_in_sync,
    until_isr,
    until_led_by_another,
    write,
)
from integration.waiting import until
from integration.wire_client import WireClient, assert_rejected, wire_batch
from tidelog.client import Admin, Consumer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Record
from tidelog.v1 import errors_pb2
from tidelog_runtime.demo.replicas import differing
from tidelog_runtime.local.cluster import LocalCluster


@pytest.mark.rule("acknowledged-record-survives-failover")
async def test_a_killed_leader_loses_no_acknowledged_record(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]

    async with load(cluster, topic) as written:
        await cluster.kill(before.leader)
        after = await until_led_by_another(cluster, topic, before)
        await written.acknowledges(50)
    records = await read(cluster, topic)
    cluster.start_broker(before.leader)
    await cluster.ready()
    healed = (await until_in_sync(cluster, topic)).partitions[0]

    written.assert_all_in(records)
    assert after.leader_epoch > before.leader_epoch
    assert after.leader in before.isr
    assert healed.unclean_leader_epoch == -1
    assert {record.leader_epoch for record in records} == {before.leader_epoch, after.leader_epoch}


async def test_after_a_failover_a_reader_of_the_previous_epoch_is_fenced(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]

    await cluster.kill(before.leader)
    after = await until_led_by_another(cluster, topic, before)
    async with WireClient(cluster.broker_address(after.leader)) as leader:

        async def leads() -> bool:
            """Metadata name the new leader once it is elected, perhaps before it knows that."""
            answer = await leader.fetch(topic, 0, 0, known_epoch=after.leader_epoch)
            return not answer.HasField("error")

        await until(leads, f"broker {after.leader} leads {topic}")
        result = await leader.fetch(topic, 0, 0, known_epoch=before.leader_epoch)
    cluster.start_broker(before.leader)
    await until_in_sync(cluster, topic)

    assert_rejected(
        result.error,
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
        f"in leader epoch {after.leader_epoch}",
        f"the request knows {before.leader_epoch}",
    )


async def test_a_consumer_sees_every_offset_once_and_in_order_across_a_killed_leader(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    seen: list[Record] = []

    async with Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
        await consumer.assign_topic(topic)

        async def follow() -> None:
            while True:
                seen.extend(await consumer.poll())

        following = asyncio.create_task(follow())
        async with load(cluster, topic) as written:
            await cluster.kill(before.leader)
            await until_led_by_another(cluster, topic, before)
            await written.acknowledges(50)
        records = await read(cluster, topic)

        async def check() -> bool:
            return len(seen) >= len(records)

        await until(check, "the consumer has reached the end")
        following.cancel()
    cluster.start_broker(before.leader)
    await until_in_sync(cluster, topic)

    assert [r.offset for r in seen] == list(range(len(seen)))
    assert [(r.offset, r.value) for r in seen] == [(r.offset, r.value) for r in records]
    written.assert_all_in(seen)


async def test_a_stopping_broker_transfers_its_leaderships_first(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    described = await create_topic(cluster, topic, 3)
    stopped = described.partitions[0].leader

    async with load(cluster, topic) as written:
        await cluster.stop_broker(stopped)
        status = cluster.broker_process(stopped).exit_status
        left = await describe(cluster, topic)
        await written.acknowledges(50)
    async with Admin(cluster.bootstrap) as admin:
        registered = {b.broker_id for b in (await admin.describe_cluster()).brokers}
    records = await read(cluster, topic)
    cluster.start_broker(stopped)
    await cluster.ready()
    await until_in_sync(cluster, topic)

    assert status == 0
    assert stopped not in registered
    assert stopped not in {p.leader for p in left.partitions}
    assert -1 not in {p.leader for p in left.partitions}
    written.assert_all_in(records)


async def test_a_killed_controller_is_replaced_and_topics_are_created(
    cluster: LocalCluster,
) -> None:
    topic, later = new_name("sea"), new_name("sea")
    killed = await cluster.active_controller()
    assert killed is not None
    await create_topic(cluster, topic)
    async with Admin(cluster.bootstrap) as admin:
        before = (await admin.describe_cluster()).controller

    async with load(cluster, topic) as written:
        await cluster.kill_controller(killed)
        await create_topic(cluster, later)
        await written.acknowledges(20)
    async with Admin(cluster.bootstrap) as admin:
        after = (await admin.describe_cluster()).controller
    cluster.start_controller(killed)
    await cluster.ready()

    assert before is not None
    assert after is not None
    assert after.controller_id != killed
    assert after.controller_epoch > before.controller_epoch
    written.assert_all_in(await read(cluster, topic))


@pytest.mark.rule("new-controller-continues-elections")
async def test_a_leader_that_dies_with_the_controller_is_replaced_all_the_same(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    controller = await cluster.active_controller()
    assert controller is not None

    async with load(cluster, topic) as written:
        await asyncio.gather(cluster.kill_controller(controller), cluster.kill(before.leader))
        await until_led_by_another(cluster, topic, before)
        await written.acknowledges(20)
    records = await read(cluster, topic)
    cluster.start_controller(controller)
    cluster.start_broker(before.leader)
    await cluster.ready()
    await until_in_sync(cluster, topic)

    written.assert_all_in(records)


async def test_a_paused_follower_leaves_the_isr_and_returns(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    partition = (await create_topic(cluster, topic)).partitions[0]
    follower = next(b for b in partition.replicas if b != partition.leader)
    others = set(partition.replicas) - {follower}

    async with load(cluster, topic) as written:
        cluster.pause(follower)
        try:
            await until_isr(cluster, topic, others)
            await written.acknowledges(50)
        finally:
            cluster.resume(follower)
        await until_in_sync(cluster, topic)
    records = await read(cluster, topic)

    written.assert_all_in(records)
    assert (await partition_of(cluster, topic)).leader_epoch == partition.leader_epoch


@pytest.mark.rule("deposed-leader-commits-nothing")
async def test_a_paused_leader_is_replaced_and_does_not_lead_after_it_resumes(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]

    async with load(cluster, topic) as written:
        cluster.pause(before.leader)
        try:
            after = await until_led_by_another(cluster, topic, before)
            await written.acknowledges(50)
        finally:
            cluster.resume(before.leader)
        await until_in_sync(cluster, topic)
    async with WireClient(cluster.broker_address(before.leader)) as woken:
        result = await woken.produce(topic, 0, wire_batch(b"from the past"))
    records = await read(cluster, topic)

    assert_rejected(
        result.error, errors_pb2.ERROR_CODE_NOT_LEADER, f"broker {after.leader} at", "does"
    )
    assert after.leader_epoch > before.leader_epoch
    written.assert_all_in(records)


async def test_a_topic_cannot_have_more_replicas_than_brokers_are_left(
    cluster: LocalCluster,
) -> None:
    away = cluster.broker_ids[-1]
    await cluster.kill(away)
    async with Admin(cluster.bootstrap) as admin:

        async def check() -> bool:
            """By the answer of the controller, which has to reject the topic: brokers may know
            earlier."""
            running = [b for b in await admin.describe_brokers() if b.status == "running"]
            return len(running) == len(cluster.broker_ids) - 1

        await until(check, "the controller has noticed")
        with pytest.raises(TidelogError) as rejected:
            await admin.create_topic(new_name("sea"), 1, 3)
    cluster.start_broker(away)
    await cluster.ready()
    healed = await create_topic(cluster, new_name("sea"))

    assert rejected.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 brokers are running; request 1 to 2, or start more brokers" in str(rejected.value)
    assert healed.replication_factor == 3


async def test_with_too_few_in_sync_acks_all_is_rejected_and_nothing_is_appended(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    partition = (await create_topic(cluster, topic)).partitions[0]
    await write(cluster, topic, [b"calm"])
    others = [b for b in partition.replicas if b != partition.leader]

    await asyncio.gather(*(cluster.kill(b) for b in others))
    async with WireClient(cluster.broker_address(partition.leader)) as leader:

        async def check() -> bool:
            """By the answer of the replica itself: metadata may have the ISR before the replica
            does."""
            leading = (await replica_of(cluster.broker_address(partition.leader), topic)).leader
            return leading is not None and list(leading.maximal_isr) == [partition.leader]

        await until(check, "the leader stands alone")
        result = await leader.produce(topic, 0, wire_batch(b"storm"))
        end = await leader.end_offset(topic, 0)
    for broker_id in others:
        cluster.start_broker(broker_id)
    await cluster.ready()
    await until_in_sync(cluster, topic)
    await write(cluster, topic, [b"swell"])

    assert_rejected(
        result.error, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS, "1 replica(s) in sync", "needs 2"
    )
    assert end == 1
    assert [r.value for r in await read(cluster, topic)] == [b"calm", b"swell"]


async def test_a_follower_that_lost_its_disk_catches_up(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    described = await create_topic(cluster, topic)
    partition = described.partitions[0]
    emptied = next(b for b in partition.replicas if b != partition.leader)
    await write(cluster, topic, [b"record %d" % i for i in range(500)])

    await cluster.kill(emptied)
    lost = directory_id(cluster.broker_data_dir(emptied))
    shutil.rmtree(cluster.broker_data_dir(emptied))
    await restart_broker(cluster, emptied, {"replace_directory": lost})
    await cluster.ready()
    await until_in_sync(cluster, topic)
    await write(cluster, topic, [b"and one more"])

    data_dirs = {b: cluster.broker_data_dir(b) for b in cluster.broker_ids}
    await until_identical(cluster, data_dirs, topic, described.topic_id, end=501)
    assert len(await read(cluster, topic)) == 501


async def until_identical(
    cluster: LocalCluster, data_dirs: dict[int, Path], topic: str, topic_id: str, end: int
) -> None:
    replicas = {p.partition: p.replicas for p in (await describe(cluster, topic)).partitions}

    async def check() -> bool:
        return not await asyncio.to_thread(
            differing, data_dirs, topic, topic_id, replicas, dict.fromkeys(replicas, end)
        )

    await until(check, f"the replicas of {topic} are the same, byte by byte, up to {end}")
