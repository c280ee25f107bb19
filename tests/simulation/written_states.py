"""Checks the value of a partition's key by itself, and formats it for violations."""

from __future__ import annotations

from collections.abc import Iterable

from simulation.partition_id import PartitionId
from simulation.violation import Violation
from tidelog.model import NO_LEADER
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member


def judge_alone(partition: PartitionId, state: LeaderAndIsr) -> None:
    isr_ids = [m.broker_id for m in state.isr]
    eligible_ids = [m.broker_id for m in state.eligible]
    if state.leader != NO_LEADER and state.leader not in isr_ids:
        raise violation_of("leader_not_in_isr", "a leader is a member", partition, None, state)
    if not isr_ids and state.leader != NO_LEADER:
        raise violation_of("empty_isr", "only without a leader", partition, None, state)
    members = [*isr_ids, *eligible_ids]
    if len(set(members)) < len(members) or not set(members) <= set(state.replicas):
        raise violation_of(
            "members_not_replicas", "ISR and eligible set are apart", partition, None, state
        )


def violation_of(
    name: str, why: str, partition: PartitionId, old: LeaderAndIsr | None, new: LeaderAndIsr
) -> Violation:
    return Violation(name, why, partition=partition, old=brief(old), new=brief(new))


def brief(state: LeaderAndIsr | None) -> str:
    if state is None:
        return "none"
    return (
        f"replicas {state.replicas} moving {state.moving} "
        f"leader {state.leader} epoch {state.leader_epoch} isr {_members(state.isr)} eligible "
        f"{_members(state.eligible)} min {state.min_isr} unclean {state.unclean_leader_epoch} "
        f"controller {state.controller_epoch}"
    )


def is_resignation(old: LeaderAndIsr, new: LeaderAndIsr) -> bool:
    """Whether a damaged replica has given the leader a new epoch."""
    return (
        new.leader == old.leader != NO_LEADER
        and new.leader_broker_epoch == old.leader_broker_epoch
        and new.controller_epoch == old.controller_epoch
    )


def _members(members: Iterable[Member]) -> str:
    return "{" + ", ".join(f"{m.broker_id}@{m.broker_epoch}" for m in members) + "}"
