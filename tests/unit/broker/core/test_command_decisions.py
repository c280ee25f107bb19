"""What a controller's command does to a replica: one line a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_broker.core.command_decisions import (
    RoleDecision,
    StopDecision,
    decide_role,
    decide_stop,
    is_stray,
    newer_address,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.replica_control import LeaderAddress, PartitionCommand, StopPartition
from unit.broker.fake_log import NAME, TOPIC_ID, FakeLog, leader, state

KNOWN = 10
OTHER_ID = "other"


def known() -> Partition:
    """A replica that has taken the state of revision KNOWN."""
    partition = leader(FakeLog())
    partition.revision = KNOWN
    return partition


@pytest.mark.parametrize(
    ("revision", "topic_id", "is_late", "decision"),
    [
        (KNOWN + 1, TOPIC_ID, False, RoleDecision.NEW),
        (KNOWN, TOPIC_ID, False, RoleDecision.REPEATED),
        (KNOWN - 1, TOPIC_ID, False, RoleDecision.OUTDATED),
        (KNOWN + 1, OTHER_ID, False, RoleDecision.NEW),
        (KNOWN, OTHER_ID, False, RoleDecision.OTHER_TOPIC),
        (KNOWN - 1, OTHER_ID, False, RoleDecision.OTHER_TOPIC),
        (KNOWN + 1, TOPIC_ID, True, RoleDecision.ALREADY_STOPPED),
    ],
)
def test_the_revision_decides_on_a_role(
    revision: int, topic_id: str, is_late: bool, decision: RoleDecision
) -> None:
    command = PartitionCommand(NAME, replace(state(), topic_id=topic_id), revision, {})
    assert decide_role(command, known(), is_late=is_late) is decision


@pytest.mark.parametrize(
    ("revision", "is_present", "has_full_state", "has_log", "decision"),
    [
        (KNOWN + 1, True, False, True, StopDecision.STOP),
        (KNOWN, True, True, True, StopDecision.OUTDATED),
        (KNOWN + 1, False, False, True, StopDecision.NOT_YET),
        (KNOWN + 1, False, True, True, StopDecision.STOP),
        (KNOWN + 1, False, True, False, StopDecision.GONE),
    ],
)
def test_the_revision_decides_on_a_stop(
    revision: int, is_present: bool, has_full_state: bool, has_log: bool, decision: StopDecision
) -> None:
    command = StopPartition(NAME, TOPIC_ID, 1, revision, delete=True)
    partition = known() if is_present else None
    decided = decide_stop(command, partition, has_full_state=has_full_state, has_log=has_log)
    assert decided is decision


def test_a_replica_that_a_newer_command_has_named_is_no_stray() -> None:
    assert is_stray(NAME, None, KNOWN, ())
    assert is_stray(NAME, known(), KNOWN, ())
    assert not is_stray(NAME, known(), KNOWN - 1, ())
    assert not is_stray(NAME, None, KNOWN, {NAME.topic})


def test_the_address_of_the_newer_incarnation_counts() -> None:
    old, new = LeaderAddress("old:1", 1), LeaderAddress("new:1", 2)
    assert newer_address(old, new) == newer_address(new, old) == newer_address(None, new) == new
    assert newer_address(new, None) == new
    assert newer_address(None, None) is None
