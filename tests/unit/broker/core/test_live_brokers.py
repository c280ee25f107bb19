"""What a stopping broker waits for. Broker 1 stops."""

from __future__ import annotations

from dataclasses import replace

from tidelog.model import NO_LEADER
from tidelog_broker.core.live_brokers import LiveBroker, is_awaited
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    STOPPING,
    LeaderAndIsr,
    Member,
)
from unit.broker.broker_parts import registration
from unit.broker.fake_log import epoch_of, state


def registered(*broker_ids: int, **changes: object) -> dict[int, LiveBroker]:
    return {b: LiveBroker(registration(b, **changes), epoch_of(b), 1) for b in broker_ids}


def awaited(of: LeaderAndIsr, brokers: dict[int, LiveBroker], *, synced: bool = False) -> bool:
    return is_awaited(1, of, registered(1, state=STOPPING) | brokers, synced=synced)


def test_it_waits_for_a_leadership_that_another_in_sync_replica_can_take() -> None:
    assert awaited(state(), registered(2))


def test_it_waits_for_a_leadership_that_an_eligible_replica_can_take() -> None:
    assert awaited(state(isr=(1,), eligible=(3,)), registered(3))


def test_it_waits_for_no_leadership_that_no_replica_can_take() -> None:
    assert not awaited(state(isr=(1,)), registered(2, 3))
    assert not awaited(state(isr=(1, 2)), registered(3))
    assert not awaited(state(isr=(1, 2)), registered(2, state=STOPPING))


def test_it_waits_for_no_leadership_if_the_member_lost_data_since_it_was_admitted() -> None:
    lossy = registered(2, whole_since=epoch_of(2) + 1, synced_whole_since=5)
    assert not awaited(state(isr=(1, 2)), lossy)
    assert awaited(state(isr=(1, 2)), lossy, synced=True)


def test_it_waits_for_no_leadership_if_the_member_resigned() -> None:
    resigned = replace(state(isr=(1,)), eligible=(Member(2, NOT_WHOLE),))
    assert not awaited(resigned, registered(2))


def test_it_waits_for_its_removal_from_the_isr_of_another_leader() -> None:
    assert awaited(state(leader=2), registered(2))
    assert not awaited(state(leader=2, isr=(2, 3)), registered(2))


def test_it_waits_for_no_removal_from_an_isr_without_a_leader() -> None:
    assert not awaited(state(leader=2), registered(3))
    assert not awaited(state(leader=NO_LEADER), registered(2, 3))
