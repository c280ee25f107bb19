"""What the steps of a move may change in a partition's key.

This is derived independently from "Moving a partition" in docs/internals/protocol.md and from
rules `decisions-ordered-by-revision` and `reassignment-done-when-in-sync`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tidelog_runtime.metadata.schema import LeaderAndIsr, Moving

ACTIVATED = "move activated"
SWITCHED = "move switched"
SWITCHED_EARLY = "switched without a replica that left"
LEADER_LEFT = "moved away from its leader"
CANCELLED = "move cancelled"
FOUND_BY_MOVE_RULES = (ACTIVATED, SWITCHED, SWITCHED_EARLY, LEADER_LEFT, CANCELLED)


class Broken(NamedTuple):
    name: str
    why: str


def is_end(old: LeaderAndIsr, new: LeaderAndIsr) -> bool:
    return old.moving is not None and new.moving is None


def judge_step(
    old: LeaderAndIsr, new: LeaderAndIsr, config: Mapping[str, str], seen: Counter[str]
) -> Broken | None:
    """Checks a write that changed the replicas or the move. None: it is allowed."""
    if old.moving is None and new.moving is not None:
        seen[ACTIVATED] += 1
        return _activation(old, new, new.moving) or _min_isr(new, config)
    if old.moving is None or new.moving is not None:
        return Broken("replicas_changed", "replicas change by the steps of a move alone")
    return _end(old, new, old.moving, seen) or _min_isr(new, config)


def _activation(old: LeaderAndIsr, new: LeaderAndIsr, moving: Moving) -> Broken | None:
    wanted = (*old.replicas, *(b for b in moving.target if b not in old.replicas))
    if moving.original != old.replicas or new.replicas != wanted:
        return Broken("activation_changed_more", f"its replicas should be {wanted}")
    same = ("leader", "leader_epoch", "controller_epoch", "isr", "unclean_leader_epoch")
    changed = [name for name in same if getattr(old, name) != getattr(new, name)]
    return Broken("activation_changed_more", f"it changed {changed}") if changed else None


def _end(old: LeaderAndIsr, new: LeaderAndIsr, moving: Moving, seen: Counter[str]) -> Broken | None:
    if new.leader_epoch != old.leader_epoch + 1:
        return Broken("move_ended_within_epoch", "who is assigned again finds the epoch it knew")
    if new.leader not in new.isr_ids:
        return Broken("move_ended_without_leader", "somebody in sync leads after it")
    staying = {member for member in old.isr if member.broker_id in new.replicas}
    if set(new.isr) != staying:
        return Broken("move_changed_isr", f"those that stay are {sorted(staying)}")
    if not set(new.eligible) <= set(old.eligible):
        return Broken("move_changed_eligible", "no replica becomes eligible by it")
    if new.replicas == moving.target:
        if new.isr_ids != set(moving.target):
            return Broken("switched_before_in_sync", f"the ISR was {sorted(old.isr_ids)}")
        seen[SWITCHED] += 1
        seen[SWITCHED_EARLY] += not set(moving.original) <= old.isr_ids
        seen[LEADER_LEFT] += old.leader not in new.replicas
    elif new.replicas == moving.original:
        if len(new.isr) < min(new.min_isr, len(old.isr), len(new.replicas)):
            return Broken("cancelled_with_too_few", f"the ISR was {sorted(old.isr_ids)}")
        seen[CANCELLED] += 1
    else:
        return Broken("replicas_changed", f"neither {moving.original} nor {moving.target}")
    return None


def _min_isr(new: LeaderAndIsr, config: Mapping[str, str]) -> Broken | None:
    sides = (new.moving.original, new.moving.target) if new.moving else (new.replicas,)
    fewest = min(len(side) for side in sides)
    wanted = int(config.get("min_insync_replicas", min(2, fewest)))
    if new.min_isr != wanted:
        return Broken("min_isr_of_wrong_set", f"of {fewest} replicas {wanted} are asked for")
    return None
