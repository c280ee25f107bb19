"""How many records a follower received, and how many were written, between two states."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import name_of_key, span
from tidelog.inspection.state_reports import FollowerProgress, PartitionKeyState


class Growth(NamedTuple):
    """Records that a follower received, and that were written, since an earlier state."""

    received: int
    written: int
    within_ms: int

    @property
    def gains(self) -> int:
        return self.received - self.written

    def __str__(self) -> str:
        received, written = (n * 1_000 // self.within_ms for n in (self.received, self.written))
        return (
            f"within {span(self.within_ms)} it received {received:,} records per second, while "
            f"{written:,} per second were written"
        )


def growth_of(
    view: ClusterView, key: PartitionKeyState, end: int, progress: FollowerProgress
) -> Growth | None:
    """Returns None if there is no earlier state, or one in another epoch, whose offsets may have
    been truncated since."""
    observed = view.observed
    leading = view.leading(key)
    if leading is None or progress.log_end_offset < 0:
        return None
    for state in observed.earlier:
        if state.role != "broker" or state.id != key.leader or state.broker is None:
            continue
        for replica in state.broker.replicas:
            if (replica.topic, replica.partition) != name_of_key(key) or not replica.leader:
                continue
            if replica.leader_epoch != leading[0].leader_epoch:
                continue
            for before in replica.leader.followers:
                if before.broker_id == progress.broker_id and before.log_end_offset >= 0:
                    return Growth(
                        progress.log_end_offset - before.log_end_offset,
                        end - replica.log_end_offset,
                        max(1, observed.earlier_ms),
                    )
    return None
