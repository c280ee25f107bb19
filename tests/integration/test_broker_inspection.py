"""What brokers report about themselves during real faults of real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.inspected import described, events_of, replica_of
from integration.topics import create_topic, new_name, partition_of, until_in_sync, until_isr
from integration.waiting import until
from integration.wire_client import WireClient, wire_batch
from tidelog.inspection.state_reports import FollowerProgress, LeaderState
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1.broker_pb2 import ACKS_LEADER
from tidelog_runtime.local.cluster import LocalCluster

# Longer than a fetch may take, shorter than the lease.
SETTLED_SECONDS = 3
# The stages of a replica's part in a change.
PARTS = {Stage.REQUESTED, Stage.RECEIVED, Stage.COMPLETED, Stage.ACKNOWLEDGED}
STANDS_STILL_SECONDS = 8.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """The leader removes a stalled follower from the ISR long before the follower's lease ends."""
    async with running_cluster(
        tmp_path_factory.mktemp("inspection"),
        broker_config={"replica_lag_time_max_ms": 1_000, "lease_ttl_seconds": 10},
    ) as running:
        yield running


@contextmanager
def paused(cluster: LocalCluster, broker_id: int) -> Iterator[None]:
    cluster.pause(broker_id)
    try:
        yield
    finally:
        cluster.resume(broker_id)


def progress_of(leader: LeaderState, broker_id: int) -> FollowerProgress:
    (progress,) = [p for p in leader.followers if p.broker_id == broker_id]
    return progress


async def test_a_paused_follower_is_reported_from_the_stalled_high_watermark_to_its_return(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic)
    partition = await partition_of(cluster, topic)
    leader, slow, well = partition.replicas
    address = cluster.broker_address(leader)

    async def stalled() -> LeaderState | None:
        """A poll may come before the other follower has fetched."""
        found = (await replica_of(address, topic)).leader
        if found is None or progress_of(found, well).lag_records:
            return None
        return found if found.hw_stalled_ms > 0 else None

    async def waiting() -> LeaderState | None:
        found = (await replica_of(address, topic)).leader
        return found if found is not None and found.waiting_consumers else None

    async with WireClient(address) as client:
        with paused(cluster, slow):
            await client.produce(topic, 0, wire_batch(b"wave"), acks=ACKS_LEADER)
            standing = await until(stalled, "the high watermark stands still")
            await client.fetch(topic, 0, 0)
            unread = await until(waiting, "a consumer waits")
            await until_isr(cluster, topic, {leader, well})
            unwell = await described(address, only_unwell=True)
        await until_in_sync(cluster, topic)

    assert standing is not None
    assert unread is not None
    lagging = progress_of(standing, slow)
    assert (lagging.in_isr, lagging.lag_records) == (True, 1)
    assert lagging.lag_ms >= standing.hw_stalled_ms - 1_000
    assert progress_of(standing, well).lag_records == 0
    assert slow in standing.maximal_isr
    assert [consumer.offset for consumer in unread.waiting_consumers] == [0]
    assert unwell.broker is not None
    assert topic in [replica.topic for replica in unwell.broker.replicas]

    async def over() -> list[StateChange]:
        events = await events_of(address, topic)
        done = {change.kind for change in events if change.stage is Stage.COMPLETED}
        return events if {Kind.HIGH_WATERMARK_RESUMED, Kind.ISR_EXPAND} <= done else []

    events = await until(over, "the recovery of the high watermark and of the ISR is reported")
    (held,) = [change for change in events if change.kind is Kind.HW_STALLED]
    assert held.cause is Cause.NO_FOLLOWER_PROGRESS
    assert held.details["brokers"] == [slow]
    for kind, cause in (
        (Kind.ISR_SHRINK, Cause.LAG_TIME),
        (Kind.ISR_EXPAND, Cause.CAUGHT_UP),
    ):
        changes = [change for change in events if change.kind is kind]
        assert [change.stage for change in changes] == [Stage.REQUESTED, Stage.COMPLETED]
        assert {change.cause for change in changes} == {cause}
        assert len({change.change_id for change in changes}) == 1
        assert changes[0].details["brokers"] == [slow]


async def test_a_stalled_broker_reports_its_stall_and_blames_no_leader(
    cluster: LocalCluster,
) -> None:
    """The pause is longer than its fetches may take, and shorter than its lease."""
    topic = new_name("sea")
    await create_topic(cluster, topic, 3)
    stood_still = cluster.broker_ids[0]
    address = cluster.broker_address(stood_still)
    before = len(await events_of(address))
    with paused(cluster, stood_still):
        await asyncio.sleep(STANDS_STILL_SECONDS)

    async def stall_reported() -> bool:
        stalls = await events_of(address, "", Kind.BROKER_STALLED.value)
        return any(events.duration_ms > (STANDS_STILL_SECONDS - 1) * 1_000 for events in stalls)

    await until(stall_reported, "the pause of the broker is reported")
    await until_in_sync(cluster, topic)
    events = (await events_of(address))[before:]
    assert [change for change in events if change.kind is Kind.LEADER_UNREACHABLE] == []


def log_sizes(cluster: LocalCluster) -> dict[str, int]:
    return {p.name: p.log_path.stat().st_size for p in cluster.processes() if "etcd" not in p.name}


async def until_quiet(cluster: LocalCluster) -> None:
    """Waits until the events of earlier tests are reported completely."""

    async def stands() -> bool:
        before = log_sizes(cluster)
        await asyncio.sleep(SETTLED_SECONDS)
        return log_sizes(cluster) == before

    await until(stands, f"no log has grown for {SETTLED_SECONDS} s")


async def test_the_log_of_a_quiet_cluster_is_quiet(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    described_topic = await create_topic(cluster, topic, 3)
    await until_quiet(cluster)
    sizes = log_sizes(cluster)
    async with WireClient(cluster.broker_address(described_topic.partitions[0].leader)) as client:
        for _ in range(50):
            await client.produce(topic, 0, wire_batch(b"wave"))
            await client.fetch(topic, 0, 0)
    grown = {
        p.name: p.log_path.read_text()[sizes[p.name] :]
        for p in cluster.processes()
        if p.name in sizes and p.log_path.stat().st_size > sizes[p.name]
    }
    assert grown == {}


async def test_one_change_id_spans_the_election_and_every_replica(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    await create_topic(cluster, topic)
    dead, *alive = (await partition_of(cluster, topic)).replicas
    await cluster.kill(dead)
    services = [*map(cluster.broker_address, alive), *map(cluster.controller_address, (1, 2))]

    async def acknowledged() -> list[StateChange]:
        events = [change for address in services for change in await events_of(address, topic)]
        elections = {change.change_id for change in events if change.kind is Kind.ELECTION}
        story = [change for change in events if change.change_id in elections and change.change_id]
        # The services are asked one after another: the last answer has events that the first had
        # not yet.
        done = {b for b in alive if {c.stage for c in story if c.broker == b} >= PARTS}
        return story if done == set(alive) else []

    story = await until(acknowledged, "both replicas have acknowledged the election")
    cluster.start_broker(dead)
    await cluster.ready()
    await until_in_sync(cluster, topic)

    assert len({change.change_id for change in story}) == 1
    assert {change.cause for change in story} == {Cause.BROKER_CRASHED}
    (leader,) = {change.broker for change in story if change.kind is Kind.BECOME_LEADER}
    for broker_id in alive:
        part = sorted((c for c in story if c.broker == broker_id), key=lambda c: c.duration_ms)
        role = Kind.BECOME_LEADER if broker_id == leader else Kind.BECOME_FOLLOWER
        assert {change.kind for change in part} == {role}
        assert {change.stage for change in part} == PARTS
        assert {change.service for change in part if change.stage is Stage.COMPLETED} == {
            f"broker-{broker_id}"
        }
        assert all(change.duration_ms >= 0 for change in part)
        assert len({(change.revision, change.leader_epoch) for change in part}) == 1
