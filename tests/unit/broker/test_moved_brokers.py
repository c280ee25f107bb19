"""A partition moves from one complete broker to another: throttles and the ISR in the store take
effect on fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from tidelog.inspection.state_reports import StateRequest
from tidelog.model import Acks
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    Moving,
    Throttle,
    encode_leader_and_isr,
    encode_throttle,
)
from unit.broker.broker_parts import KEYS, until
from unit.broker.broker_processes import Cluster, Process
from unit.broker.fake_log import NAME, sent
from unit.metadata.virtual_time import virtual_clock

TO_2 = Moving("op", (1,), (2,))
RATE = 10_000
BATCH = 1_000
BATCHES = 50


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    yield Cluster(tmp_path)


def bound(cluster: Cluster, bytes_per_second: int | None) -> None:
    cluster.put(KEYS.throttle, encode_throttle(Throttle(bytes_per_second)))


async def moving(cluster: Cluster) -> tuple[Process, Process, LeaderAndIsr]:
    """Broker 1 leads 50,000 bytes alone, and broker 2 is added."""
    leader, added = await Process(cluster, 1).start(), await Process(cluster, 2).start()
    alone, revision = cluster.elect(leader)
    await cluster.command(leader, replace(alone, replicas=(1,)), revision)
    for _ in range(BATCHES):
        leader.partition.append([sent(b"x" * BATCH)], Acks.LEADER, virtual_clock().wall_ms())
    moved = replace(alone, replicas=TO_2.replicas, moving=TO_2)
    revision = cluster.put(KEYS.leader_and_isr(NAME), encode_leader_and_isr(moved))
    for process in (leader, added):
        await cluster.command(process, moved, revision)
    return leader, added, moved


async def test_without_a_throttle_an_added_replica_is_in_sync_at_once(cluster: Cluster) -> None:
    leader, added, _ = await moving(cluster)
    began = virtual_clock().time()
    await until(lambda: cluster.isr() == {1, 2})
    assert virtual_clock().time() - began < 1
    for process in (leader, added):
        await process.stop()


async def test_the_throttle_in_the_store_applies_to_added_replicas(cluster: Cluster) -> None:
    bound(cluster, RATE)
    leader, added, _ = await moving(cluster)
    await asyncio.sleep(2)
    copied = added.partition.log.log_end_offset * BATCH
    assert RATE <= copied <= 2 * RATE + 2 * BATCH
    assert cluster.isr() == {1}
    for process in (leader, added):
        await process.stop()


async def test_a_move_continues_when_its_throttle_is_lifted(cluster: Cluster) -> None:
    bound(cluster, 1_024)
    leader, added, _ = await moving(cluster)
    await asyncio.sleep(2)
    assert cluster.isr() == {1}
    bound(cluster, None)
    lifted = virtual_clock().time()
    await until(lambda: cluster.isr() == {1, 2})
    assert virtual_clock().time() - lifted < 2
    for process in (leader, added):
        await process.stop()


async def test_a_replica_in_the_isr_follows_whatever_the_throttle(cluster: Cluster) -> None:
    leader, added, _ = await moving(cluster)
    await until(lambda: cluster.isr() == {1, 2})
    bound(cluster, 1_024)
    await asyncio.sleep(1)
    leader.partition.append([sent(b"x" * 100_000)], Acks.LEADER, virtual_clock().wall_ms())
    appended = virtual_clock().time()
    await until(lambda: leader.partition.high_watermark == BATCHES + 1)
    assert virtual_clock().time() - appended < 1
    for process in (leader, added):
        await process.stop()


async def test_a_broker_state_shows_the_throttle_and_the_move(cluster: Cluster) -> None:
    bound(cluster, RATE)
    leader, added, _ = await moving(cluster)
    state = (await added.broker.inspection.describe(StateRequest())).broker
    assert state is not None
    assert state.move_bytes_per_second == RATE
    assert [replica.moving for replica in state.replicas] == ["adding"]
    for process in (leader, added):
        await process.stop()
