"""Events about the controller's commands."""

import asyncio
from dataclasses import replace

import pytest

from tidelog.state_changes.event import (
    UNKNOWN_DURATION,
    Cause,
    Change,
    Kind,
    Stage,
    StateChange,
    set_aside,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr
from unit.broker.broker_parts import Replicas, command, stages, stop_command
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, state

ELECTION = Change("c1-7", Cause.BROKER_CRASHED, requested_at_ms=1)
OTHER_ID = "other-id-other-id-othe"


def elected(leader: int = 1, epoch: int = 5) -> LeaderAndIsr:
    return replace(state(leader, epoch), change=ELECTION)


async def holding(revision: int = 10) -> Replicas:
    """Broker 1 leads, and the events of that are already taken."""
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(state(), revision, full_state=True))
    replicas.state_changes._ring.clear()
    return replicas


def only(changes: list[StateChange]) -> StateChange:
    (change,) = changes
    return change


async def test_a_new_command_is_received_and_completed() -> None:
    replicas = await holding()
    await replicas.take(elected(epoch=6), revision=20)
    assert stages(replicas.events()) == ["become_leader received", "become_leader completed"]


async def test_all_stages_have_the_id_and_the_cause_of_the_decision() -> None:
    replicas = await holding()
    await replicas.take(elected(leader=2, epoch=6), revision=20)
    for event in replicas.events(Kind.BECOME_FOLLOWER):
        assert (event.change_id, event.cause) == ("c1-7", Cause.BROKER_CRASHED)
        assert (event.name, event.topic_id, event.broker) == (NAME, TOPIC_ID, 1)
        assert (event.controller_epoch, event.leader_epoch, event.revision) == (1, 6, 20)


async def test_the_duration_counts_from_the_decision() -> None:
    replicas = await holding()
    decided = ELECTION._replace(requested_at_ms=replicas.clock.wall_ms() + 970)
    await asyncio.sleep(1)
    await replicas.take(replace(state(epoch=6), change=decided), revision=20)
    assert {event.duration_ms for event in replicas.events()} == {30}


async def test_a_new_replica_is_created_before_it_takes_its_role() -> None:
    replicas = Replicas()
    await replicas.take(elected(leader=2))
    assert stages(replicas.events()) == [
        "become_follower received",
        "create completed",
        "become_follower completed",
    ]


async def test_a_repeated_command_emits_no_event() -> None:
    replicas = await holding(revision=10)
    await replicas.take(state(), revision=10)
    assert replicas.events() == []


async def test_an_older_command_is_ignored() -> None:
    replicas = await holding(revision=10)
    await replicas.commands.leader_and_isr(command(elected(leader=2), 9))
    event = only(replicas.events())
    assert (event.stage, event.cause) == (Stage.IGNORED, Cause.STALE_REVISION)
    assert event.details == {"known_revision": 10}


async def test_a_command_of_the_previous_topic_of_that_name_is_ignored() -> None:
    replicas = await holding(revision=10)
    await replicas.commands.leader_and_isr(command(replace(state(), topic_id=OTHER_ID), 9))
    event = only(replicas.events())
    assert (event.stage, event.cause) == (Stage.IGNORED, Cause.OTHER_TOPIC_ID)


async def test_a_decision_for_a_previous_incarnation_is_taken_and_ignored() -> None:
    replicas = Replicas()
    replicas.manager.broker_epoch = epoch_of(1) + 1
    await replicas.commands.leader_and_isr(command(elected(), broker_epoch=epoch_of(1) + 1))
    event = replicas.events(Kind.BECOME_LEADER)[-1]
    assert (event.stage, event.cause) == (Stage.IGNORED, Cause.STALE_BROKER_EPOCH)


@pytest.mark.parametrize(
    ("lives", "cause"),
    [
        ({"controller_epoch": 0}, Cause.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": epoch_of(1) - 1}, Cause.STALE_BROKER_EPOCH),
    ],
)
async def test_a_command_rejected_as_a_whole_emits_one_event(
    lives: dict[str, int], cause: Cause
) -> None:
    replicas = await holding()
    for _ in range(3):
        await replicas.commands.leader_and_isr(command(elected(), 20, **lives))  # type: ignore[arg-type]
    event = only(replicas.events())
    assert (event.kind, event.stage, event.cause) == (Kind.COMMAND, Stage.IGNORED, cause)
    assert event.details == {"command": "leader_and_isr", "controller": 1, "partitions": 1}


async def test_a_failure_emits_one_event_until_it_is_over() -> None:
    replicas = Replicas()
    replicas.memory.space = 0
    for _ in range(3):
        await replicas.commands.leader_and_isr(command(elected()))
    failed = replicas.events(Kind.BECOME_LEADER)
    assert stages(failed) == ["become_leader received", "become_leader failed"]
    assert failed[-1].cause is Cause.DISK_FULL


async def test_a_full_state_is_reported_as_one_command() -> None:
    replicas = Replicas()
    sent = command(elected(), full_state=True, store_revision=30)
    full = Change("c1-full-1-2", Cause.NEW_CONTROLLER, 1)
    await replicas.commands.leader_and_isr(replace(sent, change=full))
    received, completed = replicas.events(Kind.COMMAND)
    assert (received.stage, completed.stage) == (Stage.RECEIVED, Stage.COMPLETED)
    for event in (received, completed):
        assert (event.change_id, event.cause) == ("c1-full-1-2", Cause.NEW_CONTROLLER)
        assert (event.revision, event.details["partitions"]) == (30, 1)


async def test_an_old_decision_in_a_full_state_has_its_id_and_no_duration() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command(elected(), full_state=True))
    event = replicas.events(Kind.BECOME_LEADER)[-1]
    assert (event.change_id, event.cause) == ("c1-7", Cause.FULL_STATE)
    assert event.duration_ms == UNKNOWN_DURATION


# -- stopping ----------------------------------------------------------------------------


@pytest.mark.parametrize("delete", [True, False])
async def test_a_stop_is_received_and_completed(*, delete: bool) -> None:
    replicas = await holding()
    await replicas.commands.stop_replica(stop_command(20, delete=delete))
    kind = "delete" if delete else "stop"
    assert stages(replicas.events()) == [f"{kind} received", f"{kind} completed"]


async def test_a_repeated_stop_emits_one_event() -> None:
    replicas = await holding()
    for _ in range(2):
        await replicas.commands.stop_replica(stop_command(20))
    assert len(replicas.events(Kind.DELETE)) == 2


async def test_a_late_stop_is_ignored() -> None:
    replicas = await holding(revision=10)
    await replicas.commands.stop_replica(stop_command(9))
    event = only(replicas.events())
    assert (event.kind, event.stage, event.cause) == (
        Kind.DELETE,
        Stage.IGNORED,
        Cause.STALE_REVISION,
    )


async def test_a_stop_of_the_previous_topic_of_that_name_is_ignored() -> None:
    replicas = await holding()
    await replicas.commands.stop_replica(stop_command(20, topic_id=OTHER_ID))
    event = only(replicas.events())
    assert (event.stage, event.cause) == (Stage.IGNORED, Cause.OTHER_TOPIC_ID)


async def test_a_stop_before_the_full_state_fails() -> None:
    replicas = Replicas()
    await replicas.commands.stop_replica(stop_command(20))
    assert stages(replicas.events()) == ["delete failed"]


async def test_a_replica_that_a_full_state_does_not_name_is_stopped_as_a_stray() -> None:
    replicas = await holding()
    await replicas.commands.leader_and_isr(command(state(), 20, numbers=[1], full_state=True))
    event = only(replicas.events(Kind.STOP))
    assert (event.stage, event.cause, event.name) == (Stage.COMPLETED, Cause.STRAY, NAME)
    # Its deletion has this change id too, in whichever incarnation it happens.
    (stray,) = replicas.logs.strays.expired(0)
    assert event.change_id == set_aside(1, stray.since_ms).id


async def test_a_replica_whose_name_belongs_to_another_topic_now_is_stopped_for_that() -> None:
    replicas = await holding()
    await replicas.take(replace(state(), topic_id=OTHER_ID), revision=20)
    event = only(replicas.events(Kind.STOP))
    assert (event.cause, event.topic_id) == (Cause.OTHER_TOPIC_ID, TOPIC_ID)


async def failed_once() -> Replicas:
    replicas = Replicas()
    replicas.memory.space = 0
    await replicas.commands.leader_and_isr(command(elected()))
    assert replicas.commands._events._failed
    return replicas


async def test_no_failure_is_kept_of_a_replica_that_a_stop_removes() -> None:
    replicas = await failed_once()
    replicas.manager.has_full_state.set()
    await replicas.commands.stop_replica(stop_command(20))
    assert not replicas.commands._events._failed


async def test_no_failure_is_kept_of_a_replica_that_a_full_state_does_not_name() -> None:
    replicas = await failed_once()
    await replicas.commands.leader_and_isr(command(elected(), 20, numbers=[], full_state=True))
    assert not replicas.commands._events._failed


async def test_every_stage_has_the_commanded_incarnation() -> None:
    replicas = await holding()
    await replicas.commands.leader_and_isr(command(elected(), 20))
    await replicas.commands.stop_replica(stop_command(30))
    events = replicas.events(Kind.CREATE, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER, Kind.DELETE)
    assert {(change.broker_epoch, change.controller_epoch) for change in events} == {
        (epoch_of(1), 1)
    }


async def test_the_event_of_a_stray_has_the_known_epochs() -> None:
    replicas = await holding()
    (partition,) = replicas.manager.all()
    await replicas.commands.leader_and_isr(command(elected(), 30, numbers=[], full_state=True))
    event = only(replicas.events(Kind.STOP))
    assert (event.broker_epoch, event.controller_epoch) == (epoch_of(1), 1)
    assert event.leader_epoch == partition.leader_epoch
