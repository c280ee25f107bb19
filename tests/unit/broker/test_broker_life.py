"""Complete brokers: start, replication between them, and stop."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from doubles.memory_data import MemoryData
from tidelog.state_changes.event import Cause, Kind, Stage, broker_stopping
from tidelog_broker.storage.data_directory import DataDirectoryError
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    STOPPING,
    ClusterEntry,
    Member,
    decode_leader_and_isr,
    encode,
)
from tidelog_runtime.metadata.store import StoreRolledBackError
from unit.broker.broker_parts import KEYS, emitted_events, until, until_idle
from unit.broker.broker_processes import Cluster, Process, leading_alone, pair
from unit.broker.fake_log import NAME
from unit.metadata.virtual_time import virtual_clock


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


# -- replication ---------------------------------------------------------------------------


async def test_a_produce_is_done_when_the_follower_has_it(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    outcome = await leader.produce()
    assert outcome.appended is not None
    assert follower.partition.log.log_end_offset == 1
    for process in (leader, follower):
        await process.stop()


async def test_a_synced_topic_is_on_both_disks_before_the_answer(cluster: Cluster) -> None:
    cluster.topic_config = {"durability": "synced"}
    leader, follower = await pair(cluster)
    for count in range(1, 4):
        outcome = await leader.produce()
        assert outcome.appended is not None
        assert leader.partition.log.flushed_offset == count
        assert follower.partition.log.flushed_offset == count
    for process in (leader, follower):
        await process.stop()


@pytest.mark.rule("failed-follower-rejoins-isr")
async def test_a_follower_that_dies_leaves_the_isr_and_produces_continue(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await follower.stop()
    outcome = await leader.produce(timeout_ms=5000)
    assert outcome.appended is not None
    assert cluster.isr() == {1}
    await leader.stop()


@pytest.mark.rule("failed-follower-rejoins-isr")
async def test_a_follower_that_comes_back_joins_in_its_new_incarnation(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    await follower.stop()
    await leader.produce(timeout_ms=5000)
    again = await Process(cluster, 2).start()
    assert leader.partition.state is not None
    await cluster.command(again, leader.partition.state, leader.partition.revision)
    await until(lambda: cluster.isr() == {1, 2})
    assert again.partition.log.log_end_offset == 1
    assert leader.partition.state.isr[1] == Member(2, again.epoch)
    for process in (leader, again):
        await process.stop()


@pytest.mark.rule("data-flows-without-the-store")
async def test_without_a_store_data_still_flows(cluster: Cluster) -> None:
    leader, follower = await pair(cluster)
    leader.store.disconnect()
    follower.store.disconnect()
    await asyncio.sleep(30)
    outcome = await leader.produce()
    assert outcome.appended is not None
    for process in (leader, follower):
        process.store.reconnect()
        await process.stop()


async def test_without_a_store_a_dead_follower_holds_back_the_high_watermark(
    cluster: Cluster,
) -> None:
    """Its removal may not have reached the store. Without the removal nothing counts as
    committed.
    """
    leader, follower = await pair(cluster)
    leader.store.disconnect()
    await follower.stop()
    outcome = await leader.produce(timeout_ms=5000)
    assert outcome.error is not None
    assert outcome.error.outcome_unknown
    assert leader.partition.high_watermark == 0
    leader.store.reconnect()
    await until(lambda: leader.partition.high_watermark == 1)
    assert cluster.isr() == {1}
    await leader.stop()


# -- the start -----------------------------------------------------------------------------


async def test_a_store_that_is_away_at_the_start_is_awaited_and_logged_once(
    cluster: Cluster,
) -> None:
    process = Process(cluster, 1)
    process.store.disconnect()
    starting = asyncio.create_task(process.start())
    await asyncio.sleep(10)
    process.store.reconnect()
    await starting
    said = emitted_events(process.broker.state_changes, Kind.STORE_LOST, Kind.STORE_BACK)
    assert [change.kind for change in said] == [Kind.STORE_LOST, Kind.STORE_BACK]
    await process.stop()


async def test_the_data_of_another_cluster_is_rejected(cluster: Cluster, tmp_path: Path) -> None:
    process = await Process(cluster, 1).start()
    await process.stop()
    other = Cluster(tmp_path)
    other.put(KEYS.cluster, encode(ClusterEntry("the-other-cluster")))
    process = Process(other, 1)
    with pytest.raises(DataDirectoryError, match="that of cluster the-other-cluster"):
        await process.start()
    await process.stop()


@pytest.mark.rule("other-or-older-store-rejected")
async def test_a_broker_that_knows_its_cluster_creates_no_other_in_a_wiped_store(
    cluster: Cluster,
) -> None:
    """The next controller would create one, and the loss of the store would stay hidden."""
    process = await Process(cluster, 1).start()
    await process.stop()
    cluster.data.wipe()
    process = Process(cluster, 1)
    with pytest.raises(DataDirectoryError, match=r"holds no cluster.*was wiped.*newest backup"):
        await process.broker.prepare()
    await process.stop()
    assert not cluster.data.snapshot("/").items
    assert cluster.data.revision == MemoryData().revision


async def test_a_store_that_has_fallen_back_is_rejected(cluster: Cluster) -> None:
    process = await Process(cluster, 1).start()
    cluster_key = cluster.data.get(KEYS.cluster)
    assert cluster_key is not None
    await process.stop()
    cluster.data.wipe()
    cluster.put(KEYS.cluster, cluster_key.value)
    for _ in range(2):
        process = Process(cluster, 1)
        with pytest.raises(DataDirectoryError, match="restored from an old backup"):
            await process.start()
        assert cluster.data.get(KEYS.broker(1)) is None
        await process.stop()


@pytest.mark.rule("other-or-older-store-rejected")
async def test_a_store_older_than_the_revisions_in_commands_is_rejected(
    cluster: Cluster,
) -> None:
    """Rule `other-or-older-store-rejected`: the controller has seen revisions that the store of
    this broker lacks."""
    process = await Process(cluster, 1).start()
    wanted, revision = cluster.elect(process)
    await cluster.command(process, wanted, revision + 1)
    with pytest.raises(StoreRolledBackError):
        await process.store.get(KEYS.cluster)
    await process.stop()
    process = Process(cluster, 1)
    with pytest.raises(DataDirectoryError, match="restored from an old backup"):
        await process.start()
    await process.stop()


async def test_a_clean_stop_is_reported_at_the_next_registration(cluster: Cluster) -> None:
    process = await Process(cluster, 1).start()
    first = process.epoch
    await process.stop()
    again = await Process(cluster, 1, boot_id="boot 2").start()
    assert again.registration.whole_since == first
    await again.stop()


async def test_only_a_replica_found_damaged_at_the_start_resigns(
    cluster: Cluster,
) -> None:
    process = await leading_alone(cluster)
    first = process.epoch
    await process.produce()
    await process.produce()
    await process.stop()
    (segment,) = cluster.path.glob("1/replicas/*/*.log")
    (cluster.path / "1" / "clean-logs").unlink()
    (recovery_points,) = cluster.path.glob("1/recovery-points")
    recovery_points.unlink()
    data = bytearray(segment.read_bytes())
    data[10] ^= 1
    segment.write_bytes(data)
    again = await Process(cluster, 1).start()
    item = cluster.data.get(KEYS.leader_and_isr(NAME))
    assert item is not None
    assert decode_leader_and_isr(item.value).isr == (Member(1, NOT_WHOLE),)
    assert item.mod_revision < again.epoch
    assert (again.registration.whole_since, again.registration.synced_whole_since) == (first, first)
    await again.stop()


# -- the end -------------------------------------------------------------------------------


async def test_a_stop_ends_the_registration_and_leaves_no_task_behind(cluster: Cluster) -> None:
    before = asyncio.all_tasks()
    leader, follower = await pair(cluster)
    await leader.stop()
    await follower.stop()
    assert cluster.data.get(KEYS.broker(1)) is None
    assert asyncio.all_tasks() == before


async def test_a_stop_without_a_store_is_still_clean(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    await process.produce()
    process.store.disconnect()
    with capture_logs() as lines:
        await process.stop()
    assert "lease_left_to_expire" in [line["event"] for line in lines]
    assert process.data_directory.identity.stopped_cleanly


@pytest.mark.rule("controlled-shutdown-leaves-every-isr")
async def test_a_broker_that_transfers_leadership_is_stopping_until_it_is_in_no_isr(
    cluster: Cluster,
) -> None:
    cluster.with_controller()
    leader, follower = await pair(cluster)
    handing_over = asyncio.create_task(leader.broker.hand_over())
    await until(lambda: leader.registration.state == STOPPING)
    assert not handing_over.done()
    wanted, revision = cluster.elect(follower, leader, epoch=6)
    await cluster.command(leader, wanted, revision)
    await until(lambda: leader.broker.cache.revision >= revision)
    await until_idle()
    assert not handing_over.done()
    assert leader.follows()
    wanted, revision = cluster.elect(follower, epoch=6)
    await asyncio.wait_for(handing_over, 1)
    await cluster.command(leader, wanted, revision)
    assert not leader.follows()
    for process in (leader, follower):
        await process.stop()


async def test_a_leadership_transfer_without_a_decision_times_out(cluster: Cluster) -> None:
    cluster.with_controller()
    leader, follower = await pair(cluster)
    began = virtual_clock().time()
    await leader.broker.hand_over()
    assert 4.9 < virtual_clock().time() - began < 5.1
    asked, given_up = emitted_events(leader.broker.state_changes, Kind.BROKER_STOPPING)
    assert asked.stage is Stage.REQUESTED
    assert (given_up.stage, given_up.cause) == (Stage.FAILED, Cause.TIMEOUT)
    assert given_up.details["awaited"] == 1
    assert asked.change_id == given_up.change_id == broker_stopping(1, leader.epoch).id
    assert given_up.duration_ms == 5000
    for process in (leader, follower):
        await process.stop()


async def test_without_another_eligible_leader_a_stop_waits_for_nothing(cluster: Cluster) -> None:
    cluster.with_controller()
    process = await leading_alone(cluster)
    await asyncio.wait_for(process.broker.hand_over(), 1)
    assert process.registration.state == STOPPING
    await process.stop()


async def test_a_leadership_transfer_ends_when_the_last_candidate_is_stopping_too(
    cluster: Cluster,
) -> None:
    cluster.with_controller()
    leader, follower = await pair(cluster)
    handing_over = asyncio.create_task(leader.broker.hand_over())
    await until(lambda: leader.registration.state == STOPPING)
    following = asyncio.create_task(follower.broker.hand_over())
    await asyncio.wait_for(handing_over, 1)
    await leader.stop()
    await asyncio.wait_for(following, 1)
    await follower.stop()


async def test_without_a_controller_leadership_is_not_transferred(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    began = virtual_clock().time()
    await process.broker.hand_over()
    assert virtual_clock().time() == began
    await process.stop()


async def test_without_a_store_a_leadership_transfer_is_given_up(cluster: Cluster) -> None:
    cluster.with_controller()
    process = await leading_alone(cluster)
    process.store.disconnect()
    await process.broker.hand_over()
    (*_, given_up) = emitted_events(process.broker.state_changes, Kind.BROKER_STOPPING)
    assert (given_up.stage, given_up.cause) == (Stage.FAILED, Cause.STORE_UNREACHABLE)
    await process.stop()


# -- stops that are not clean --------------------------------------------------------------


async def test_an_aborted_start_does_not_claim_a_clean_stop(cluster: Cluster) -> None:
    """It never checked the logs: what a crash left only in memory may still be lost."""
    process = await Process(cluster, 1).start()
    crashed = process.data_directory.identity
    assert crashed.whole_since > 0
    waiting = Process(cluster, 1)
    waiting.store.disconnect()
    preparing = asyncio.create_task(waiting.broker.prepare())
    await asyncio.sleep(1)
    preparing.cancel()
    await asyncio.wait([preparing])
    await waiting.stop()
    after_a_reboot = Process(cluster, 1, boot_id="boot 2")
    assert after_a_reboot.data_directory.identity.whole_since == 0
    await after_a_reboot.stop()
    await process.stop()


async def test_an_aborted_start_keeps_the_high_watermarks(cluster: Cluster) -> None:
    process = await leading_alone(cluster)
    await process.produce()
    await process.stop()
    for prepared in (False, True):
        broken_off = Process(cluster, 1)
        if prepared:
            await broken_off.broker.prepare()
        await broken_off.stop()
    again = await Process(cluster, 1).start()
    await cluster.command(again, *cluster.elect(again, epoch=6))
    assert again.partition.high_watermark == 1
    await again.stop()


async def test_a_log_that_could_not_be_closed_makes_the_stop_unclean(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await leading_alone(cluster)
    await process.produce()

    def reject(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fdatasync", reject)
    with capture_logs() as lines:
        await process.stop()
    (line,) = [line for line in lines if line["event"] == "stopped_uncleanly"]
    assert line["first"].startswith("orders/0: ")
    assert not process.data_directory.identity.stopped_cleanly
