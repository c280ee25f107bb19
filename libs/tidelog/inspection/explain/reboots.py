"""Machines that were rebooted while their brokers ran, as the boot ids in the data directories
show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Reason, Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import ago, brokers
from tidelog.inspection.explain.root_causes import Following, effects
from tidelog.inspection.state_reports import (
    REBOOTED,
    Finding,
    InSyncMember,
    PartitionKeyState,
    ServiceState,
)

# A reboot without known effects is reported this long after the start of its broker.
REPORTED_FOR_MS = 3_600_000
ROOT = Root(causes.MACHINE_REBOOTED)


def rebooted(view: ClusterView) -> dict[int, ServiceState]:
    """Returns brokers that are back after their process ended with their machine."""
    return {
        broker_id: view.brokers[broker_id]
        for broker_id, broker in sorted(view.broker_states.items())
        if broker.previous_end == REBOOTED
    }


def of_unclean_election(view: ClusterView, key: PartitionKeyState) -> tuple[Reason, ...]:
    """Returns a reason if a replica's machine was rebooted before the election: what was not synced
    by then is lost."""
    back = rebooted(view)
    if not any(
        b in back and 0 < back[b].started_at_ms <= key.unclean_elected_at_ms for b in key.replicas
    ):
        return ()
    return (Reason(ROOT, "was rebooted"),)


def of_lost_data(
    view: ClusterView, key: PartitionKeyState, members: Sequence[InSyncMember]
) -> tuple[Reason, ...]:
    """Returns a reason for a partition without a leader: a last-known member is back from a reboot
    and no longer holds everything."""
    back = rebooted(view)
    if key.synced or not any(member.broker_id in back for member in members):
        return ()
    return (Reason(ROOT, "was rebooted"),)


def machine_rebooted(view: ClusterView, following: Following) -> Iterator[Finding]:
    follows = following.get(ROOT, [])
    back = {
        broker_id: state
        for broker_id, state in rebooted(view).items()
        if follows or state.now_ms - state.started_at_ms <= REPORTED_FOR_MS
    }
    if not back:
        return
    whose = "machine" if len(back) == 1 else "machines"
    were = "was" if len(back) == 1 else "were"
    is_all = set(back) >= set(view.registry.brokers) and len(back) > 1
    scope = "all machines: the " if is_all else "the "
    yield Finding(
        causes.MACHINE_REBOOTED,
        causes.WARNING if follows else causes.INFO,
        f"{scope}{whose} of {brokers(back)} {were} rebooted without a clean stop of the brokers, "
        "which are back",
        (
            *(
                f"broker-{broker_id} was started {ago(state.started_at_ms, state.now_ms)} in boot "
                f"{view.broker_states[broker_id].boot_id}; its last process ran in another boot "
                "and was not stopped cleanly"
                for broker_id, state in back.items()
            ),
            *effects(ROOT, follows),
        ),
        "Records that were not synced before a reboot may be lost on that machine; where other "
        "replicas had them nothing is. Topics with durability=synced lose nothing this way."
        if follows
        else "Nothing: no partition is affected. Find out why the machines went down.",
        broker=next(iter(back)) if len(back) == 1 else -1,
    )
