"""Complete brokers: producers stay known although their batches are gone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_EPOCH, Acks, Batch
from tidelog.state_changes.event import Kind
from tidelog_broker.core.partition.producer_state import LONGEST_DELIVERY_MS, CommittedProducer
from tidelog_broker.requests.describe_producers import DescribeEntry, Fence
from tidelog_broker.requests.produce import ProduceEntry, ProduceOutcome
from tidelog_broker.requests.producer_ids import GivenProducer
from tidelog_runtime.metadata.schema import LeaderAndIsr
from unit.broker.broker_parts import emitted_events, until
from unit.broker.broker_processes import Cluster, Process
from unit.broker.fake_log import NAME, sent_by

RECORDS = bytes(600 << 10)
# The smallest segments that a topic may have; the newest batch of RECORDS is kept.
SMALL = {
    "segment_bytes": str(1 << 20),
    "retention_bytes": str(len(RECORDS) // 2),
    "min_insync_replicas": "1",
}
NAMED = FIRST_NAMED_PRODUCER_ID + 1


async def put(process: Process, *batches: Batch) -> ProduceOutcome:
    entry = ProduceEntry(NAME, "", batches)
    (outcome,) = await process.broker.produce.handle([entry], Acks.ALL, 1000)
    return outcome


def code_of(outcome: ProduceOutcome) -> ErrorCode:
    assert outcome.error is not None
    return outcome.error.code


async def elected(cluster: Cluster, leader: Process, *others: Process, epoch: int) -> LeaderAndIsr:
    wanted, revision = cluster.elect(leader, *others, epoch=epoch)
    for process in (leader, *others):
        await cluster.command(process, wanted, revision)
    return wanted


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.topic_config = SMALL
    yield cluster
    for process in list(cluster.listening.values()):
        await process.stop()


async def with_deleted_batches(cluster: Cluster) -> Process:
    """Broker 1 leads alone, and all batches of the named producer are gone."""
    leader = await Process(cluster, 1).start()
    await elected(cluster, leader, epoch=5)
    for batch in (
        sent_by(NAMED, 0, count=3, records=RECORDS),
        sent_by(7, 0, records=RECORDS),
        sent_by(7, 1, records=RECORDS),
    ):
        assert (await put(leader, batch)).appended is not None
    log = leader.partition.log
    await until(lambda: log.log_start_offset == 4)
    return leader


async def test_a_new_replica_learns_the_producers_of_deleted_batches(cluster: Cluster) -> None:
    leader = await with_deleted_batches(cluster)
    follower = await Process(cluster, 2).start()
    wanted, revision = cluster.elect(leader, epoch=6)
    for process in (leader, follower):
        await cluster.command(process, wanted, revision)
    await until(lambda: follower.partition.log.log_end_offset == 5)
    await until(lambda: cluster.isr() == {1, 2})
    await elected(cluster, follower, leader, epoch=7)
    again = await put(follower, sent_by(NAMED, 0, count=3, records=RECORDS))
    assert again.appended is not None
    assert (again.appended.base_offset, again.appended.leader_epoch) == (0, 5)
    assert follower.partition.log.log_end_offset == 5


async def test_a_new_replica_of_a_fully_expired_log_learns_its_producers(cluster: Cluster) -> None:
    """No batch exists that could carry them."""
    cluster.topic_config = {**SMALL, "retention_ms": "1000"}
    leader = await Process(cluster, 1).start()
    await elected(cluster, leader, epoch=5)
    assert (await put(leader, sent_by(NAMED, 0, count=3))).appended is not None
    await until(lambda: leader.partition.log.log_start_offset == 3)
    follower = await Process(cluster, 2).start()
    wanted, revision = cluster.elect(leader, epoch=6)
    for process in (leader, follower):
        await cluster.command(process, wanted, revision)
    await until(lambda: cluster.isr() == {1, 2})
    await elected(cluster, follower, leader, epoch=7)
    again = await put(follower, sent_by(NAMED, 0, count=3))
    assert again.appended is not None
    assert follower.partition.log.log_end_offset == 3


async def test_a_restart_keeps_the_producers_of_deleted_batches(cluster: Cluster) -> None:
    leader = await with_deleted_batches(cluster)
    await leader.stop()
    again = await Process(cluster, 1).start()
    await elected(cluster, again, epoch=6)
    assert (await put(again, sent_by(NAMED, 0, count=3))).appended is not None
    assert again.partition.log.log_end_offset == 5


def spoil_producers_below_start(cluster: Cluster, broker_id: int) -> None:
    spoilt = list(cluster.path.glob(f"{broker_id}/replicas/*/{4:020d}.producers*"))
    assert len(spoilt) == 2
    for path in spoilt:
        path.write_bytes(b"nonsense")


async def test_a_replica_that_lost_producers_of_deleted_batches_resigns_and_relearns_them(
    cluster: Cluster,
) -> None:
    leader = await with_deleted_batches(cluster)
    follower = await Process(cluster, 2).start()
    await elected(cluster, leader, follower, epoch=6)
    await until(lambda: follower.partition.log.log_end_offset == 5)
    await follower.stop()
    spoil_producers_below_start(cluster, 2)
    again = await Process(cluster, 2).start()
    assert cluster.isr() == {1}
    state, revision = cluster.elect(leader, epoch=8)
    for process in (leader, again):
        await cluster.command(process, state, revision)
    await until(lambda: cluster.isr() == {1, 2})
    states = again.partition.log.producers.states
    assert states.entries == leader.partition.log.producers.states.entries
    assert states.entry(NAMED) is not None


async def test_a_sole_replica_that_lost_producers_of_deleted_batches_logs_it_and_continues(
    cluster: Cluster,
) -> None:
    leader = await with_deleted_batches(cluster)
    await leader.stop()
    spoil_producers_below_start(cluster, 1)
    with capture_logs() as lines:
        again = await Process(cluster, 1).start()
    assert "producers_below_start_lost" in [line["event"] for line in lines]
    assert not emitted_events(again.broker.state_changes, Kind.RESIGNATION)
    await elected(cluster, again, epoch=6)
    assert again.partition.log.log_end_offset == 5


@pytest.mark.rule("name-holder-fences-previous")
async def test_a_fence_holds_at_the_next_leader(cluster: Cluster) -> None:
    leader, follower = await Process(cluster, 1).start(), await Process(cluster, 2).start()
    await elected(cluster, leader, follower, epoch=5)
    assert (await put(leader, sent_by(NAMED, 0, count=3))).appended is not None
    (description,) = await leader.broker.describe_producers.handle(
        [DescribeEntry(NAME, "")], [], Fence(NAMED, 4, 1000)
    )
    assert not isinstance(description, TidelogError)
    assert [p[:3] for p in description.producers] == [(NAMED, 4, 2)]
    await elected(cluster, follower, leader, epoch=6)
    assert code_of(await put(follower, sent_by(NAMED, 3))) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert (await put(follower, sent_by(NAMED, 3, epoch=4))).appended is not None


async def test_taking_a_name_at_one_broker_fences_the_previous_holder_at_all_brokers(
    cluster: Cluster,
) -> None:
    leader, other = await Process(cluster, 1).start(), await Process(cluster, 2).start()
    await elected(cluster, leader, other, epoch=5)
    previous = (await leader.broker.producer_ids.handle("ship")).producer_id
    assert (await put(leader, sent_by(previous, 0))).appended is not None
    leader.store.disconnect()
    assert (await other.broker.producer_ids.handle("ship")) == GivenProducer(previous, 1)
    # The leader has not learned of the next holder, which has sent it nothing.
    assert (await put(leader, sent_by(previous, 1))).appended is not None
    leader.store.reconnect()
    await until(lambda: leader.broker.cache.producer_epochs == {previous: 1})
    assert code_of(await put(leader, sent_by(previous, 2))) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert (await put(leader, sent_by(previous, 2, epoch=1))).appended is not None


async def test_a_silent_unnamed_producer_expires_and_a_named_one_does_not(cluster: Cluster) -> None:
    cluster.producer_id_expiration_ms = 29_000
    leader = await Process(cluster, 1).start()
    await elected(cluster, leader, epoch=5)
    named = (await leader.broker.producer_ids.handle("ship")).producer_id
    for producer in (7, named):
        assert (await put(leader, sent_by(producer, 0))).appended is not None
    await asyncio.sleep(29 + LONGEST_DELIVERY_MS / 1000)
    assert [p.producer_id for p in described(leader)] == [7, named]
    await asyncio.sleep(32)
    assert [p.producer_id for p in described(leader)] == [named]
    assert code_of(await put(leader, sent_by(7, 1))) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert (await put(leader, sent_by(named, 1))).appended is not None


@pytest.mark.rule("unused-producer-name-expires")
async def test_a_used_name_is_kept_and_an_unused_one_expires(
    cluster: Cluster,
) -> None:
    cluster.producer_name_expiration_ms = 800_000
    leader, other = await Process(cluster, 1).start(), await Process(cluster, 2).start()
    await elected(cluster, leader, other, epoch=5)
    writing, silent, taken = [
        (await leader.broker.producer_ids.handle(name)).producer_id
        for name in ("writing", "silent", "taken")
    ]
    for producer in (writing, silent, taken):
        assert (await put(leader, sent_by(producer, 0))).appended is not None
    for number in range(1, 19):
        await asyncio.sleep(100)
        assert (await put(leader, sent_by(writing, number))).appended is not None
        assert (await other.broker.producer_ids.handle("taken")) == GivenProducer(taken, number)
    for process in (leader, other):
        assert set(process.broker.cache.producer_names) == {"writing", "taken"}
    assert [p.producer_id for p in described(leader)] == sorted((writing, taken))
    # The next client that takes the name is a new holder.
    assert (await other.broker.producer_ids.handle("silent")).producer_id not in (
        writing,
        silent,
        taken,
    )


def described(process: Process) -> list[CommittedProducer]:
    assert process.partition.leader_epoch != NO_EPOCH
    return process.partition.committed_producers(())
