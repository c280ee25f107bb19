"""Choice of the replica that takes over from a leader whose disk rejects writes."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tidelog_controller.policies.failing_disk import transfer_from_failing_disk
from tidelog_runtime.metadata.schema import LeaderAndIsr
from unit.controller.policies.test_unreachable_leader import RULES, live, members, partition

CONTROLLER_EPOCH = 4


def transferred(
    state: LeaderAndIsr,
    *,
    rejecting: Collection[int] = (1,),
    in_maintenance: Collection[int] = (),
    running: Collection[int] = (1, 2, 3),
) -> LeaderAndIsr | None:
    return transfer_from_failing_disk(
        state, live(*running), RULES, CONTROLLER_EPOCH, rejecting, in_maintenance
    )


def successor(state: LeaderAndIsr | None) -> int | None:
    return None if state is None else state.leader


@pytest.mark.rule("failing-disk-transfers-leadership")
def test_the_next_in_sync_replica_leads_in_a_new_epoch_without_the_failing_one() -> None:
    after = transferred(partition(1, 2, 3))
    assert after is not None
    assert (after.leader, after.leader_epoch) == (2, 8)
    assert (after.isr, after.eligible) == (members(2, 3), ())


def test_the_failing_leader_stays_in_sync_where_the_rest_is_below_min_isr() -> None:
    after = transferred(partition(1, 2))
    assert after is not None
    assert (after.leader, after.isr) == (2, members(1, 2))


def test_a_replica_whose_disk_rejects_writes_too_does_not_lead() -> None:
    assert successor(transferred(partition(1, 2, 3), rejecting=(1, 2))) == 3


@pytest.mark.rule("failing-disk-transfers-leadership")
def test_where_every_disk_rejects_writes_the_leader_stays() -> None:
    assert transferred(partition(1, 2, 3), rejecting=(1, 2, 3)) is None


def test_a_replica_out_of_sync_or_eligible_does_not_lead() -> None:
    assert transferred(partition(1, eligible=(2, 3))) is None


def test_a_replica_that_is_not_running_does_not_lead() -> None:
    assert successor(transferred(partition(1, 2, 3), running=(1, 3))) == 3


def test_a_broker_in_maintenance_leads_only_where_no_other_can() -> None:
    assert successor(transferred(partition(1, 2, 3), in_maintenance=(2,))) == 3
    assert successor(transferred(partition(1, 2, 3), in_maintenance=(2, 3))) == 2


def test_a_leader_that_is_gone_is_replaced_by_an_election() -> None:
    assert transferred(partition(1, 2, 3), running=(2, 3)) is None
