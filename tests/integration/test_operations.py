"""Operations on running brokers: moved data arrive completely, also under load and with a new
controller."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.test_topic_deletion import directories
from integration.topics import describe, new_name, read_values, until_in_sync, write
from integration.waiting import until
from tidelog.admin_messages import Move, Operation
from tidelog.client import Admin, Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 6
VALUES = [f"value-{number}".encode() for number in range(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("operated"), brokers=4) as running:
        yield running


async def on_three(cluster: LocalCluster, what: str) -> str:
    """A topic with records, on the first three brokers alone."""
    topic = new_name(what)
    assignment = [[1 + (n + k) % 3 for k in range(2)] for n in range(PARTITIONS)]
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, assignment=assignment)
    await until_in_sync(cluster, topic)
    await write(cluster, topic, VALUES)
    return topic


async def until_over(cluster: LocalCluster, operation_id: str) -> Operation:
    async with Admin(cluster.bootstrap) as admin:

        async def check() -> Operation | None:
            operation = await admin.describe_operation(operation_id)
            return operation if operation.has_ended else None

        ended = await until(check, f"operation {operation_id} has ended")
    assert ended is not None
    return ended


async def replicas_of(cluster: LocalCluster, topic: str) -> list[tuple[int, ...]]:
    return [tuple(p.replicas) for p in (await describe(cluster, topic)).partitions]


async def until_replicas(
    cluster: LocalCluster, topic: str, expected: list[tuple[int, ...]]
) -> None:
    async def check() -> bool:
        return await replicas_of(cluster, topic) == expected

    await until(check, f"{topic} has the replicas {expected}")


@pytest.mark.rule("reassignment-of-replicas")
async def test_moved_partitions_keep_every_record_during_writes(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "sea")
    more: list[bytes] = []
    stop = asyncio.Event()

    async def write_on() -> None:
        async with Producer(cluster.bootstrap) as producer:
            while not stop.is_set():
                value = f"more-{len(more)}".encode()
                await (await producer.send(topic, value))
                more.append(value)

    writing = asyncio.create_task(write_on())
    moves = [Move(topic, number, (4, 1 + number % 3)) for number in range(PARTITIONS)]
    async with Admin(cluster.bootstrap, requested_by="ann") as admin:
        begun = await admin.reassign(moves, operation_id="grow-by-hand")
    assert begun.operation is not None
    over = await until_over(cluster, "grow-by-hand")
    stop.set()
    await writing

    assert (over.state, over.progress.moves_done, over.requested_by) == ("done", PARTITIONS, "ann")
    await until_replicas(cluster, topic, [move.target for move in moves])
    await until_in_sync(cluster, topic)
    assert Counter(await read_values(cluster, topic)) == Counter([*VALUES, *more])
    left = [n for n in range(PARTITIONS) if 2 not in moves[n].target]

    async def gone() -> bool:
        kept = {path.name for path in directories(cluster, 2, "replicas", topic)}
        return not any(f"{topic}-{number:06}" in name for number in left for name in kept)

    await until(gone, "broker 2 has deleted what was moved off it")


async def test_progress_is_reported_in_bytes_while_moves_are_throttled(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "lagoon")
    await write(cluster, topic, [b"x" * 8_192] * 48)
    moves = [Move(topic, number, (4, 1 + number % 3)) for number in range(PARTITIONS)]
    async with Admin(cluster.bootstrap) as admin:
        await admin.set_throttle(1_024)
        await admin.reassign(moves, operation_id="slowly")
        progress = (await admin.describe_operation("slowly")).progress
        each = await admin.operation_moves("slowly")
        await admin.set_throttle(None)
    assert progress.moves_unmeasured == 0
    assert 48 * 8_192 <= progress.bytes_to_copy < 2 * 48 * 8_192
    assert progress.bytes_copied < progress.bytes_to_copy
    assert sum(move.bytes_to_copy or 0 for move in each) == progress.bytes_to_copy
    over = await until_over(cluster, "slowly")
    assert (over.state, over.progress.bytes_copied) == ("done", progress.bytes_to_copy)


@pytest.mark.rule("brokers-added-and-removed")
async def test_an_added_broker_gets_its_share_and_a_removed_one_loses_all(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "bay")
    async with Admin(cluster.bootstrap) as admin:
        shown = await admin.add_brokers([4], dry_run=True)
        assert await replicas_of(cluster, topic) == [
            tuple(1 + (n + k) % 3 for k in range(2)) for n in range(PARTITIONS)
        ]
        await admin.add_brokers([4], operation_id="grow")
    assert (await until_over(cluster, "grow")).state == "done"
    shares = [share.replicas_after for share in shown.plan.brokers]
    assert max(shares) - min(shares) <= 1
    async with Admin(cluster.bootstrap) as admin:
        grown = {b.broker_id: b.replicas for b in await admin.describe_brokers()}
        assert grown == {s.broker_id: s.replicas_after for s in shown.plan.brokers}
        await admin.remove_brokers([4], operation_id="shrink")
    assert (await until_over(cluster, "shrink")).state == "done"
    async with Admin(cluster.bootstrap) as admin:
        (removed,) = await admin.describe_brokers([4])
    assert (removed.replicas, removed.removed) == (0, True)
    await until_in_sync(cluster, topic)
    assert Counter(await read_values(cluster, topic)) == Counter(VALUES)


async def test_a_new_controller_finishes_the_operation_of_its_predecessor(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "cove")
    async with Admin(cluster.bootstrap) as admin:
        await admin.set_replication_factor([topic], 3, operation_id="wider")
        active = await cluster.active_controller()
        assert active is not None
        await cluster.kill_controller(active)
    over = await until_over(cluster, "wider")
    cluster.start_controller(active)

    assert over.state == "done"

    async def wider() -> bool:
        """Brokers are informed a moment after the controller."""
        return {len(replicas) for replicas in await replicas_of(cluster, topic)} == {3}

    await until(wider, f"each partition of {topic} has three replicas")
    assert Counter(await read_values(cluster, topic)) == Counter(VALUES)


async def test_moves_can_be_reversed_and_a_repeated_request_is_recognized_by_its_id(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "reef")
    before = await replicas_of(cluster, topic)
    moves = [Move(topic, 0, (3, 2))]
    async with Admin(cluster.bootstrap) as admin:
        await admin.reassign(moves, operation_id="there")
        again = await admin.reassign(moves, operation_id="there")
        with pytest.raises(TidelogError) as caught:
            await admin.rebalance(operation_id="there")
        await until_over(cluster, "there")
        await admin.reverse_operation("there", operation_id="back")
        assert (await until_over(cluster, "back")).state == "done"
    assert again.operation is not None
    assert again.operation.operation_id == "there"
    assert caught.value.code is ErrorCode.OPERATION_ID_IN_USE
    await until_replicas(cluster, topic, before)


async def test_leaders_are_transferred_elected_and_kept_off_a_broker_in_maintenance(
    cluster: LocalCluster,
) -> None:
    topic = await on_three(cluster, "gulf")
    name = TopicPartition(topic, 0)
    first, second = (await replicas_of(cluster, topic))[0]
    async with Admin(cluster.bootstrap) as admin:
        (moved,) = await admin.move_leaders({name: second})
        led, kept = await admin.set_maintenance([second])
        check = await admin.check_restart(second)
        back = await admin.elect_preferred_leaders({topic: [0]})
        await admin.set_maintenance([second], maintenance=False)
        (elected,) = await admin.elect_preferred_leaders({topic: [0]})

    assert (moved.error, moved.leader_before, moved.leader) == (None, first, second)
    assert [change.error for change in led if change.topic == topic] == [None] * len(
        [change for change in led if change.topic == topic]
    )
    assert kept == 0
    assert check.unavailable == 0
    assert [change.error.code for change in back if change.error] == [ErrorCode.NOT_ELIGIBLE_LEADER]
    assert (elected.error, elected.leader) == (None, second)
    await until_replicas(
        cluster, topic, [(second, first), *(await replicas_of(cluster, topic))[1:]]
    )
