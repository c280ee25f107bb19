"""Moves that do not end, operations that have not begun, and cancellations that wait.

Each is explained beside a second fault, and the suggested step ends it. One cluster serves all
tests; topics name the replicas of their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.explaining import (
    assert_follows_from,
    assert_not_blamed,
    assert_still_found,
    causes_of,
    faults_of,
    the,
    until_found,
)
from integration.suggested_steps import carried_out, commands_of, until_gone, without_standby
from integration.test_operations import until_over
from integration.topics import describe, until_in_sync, until_isr, write
from integration.waiting import until
from tidelog.admin_messages import Move
from tidelog.client import Admin, Producer
from tidelog.inspection.explain import causes
from tidelog.model import Acks
from tidelog_runtime.local.cluster import LocalCluster

# On brokers that no fault touches.
BYSTANDER = "rest/0"
VALUE = bytes(range(256)) * 16
WRITES_PER_SECOND = 25
# Far below the write rate, and the least that is accepted.
LOW_RATE, LEAST_RATE = "20kB", "1024"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(
        tmp_path_factory.mktemp("moves"),
        brokers=4,
        controller_config={"leader_balance": False, "max_moves_per_broker": 1},
    ) as running:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic("rest", assignment=[[1, 2]])
        await until_in_sync(running, "rest")
        yield running


async def topic_of(cluster: LocalCluster, topic: str, *replicas: list[int]) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, assignment=list(replicas))
    await until_in_sync(cluster, topic)


@asynccontextmanager
async def writing(cluster: LocalCluster, topic: str) -> AsyncIterator[None]:
    """Writes about a hundred kilobytes per second to partition 0."""

    async def write_on() -> None:
        async with Producer(cluster.bootstrap, acks=Acks.LEADER, idempotent=False) as producer:
            while True:
                await (await producer.send(topic, VALUE, partition=0))
                await asyncio.sleep(1 / WRITES_PER_SECOND)

    async with beside(write_on()):
        yield


async def bind_moves(cluster: LocalCluster, rate: str) -> None:
    await carried_out(cluster, ["throttle", "set", rate])


async def test_a_throttle_below_the_write_rate_is_explained_with_a_sufficient_rate(
    cluster: LocalCluster,
) -> None:
    await topic_of(cluster, "sea", [1, 2])
    await bind_moves(cluster, LOW_RATE)
    async with writing(cluster, "sea"), without_standby(cluster):
        async with Admin(cluster.bootstrap) as admin:
            await admin.reassign([Move("sea", 0, (1, 4))], operation_id="slowly")
        found = await until_found(
            cluster, ("move_waits", 4), ("no_standby", -1), containing=("never",)
        )
        waits = the(found, "move_waits")
        healthy = await faults_of(cluster, BYSTANDER)
        raised, cancelled = commands_of(waits)
        await carried_out(cluster, raised)
        # Records are written as before.
        over = await until_over(cluster, "slowly")
    assert waits.severity == "warning"
    assert_follows_from(waits, causes.MOVES_BOUND_BELOW_WRITES)
    assert waits.partitions == ("sea/0",)
    assert "at no more than 20 kB/s, which never ends" in waits.summary
    assert raised[:2] == ["throttle", "set"]
    assert cancelled == ["operations", "cancel", "slowly"]
    assert not causes_of(found) & {("replica_cut_off", 4), ("replica_slow", 4)}
    assert healthy == []
    assert_not_blamed(found, BYSTANDER)
    assert (over.state, over.progress.moves_done) == ("done", 1)


async def test_an_operation_waiting_for_a_dead_broker_and_a_throttled_move_are_explained(
    cluster: LocalCluster,
) -> None:
    await topic_of(cluster, "bay", [2, 3], [2, 3])
    await write(cluster, "bay", [VALUE] * 200, partition=0)
    await bind_moves(cluster, LEAST_RATE)
    async with Admin(cluster.bootstrap) as admin:
        moves = [Move("bay", partition, (2, 4)) for partition in (0, 1)]
        await admin.reassign(moves, operation_id="waits")
    # Shortly after the burst, its rate may count as that of the leader's writes.
    bound = await until_found(
        cluster, ("move_waits", 4), containing=("no more than 1 KiB/s",), missing=("never ends",)
    )
    await cluster.kill(4)
    expected = (("replica_dead", 4), ("move_waits", 4), ("operation_waits", 4))
    # The partition that the test before has moved to that broker.
    moved = (("under_min_isr", 1),)
    found = await until_found(cluster, *expected, also=moved)
    await assert_still_found(cluster, *expected, also=moved)
    healthy = await faults_of(cluster, BYSTANDER)

    # A single burst was written, and nothing since.
    slow = the(bound, "move_waits")
    assert slow.severity == "info"
    assert_follows_from(slow, causes.MOVES_BOUND)
    assert {cause for cause, _ in causes_of(bound)} == {"move_waits"}
    [faster] = commands_of(slow)
    waits, begins = the(found, "move_waits"), the(found, "operation_waits")
    assert (waits.severity, waits.because) == ("warning", ("replica_dead of broker 4",))
    assert (begins.severity, begins.because) == ("warning", ("replica_dead of broker 4",))
    assert "operation waits (reassignment)" in begins.summary
    assert "Start" in begins.next_step
    assert "broker 4" in begins.next_step
    assert healthy == []
    assert_not_blamed(found, BYSTANDER)
    cluster.start_broker(4)
    await until_gone(cluster, "operation_waits")
    await carried_out(cluster, [word.replace("RATE", "none") for word in faster])
    assert (await until_over(cluster, "waits")).progress.moves_done == 2


async def test_a_cancelled_move_that_cannot_be_rolled_back_yet_is_explained(
    cluster: LocalCluster,
) -> None:
    await topic_of(cluster, "cove", [2, 3])
    paused = cluster.broker_process(4)
    paused.pause()
    async with Admin(cluster.bootstrap) as admin:
        await admin.reassign([Move("cove", 0, (1, 4))], operation_id="back")
    await until_isr(cluster, "cove", {1, 2, 3})
    await cluster.kill(4)
    # The partitions that the tests before have moved to that broker.
    moved = (("under_min_isr", -1),)
    found = await until_found(cluster, ("move_waits", 4), ("replica_dead", 4), also=moved)
    waits = the(found, "move_waits")
    await cluster.kill(3)
    await until_isr(cluster, "cove", {1, 2})
    [cancel] = commands_of(waits)
    await carried_out(cluster, cancel, "--yes")
    expected = (("cancellation_waits", 3), ("replica_dead", 3), ("replica_dead", 4))
    found = await until_found(cluster, *expected, also=moved)
    await assert_still_found(cluster, *expected, also=moved)
    healthy = await faults_of(cluster, BYSTANDER)
    held = the(found, "cancellation_waits")
    assert (held.severity, held.because) == ("warning", ("replica_dead of broker 3",))
    assert "is cancelled, and it cannot be rolled back yet" in held.summary
    assert "Repair broker 3" in held.next_step
    assert healthy == []
    assert "Start broker 3" in the(found, "replica_dead", 3).next_step
    cluster.start_broker(3)
    await until_gone(cluster, "cancellation_waits")

    async def is_back() -> bool:
        return set((await describe(cluster, "cove")).partitions[0].replicas) == {2, 3}

    await until(is_back, "the replicas are the original ones")
    cluster.start_broker(4)
    await cluster.ready()
    assert (await until_over(cluster, "back")).state == "cancelled"
