"""Which replica takes over from a leader whose disk rejects its log. Pure functions.

"Failing disks" in docs/internals/protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_election import is_leader_serving
from tidelog_controller.policies.leader_transfer import in_sync
from tidelog_runtime.metadata.schema import LeaderAndIsr


def transfer_from_failing_disk(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    controller_epoch: int,
    rejecting: Collection[int],
    in_maintenance: Collection[int],
) -> LeaderAndIsr | None:
    """Returns the state to write, or None if no in-sync replica is on an accepting disk.

    The previous leader leaves the ISR if at least min ISR members remain: what it cannot write
    would hold the high watermark back. It returns once it has caught up. Otherwise it stays.
    """
    if not is_leader_serving(state, live):
        return None
    able = in_sync(state, live, rules)
    accepting = [b for b in state.replicas if b in able and b not in rejecting]
    successors = [b for b in accepting if b != state.leader]
    if not successors:
        return None
    successor = min(successors, key=in_maintenance.__contains__)
    led = replace(
        state,
        leader=successor,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )
    rest = [member for member in state.isr if member.broker_id != state.leader]
    return led.with_isr(rest) if len(rest) >= state.min_isr else led
