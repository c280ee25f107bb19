"""Answers about partitions that a broker cannot serve, and how it reacts to its watch."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_runtime.metadata.store import Changed
from unit.broker.broker_parts import KEYS, Replicas, broker_change, topic_change
from unit.broker.fake_log import NAME, TOPIC_ID, epoch_of, state

OTHER_ID = "other-id-other-id-othe"


def rejection_of(call: Callable[[], object]) -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        call()
    return raised.value


def rejection(replicas: Replicas, topic_id: str = "") -> TidelogError:
    return rejection_of(lambda: replicas.manager.partition(NAME, topic_id))


@pytest.mark.rule("leaderless-partition-is-offline")
async def test_without_a_leader_the_client_gets_a_retriable_error() -> None:
    replicas = Replicas()
    replicas.cache.apply([topic_change()])
    replicas.knows(state(leader=NO_LEADER), 10)
    assert rejection(replicas).code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_leader_whose_broker_is_gone_is_no_hint() -> None:
    replicas = Replicas()
    replicas.cache.apply([topic_change()])
    replicas.knows(state(leader=2), 10)
    error = rejection(replicas)
    assert (error.code, error.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, None)


@pytest.mark.rule("clients-retry-unready-leaders")
async def test_an_elected_leader_without_its_command_does_not_point_at_itself() -> None:
    """It is elected, and the controller's command is on its way."""
    replicas = Replicas()
    replicas.cache.apply([topic_change(), broker_change(1)])
    replicas.knows(state(leader=1), 10)
    error = rejection(replicas)
    assert (error.code, error.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, None)
    assert "about to lead" in error.message


@pytest.mark.rule("recreated-topic-is-another-topic")
async def test_another_topic_id_is_rejected_even_by_the_leader() -> None:
    replicas = Replicas()
    await replicas.lead()
    error = rejection(replicas, OTHER_ID)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert TOPIC_ID in error.message


async def test_followers_find_replicas_by_topic_id() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    assert replicas.manager.replica(ReplicaKey(TOPIC_ID, 0)) is partition
    error = rejection_of(lambda: replicas.manager.replica(ReplicaKey(OTHER_ID, 0)))
    assert error.code is ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_broker_that_knows_another_topic_of_the_name_names_no_leader_of_it() -> None:
    """Either its watch or the client is behind."""
    replicas = Replicas()
    replicas.cache.apply([topic_change(), broker_change(2)])
    replicas.knows(state(leader=2, epoch=7), 10)
    error = rejection(replicas, OTHER_ID)
    assert (error.code, error.leader) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


async def test_a_replica_of_a_previous_topic_names_no_leader_of_the_new_one() -> None:
    replicas = Replicas()
    await replicas.take(state(leader=2))
    replicas.cache.apply([topic_change(topic_id=OTHER_ID, revision=130), broker_change(3)])
    replicas.knows(replace(state(leader=3, epoch=7), topic_id=OTHER_ID), 131)
    error = rejection(replicas, TOPIC_ID)
    assert (error.code, error.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, None)


# -- updates of the watch ----------------------------------------------------------------


async def test_a_leader_steps_down_when_it_reads_of_another() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.knows(state(leader=2, epoch=6), 11)
    assert partition.leading is None


async def test_a_leader_steps_down_when_its_partition_is_gone() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.knows(state(), 10)
    replicas.cache.apply([Changed(KEYS.leader_and_isr(NAME), None, 12)])
    replicas.manager.observed([NAME])
    assert partition.leading is None


async def test_a_leader_steps_down_when_another_topic_has_the_name() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.knows(replace(state(), topic_id=OTHER_ID), 12)
    assert partition.leading is None


async def test_a_late_update_of_the_watch_does_not_depose_a_leader() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.knows(state(leader=2, epoch=4), 9)
    replicas.knows(replace(state(), topic_id=OTHER_ID), 8)
    assert partition.leading


async def test_a_leader_adopts_the_isr_that_the_controller_wrote_in_its_epoch() -> None:
    replicas = Replicas()
    partition = await replicas.lead()
    replicas.knows(state(isr=(1, 2)), 11)
    assert partition.leading
    assert partition.state == state(isr=(1, 2))
    assert partition.revision == 11


async def test_a_state_that_a_broker_reads_itself_makes_it_no_leader() -> None:
    replicas = Replicas()
    (partition,) = await replicas.take(state(leader=2))
    replicas.knows(state(leader=1, epoch=6), 11)
    assert partition.leading is None


async def test_a_newer_registration_of_a_leader_replaces_its_address() -> None:
    replicas = Replicas()
    await replicas.take(state(leader=2))
    replicas.cache.apply([broker_change(2, address="elsewhere:7500")])
    assert replicas.manager.address_of(2) == ("elsewhere:7500", epoch_of(2))
