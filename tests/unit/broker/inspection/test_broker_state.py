"""A complete broker as Inspect describes it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    FollowerProgress,
    ReplicaState,
    ServiceState,
    StateRequest,
    StoreHealth,
)
from tidelog.model import NO_EPOCH, Acks
from unit.broker.broker_parts import address_of, until_idle
from unit.broker.broker_processes import Cluster, Process, leading_alone, pair
from unit.broker.fake_log import NAME, TOPIC_ID, sent
from unit.metadata.virtual_time import virtual_clock


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    yield Cluster(tmp_path)


async def described(process: Process, **options: object) -> ServiceState:
    return await process.broker.inspection.describe(StateRequest(**options))  # type: ignore[arg-type]


def replicas_in(state: ServiceState) -> list[ReplicaState]:
    assert state.broker is not None
    return list(state.broker.replicas)


async def test_a_description_has_the_identity_and_the_store_health(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    state = await described(process)
    assert (state.role, state.id, state.address) == ("broker", 1, address_of(1))
    assert state.store.unreachable_ms == StoreHealth().unreachable_ms
    assert state.events_told == process.broker.state_changes.reported > 0
    await process.stop()


async def test_a_services_only_request_gets_no_replicas(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    state = (await described(process, services_only=True)).broker
    assert state is not None
    assert (state.replicas, state.replica_count, len(state.registered)) == ([], 1, 1)
    await process.stop()


async def test_a_missing_topic_is_an_error_beside_the_brokers_state(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    state = await described(process, topic="nosuch")
    assert "topic 'nosuch' does not exist; create it first" in str(state.error)
    assert state.broker is not None
    assert [b.broker_id for b in state.broker.registered] == [1]
    # A partition that only this broker still holds is described.
    known = [await described(process, topic=NAME.topic, partition=p) for p in (None, 0)]
    assert [state.error for state in known] == [None, None]
    await process.stop()


async def test_before_its_full_state_a_broker_is_starting(cluster: Cluster) -> None:
    process = await Process(cluster, 1).start()
    state = (await described(process)).broker
    assert state is not None
    assert (state.state, state.has_full_state, state.replica_count) == ("starting", False, 0)
    await process.stop()


async def test_after_its_full_state_a_broker_is_running_and_counts_its_replicas(
    cluster: Cluster,
) -> None:
    process = await leading_alone(cluster)
    state = (await described(process)).broker
    assert state is not None
    assert (state.state, state.broker_epoch, state.controller_epoch) == (
        "running",
        process.epoch,
        1,
    )
    assert (state.replica_count, state.leader_count) == (1, 1)
    assert [b.broker_id for b in state.registered] == [1]
    assert [b.whole_since for b in state.registered] == [process.epoch]
    await process.stop()


async def test_a_leader_knows_its_follower_and_the_session_in_which_it_fetches(
    cluster: Cluster,
) -> None:
    leader, follower = await pair(cluster)
    leader.partition.append([sent()], Acks.LEADER, virtual_clock().wall_ms())
    await asyncio.sleep(1)
    (replica,) = replicas_in(await described(leader))
    assert replica.leader is not None
    (progress,) = replica.leader.followers
    assert isinstance(progress, FollowerProgress)
    assert (progress.broker_id, progress.lag_records, progress.in_isr) == (2, 0, True)
    assert progress.session_id > 0
    for process in (leader, follower):
        await process.stop()


async def test_a_follower_knows_when_its_leader_answered(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await asyncio.sleep(1)
    (replica,) = replicas_in(await described(follower))
    assert replica.follower is not None
    assert (replica.role, replica.follower.leader) == ("follower", 1)
    assert 0 <= replica.follower.last_answer_ms <= 1_000
    for process in (leader, follower):
        await process.stop()


async def test_leader_and_follower_hear_each_other_though_shared_partitions_are_healthy(
    cluster: Cluster,
) -> None:
    leader, follower = await pair(cluster)
    await asyncio.sleep(10)
    heard = [(await described(p, only_unwell=True)).broker for p in (leader, follower)]
    assert heard[0] is not None
    assert heard[1] is not None
    (fetched,), (answered,) = heard[0].heard, heard[1].heard
    assert (fetched.broker_id, fetched.last_answer_ms) == (2, NOT_KNOWN)
    assert 0 <= fetched.last_fetch_ms <= 1_000
    assert (answered.broker_id, answered.last_fetch_ms) == (1, NOT_KNOWN)
    assert 0 <= answered.last_answer_ms <= 1_000
    for process in (leader, follower):
        await process.stop()


async def test_a_stopped_broker_is_not_heard_any_more(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await follower.stop()
    await asyncio.sleep(10)
    state = (await described(leader)).broker
    assert state is not None
    assert [heard.last_fetch_ms > 9_000 for heard in state.heard] == [True]
    await leader.stop()


async def test_a_broker_that_shares_no_partition_has_heard_no_other(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    state = (await described(process)).broker
    assert state is not None
    assert list(state.heard) == []
    await process.stop()


async def test_a_follower_whose_leader_is_gone_shows_why_it_cannot_fetch(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await leader.stop()
    await asyncio.sleep(2)
    (replica,) = replicas_in(await described(follower))
    assert replica.follower is not None
    assert "connection refused" in replica.follower.problem
    assert replica.follower.problem_ms >= 1_000
    await follower.stop()


async def test_only_requested_replicas_are_described(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    assert len(replicas_in(await described(process, topic=NAME.topic))) == 1
    assert replicas_in(await described(process, topic="another")) == []
    assert replicas_in(await described(process, topic=NAME.topic, partition=7)) == []
    await process.stop()


async def test_healthy_replicas_may_be_left_out_and_are_counted(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await until_idle()
    state = await described(leader, only_unwell=True)
    assert replicas_in(state) == []
    assert state.broker is not None
    assert state.broker.replica_count == 1
    for process in (leader, follower):
        await process.stop()


async def test_a_replica_that_no_controller_has_claimed_yet_is_described(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    await process.stop()
    again = await Process(cluster, 1).start()
    (replica,) = replicas_in(await described(again))
    assert (replica.role, replica.leader_epoch, replica.topic_id) == ("none", NO_EPOCH, TOPIC_ID)
    await again.stop()


async def test_a_long_description_yields_to_the_event_loop(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    logs = process.broker.inspection._logs
    key = next(iter(logs.keys()))
    many = {
        key._replace(partition=n): logs._logs[key]._replace(name=NAME._replace(partition=n))
        for n in range(200)
    }
    logs._logs.update(many)
    before = turns
    assert len(replicas_in(await described(process))) == 200
    assert turns - before >= 5
    counting.cancel()
    for added in many:
        if added != key:
            del logs._logs[added]
    await process.stop()
