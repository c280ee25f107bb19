"""How a broker executes the controller's commands."""

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import PurePath

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.replicas.replica_commands import COST_PER_TURN, CREATION_COST
from tidelog_runtime.replica_control import (
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    StopReplicaCommand,
)
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.broker_parts import (
    KEY,
    Replicas,
    append,
    command,
    commit,
    on,
    revision_of,
    stop_command,
)
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, state
from unit.broker.stored_logs import checkpoint
from unit.loop_turns import Turns

OTHER_ID = "other-id-other-id-othe"


def rejection(result: CommandResult) -> ErrorCode:
    assert result.error is not None
    assert result.partitions == ()
    return result.error.code


def failure(result: CommandResult) -> ErrorCode:
    (only,) = result.partitions
    assert only.error is not None
    return only.error.code


def names_in(path: PurePath, directory: str) -> list[str]:
    return sorted(OsDisk().list_names(path / directory))


# -- fencing -----------------------------------------------------------------------------


@pytest.mark.rule("commands-fenced-by-epochs")
async def test_an_older_controller_epoch_is_rejected() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), controller_epoch=3))
    older = command(state(leader=2, epoch=6), 20, controller_epoch=2)
    assert rejection(await replicas.commands.leader_and_isr(older)) is (
        ErrorCode.STALE_CONTROLLER_EPOCH
    )
    stop = stop_command(20, controller_epoch=2)
    assert rejection(await replicas.commands.stop_replica(stop)) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert replicas.manager.partition(NAME).leading


@pytest.mark.rule("commands-fenced-by-epochs")
async def test_an_older_broker_epoch_is_rejected() -> None:
    """The command was meant for this broker's previous incarnation (KIP-380)."""
    replicas = Replicas()
    previous = command(state(), broker_epoch=epoch_of(1) - 1)
    assert (
        rejection(await replicas.commands.leader_and_isr(previous)) is ErrorCode.STALE_BROKER_EPOCH
    )
    stop = stop_command(20, broker_epoch=epoch_of(1) - 1)
    assert rejection(await replicas.commands.stop_replica(stop)) is ErrorCode.STALE_BROKER_EPOCH
    assert list(replicas.manager.all()) == []


@pytest.mark.rule("commands-fenced-by-epochs")
async def test_a_newer_broker_epoch_is_accepted() -> None:
    """The controller may know of a registration before the broker does (KAFKA-9839)."""
    replicas = Replicas()
    replicas.manager.broker_epoch = epoch_of(1) - 1
    assert revision_of(await replicas.commands.leader_and_isr(command(state()))) == 10
    assert replicas.manager.broker_epoch == epoch_of(1)
    assert replicas.manager.partition(NAME).leading


@pytest.mark.rule("starting-broker-receives-its-replicas")
async def test_before_it_knows_its_predecessors_a_broker_takes_no_command() -> None:
    """A command for its predecessor would make it lead that incarnation's epoch a second time."""
    replicas = Replicas()
    replicas.manager.broker_epoch = 0
    assert rejection(await replicas.commands.leader_and_isr(command(state()))) is (
        ErrorCode.STALE_BROKER_EPOCH
    )
    assert list(replicas.manager.all()) == []


async def test_a_decision_about_a_previous_incarnation_makes_no_replica_lead() -> None:
    replicas = Replicas()
    newer_life = command(state(), broker_epoch=epoch_of(1) + 50)
    assert revision_of(await replicas.commands.leader_and_isr(newer_life)) == 10
    assert [p.leading for p in replicas.manager.all()] == [None]


async def test_accepted_commands_advance_the_known_store_revision() -> None:
    replicas = Replicas()
    revisions: list[int] = []
    replicas.commands._on_store_revision = revisions.append
    epoch = epoch_of(1)
    await replicas.commands.leader_and_isr(command(state(), epoch + 1, store_revision=epoch))
    nothing = command(state(), numbers=(), full_state=True, store_revision=epoch + 2)
    await replicas.commands.leader_and_isr(nothing)
    await replicas.commands.stop_replica(stop_command(epoch + 3))
    await replicas.commands.describe_replicas(DescribeReplicasCommand(1, 1, epoch + 4, []))
    previous = command(state(), epoch + 5, broker_epoch=epoch)
    assert (
        rejection(await replicas.commands.leader_and_isr(previous)) is ErrorCode.STALE_BROKER_EPOCH
    )
    assert revisions == [epoch + 1, epoch + 2, epoch + 3, epoch + 4]


# -- order by revision -------------------------------------------------------------------


async def test_a_command_that_is_not_newer_is_acknowledged_and_has_no_effect() -> None:
    replicas = Replicas()
    await replicas.lead()
    late = command(state(leader=2, epoch=4), 9)
    assert revision_of(await replicas.commands.leader_and_isr(late)) == 10
    assert replicas.manager.partition(NAME).leading
    assert len(replicas.followers.updated) == 1


async def test_a_repeated_command_is_acknowledged_with_the_taken_state() -> None:
    replicas = Replicas()
    await replicas.lead()
    assert revision_of(await replicas.commands.leader_and_isr(command(state()))) == 10


@pytest.mark.rule("decision-recorded-after-transition", "incomplete-transfer-is-repeated")
async def test_a_failed_transition_is_not_recorded_so_that_its_repeat_counts() -> None:
    """KAFKA-9307."""
    replicas = Replicas()
    replicas.memory.space = 0
    assert failure(await replicas.commands.leader_and_isr(command(state()))) is (
        ErrorCode.STORAGE_ERROR
    )
    replicas.memory.space = None
    assert revision_of(await replicas.commands.leader_and_isr(command(state()))) == 10
    assert replicas.manager.partition(NAME).leading


async def test_a_replica_that_cannot_be_created_is_known_until_it_exists_or_is_unassigned() -> None:
    replicas = Replicas()
    disk = replicas.manager.disk
    replicas.memory.space = 0
    await replicas.commands.leader_and_isr(command(state()))
    [(key, unopened)] = disk.unopened().items()
    assert (key, unopened.name, unopened.cause) == (KEY, NAME, Cause.DISK_FULL)
    assert os.strerror(errno.ENOSPC) in unopened.message
    replicas.memory.space = None
    await replicas.commands.leader_and_isr(command(state()))
    assert disk.unopened() == {}
    for gone in (stop_command(30), command(state(), 30, numbers=(), full_state=True)):
        replicas = Replicas()
        replicas.manager.has_full_state.set()
        replicas.memory.space = 0
        await replicas.commands.leader_and_isr(command(state()))
        assert replicas.manager.disk.unopened()
        if isinstance(gone, StopReplicaCommand):
            await replicas.commands.stop_replica(gone)
        else:
            await replicas.commands.leader_and_isr(gone)
        assert replicas.manager.disk.unopened() == {}


@pytest.mark.rule("decision-recorded-after-transition")
async def test_one_partition_that_fails_does_not_hold_up_the_others() -> None:
    replicas = Replicas()
    good = command(state(), numbers=[1])
    bad = command(state(), config={"no_such_key": "1"})
    both = replace(good, partitions=[*bad.partitions, *good.partitions])
    result = await replicas.commands.leader_and_isr(both)
    assert [r.error and r.error.code for r in result.partitions] == [ErrorCode.INVALID_CONFIG, None]
    assert replicas.manager.partition(on(1)).leading


async def test_the_taken_part_of_a_command_cancelled_half_way_is_followed() -> None:
    """Its repeat changes nothing for the replicas that took it."""
    replicas = Replicas()
    many = 2 * COST_PER_TURN
    wanted = command(state(leader=2), numbers=range(many))
    taking = asyncio.create_task(replicas.commands.leader_and_isr(wanted))
    while not replicas.manager.all():  # noqa: ASYNC110 - it counts turns
        await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    taken = list(replicas.manager.all())
    assert 0 < len(taken) < many
    assert replicas.followers.updated == taken
    await replicas.commands.leader_and_isr(wanted)
    assert len(replicas.followers.updated) == many


async def test_creating_replicas_yields_by_cost() -> None:
    replicas = Replicas()
    async with Turns() as turns:
        await replicas.commands.leader_and_isr(command(state(), numbers=range(COST_PER_TURN)))
        assert turns.taken() >= CREATION_COST


async def test_commands_are_taken_one_at_a_time() -> None:
    replicas = Replicas()
    many = 2 * COST_PER_TURN
    first = replicas.commands.leader_and_isr(command(state(), 10, numbers=range(many)))
    second = replicas.commands.leader_and_isr(
        command(state(leader=2, epoch=6), 11, numbers=range(many))
    )
    await asyncio.gather(first, second)
    assert [p.leader_epoch for p in replicas.followers.updated] == [6] * 2 * many
    assert [p.leader_to_follow for p in replicas.manager.all()] == [2] * many


# -- a topic that was created again ------------------------------------------------------


@pytest.mark.rule("recreated-topic-is-another-topic")
async def test_another_topic_under_the_same_name_sets_the_old_replica_aside(
    tmp_path: PurePath,
) -> None:
    replicas = Replicas(OsDisk(), tmp_path)
    append(await replicas.lead())
    await asyncio.sleep(7)
    (new,) = await replicas.take(replace(state(epoch=0), topic_id=OTHER_ID), revision=20)
    assert (new.topic_id, new.log.log_end_offset) == (OTHER_ID, 0)
    assert names_in(tmp_path, "replicas") == [f"orders-0.{OTHER_ID}"]
    assert names_in(tmp_path, "strays") == [f"orders-0.{TOPIC_ID}@7000"]


@pytest.mark.rule("topic-ids-separate-recreated-topics")
async def test_the_previous_topic_does_not_come_back_by_a_late_command() -> None:
    replicas = Replicas()
    await replicas.take(replace(state(), topic_id=OTHER_ID), revision=20)
    assert revision_of(await replicas.commands.leader_and_isr(command(state(), 10))) == 10
    assert [p.topic_id for p in replicas.manager.all()] == [OTHER_ID]


# -- stopping ----------------------------------------------------------------------------


@pytest.mark.rule("stop-replica-deletes-the-replica")
async def test_a_stop_deletes_the_replica() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    assert revision_of(await replicas.commands.stop_replica(stop_command(11))) == 11
    assert list(replicas.manager.all()) == []
    assert list(replicas.logs.keys()) == []
    assert replicas.followers.forgotten == [partition]
    assert partition.leading is None


@pytest.mark.rule("stop-names-topic-and-revision")
async def test_a_stop_of_an_older_decision_is_acknowledged_and_has_no_effect() -> None:
    """Rule `decisions-ordered-by-revision`: moved away and back within one epoch."""
    replicas = Replicas()
    await replicas.lead()
    assert revision_of(await replicas.commands.stop_replica(stop_command(10))) == 10
    assert replicas.manager.partition(NAME).leading


@pytest.mark.rule("stop-names-topic-and-revision")
async def test_a_stop_of_another_topic_under_the_same_name_has_no_effect() -> None:
    """KIP-570."""
    replicas = Replicas()
    await replicas.lead()
    replicas.manager.has_full_state.set()
    result = await replicas.commands.stop_replica(stop_command(20, topic_id=OTHER_ID))
    assert revision_of(result) == 20
    assert replicas.manager.partition(NAME).leading


async def test_a_stop_of_a_missing_replica_succeeds() -> None:
    replicas = Replicas()
    replicas.manager.has_full_state.set()
    assert revision_of(await replicas.commands.stop_replica(stop_command(20))) == 20


async def test_nothing_is_stopped_before_the_full_state_is_known() -> None:
    """A late stop would delete a replica that was assigned again since."""
    replicas = Replicas()
    replicas.logs.open_replica(NAME, KEY, TopicConfig())
    assert failure(await replicas.commands.stop_replica(stop_command(20))) is (
        ErrorCode.INVALID_REQUEST
    )
    assert list(replicas.logs.keys()) == [KEY]


async def test_a_stop_without_delete_sets_the_replica_aside(tmp_path: PurePath) -> None:
    replicas = Replicas(OsDisk(), tmp_path)
    await replicas.lead()
    await asyncio.sleep(7)
    await replicas.commands.stop_replica(stop_command(11, delete=False))
    assert names_in(tmp_path, "strays") == [f"orders-0.{TOPIC_ID}@7000"]


# -- the full state ----------------------------------------------------------------------


@pytest.mark.rule("commands-repeated-until-acknowledged", "full-state-sets-strays-aside")
async def test_a_full_state_sets_strays_aside_and_keeps_named_replicas(tmp_path: PurePath) -> None:
    replicas = Replicas(OsDisk(), tmp_path)
    await replicas.take(numbers=(0, 1))
    await asyncio.sleep(7)
    result = await replicas.commands.leader_and_isr(
        command(state(), 20, numbers=[1], full_state=True)
    )
    assert revision_of(result) == 20
    assert [p.name for p in replicas.manager.all()] == [on(1)]
    assert names_in(tmp_path, "replicas") == [f"orders-1.{TOPIC_ID}"]
    assert names_in(tmp_path, "strays") == [f"orders-0.{TOPIC_ID}@7000"]
    assert replicas.manager.has_full_state.is_set()


@pytest.mark.rule("starting-broker-receives-its-replicas")
async def test_logs_on_disk_that_no_command_names_are_strays(tmp_path: PurePath) -> None:
    previous = Replicas(OsDisk(), tmp_path)
    await previous.take(numbers=(0, 1))
    previous.logs.close()
    replicas = Replicas(OsDisk(), tmp_path)
    assert set(replicas.logs.keys()) == {ReplicaKey(TOPIC_ID, 0), ReplicaKey(TOPIC_ID, 1)}
    await replicas.commands.leader_and_isr(command(state(), numbers=[0], full_state=True))
    assert names_in(tmp_path, "replicas") == [f"orders-0.{TOPIC_ID}"]


async def test_replicas_of_a_topic_that_the_controller_cannot_read_stay(tmp_path: PurePath) -> None:
    previous = Replicas(OsDisk(), tmp_path)
    await previous.take()
    previous.logs.close()
    replicas = Replicas(OsDisk(), tmp_path)
    await replicas.lead(1)
    unreadable = command(state(), 20, numbers=[], full_state=True, unreadable_topics=["orders"])
    await replicas.commands.leader_and_isr(unreadable)
    assert replicas.manager.partition(on(1)).leading
    assert names_in(tmp_path, "replicas") == [f"orders-{p}.{TOPIC_ID}" for p in (0, 1)]
    await replicas.commands.leader_and_isr(command(state(), 30, numbers=[1], full_state=True))
    assert names_in(tmp_path, "replicas") == [f"orders-1.{TOPIC_ID}"]


async def test_a_full_state_that_is_older_than_a_replica_does_not_make_it_a_stray() -> None:
    replicas = Replicas()
    await replicas.take(revision=30)
    await replicas.commands.leader_and_isr(
        command(state(), numbers=[], full_state=True, store_revision=29)
    )
    assert replicas.manager.partition(NAME).leading


async def test_a_stray_that_cannot_be_moved_does_not_keep_the_others_from_serving() -> None:
    replicas = Replicas()
    await replicas.take(numbers=(0, 1))

    def reject(*_: PurePath) -> None:
        raise PermissionError(13, "Permission denied")

    replicas.memory.rename = reject  # type: ignore[method-assign,assignment]
    result = await replicas.commands.leader_and_isr(
        command(state(), 20, numbers=[1], full_state=True)
    )
    assert revision_of(result) == 20
    assert replicas.manager.has_full_state.is_set()


@pytest.mark.rule("full-state-sets-strays-aside")
async def test_a_command_that_is_not_the_full_state_makes_no_strays() -> None:
    replicas = Replicas()
    await replicas.take(numbers=(0, 1))
    await replicas.take(revision=20, numbers=[1])
    assert len(list(replicas.manager.all())) == 2
    assert not replicas.manager.has_full_state.is_set()


# -- roles and state kept over a restart -------------------------------------------------


async def test_followed_partitions_are_passed_to_the_fetchers() -> None:
    replicas = Replicas()
    (partition,) = await replicas.take(state(leader=2))
    assert replicas.followers.updated == [partition]
    assert partition.leader_to_follow == 2


async def test_a_partition_without_a_leader_follows_no_broker() -> None:
    replicas = Replicas()
    (partition,) = await replicas.take(state(leader=NO_LEADER))
    assert partition.leader_to_follow == NO_LEADER


async def test_a_replica_comes_back_with_its_log_and_its_high_watermark(tmp_path: PurePath) -> None:
    previous = Replicas(OsDisk(), tmp_path)
    partition = await previous.lead()
    commit(partition, b"a", b"b")
    append(partition)
    checkpoint(previous.logs, {KEY: partition.high_watermark})
    previous.logs.close()
    replicas = Replicas(OsDisk(), tmp_path)
    (again,) = await replicas.take(state(epoch=6), revision=20)
    assert (again.log.log_end_offset, again.high_watermark) == (3, 2)


async def test_the_newest_known_address_of_a_leader_is_used() -> None:
    replicas = Replicas()
    await replicas.take(state(leader=2))
    assert replicas.manager.address_of(2) == ("10.0.0.2:7500", epoch_of(2))
    assert replicas.manager.address_of(9) is None


# -- describing logs ----------------------------------------------------------------------


def describe(*keys: tuple[str, int], controller_epoch: int = 1) -> DescribeReplicasCommand:
    return DescribeReplicasCommand(1, controller_epoch, epoch_of(1), keys)


async def test_a_log_is_described_by_its_epochs_and_its_ends() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    append(partition, b"a", b"b")
    await replicas.take(state(leader=1, epoch=7), revision=12)
    append(partition, b"c")
    await replicas.take(state(leader=NO_LEADER, epoch=8), revision=14)
    result = await replicas.commands.describe_replicas(describe(KEY))
    (summary,) = result.replicas
    assert summary[:3] == (TOPIC_ID, 0, 14)
    assert summary[3:7] == (0, 3, ((5, 0), (7, 2)), None)


async def test_a_description_has_the_committed_end_and_the_size() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    append(partition, b"a", b"b")
    (summary,) = (await replicas.commands.describe_replicas(describe(KEY))).replicas
    assert summary.high_watermark == partition.high_watermark
    assert summary.size_bytes == partition.log.bytes_from(0) > 0


async def test_a_missing_replica_is_left_out_of_a_description() -> None:
    replicas = Replicas()
    await replicas.lead()
    asked = describe((OTHER_ID, 0), (TOPIC_ID, 1))
    assert await replicas.commands.describe_replicas(asked) == DescribeReplicasResult(replicas=[])


async def test_a_deposed_controller_gets_no_description() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), controller_epoch=3))
    result = await replicas.commands.describe_replicas(describe(KEY, controller_epoch=2))
    assert result.error is not None
    assert (result.error.code, result.replicas) == (ErrorCode.STALE_CONTROLLER_EPOCH, ())


async def test_an_older_command_does_not_restore_the_topics_previous_config() -> None:
    replicas = Replicas()
    (partition,) = await replicas.take(revision=10, config={"durability": "synced"})
    await replicas.commands.leader_and_isr(command(state(), 9, config={"durability": "replicated"}))
    assert partition.synced


async def test_a_repeated_command_has_the_topics_current_config() -> None:
    replicas = Replicas()
    (partition,) = await replicas.take(revision=10)
    await replicas.take(revision=10, config={"durability": "synced"})
    assert partition.synced
