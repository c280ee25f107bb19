"""Evidence about a broker's machine: room in its file system, and a disk that hangs."""

from __future__ import annotations

from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import since, span
from tidelog.inspection.state_reports import RESERVE_FILES
from tidelog.units import size_text

INODES_NEXT_STEP = (
    "Make room for files on its data_dir (df -i): remove small files that are not Tidelog's, raise "
    "segment_bytes of topics with many segments, or create the file system again with more inodes. "
    "It continues by itself."
)


def lacks_inodes(view: ClusterView, broker_id: int) -> bool:
    """Whether the broker's full file system lacks inodes rather than bytes."""
    broker = view.broker_states.get(broker_id)
    if broker is None or broker.disk_inodes <= 0:
        return False
    return broker.disk_free_inodes <= RESERVE_FILES


def disk_lines(view: ClusterView, broker_id: int) -> list[str]:
    broker = view.broker_states.get(broker_id)
    if broker is None:
        return []
    found = []
    if broker.disk_free_bytes >= 0:
        found.append(f"its file system has {size_text(broker.disk_free_bytes)} left")
    if broker.disk_inodes > 0:
        found.append(
            f"its file system has {broker.disk_free_inodes:,} of {broker.disk_inodes:,} inodes left"
        )
    return found


HANG_NEXT_STEP = (
    "Check what else uses the disk of broker {broker} (iostat -x, iotop), the limits of its volume "
    "and the kernel's log of its machine. If its syncs return, the broker continues by itself. "
    "Otherwise stop it and repair or replace the disk; on a new, empty disk start it with "
    "--replace-directory{directory}."
)
AFTER_HANG_NEXT_STEP = (
    "Nothing, if the disk does not hang again. If it does, check what else uses the disk of broker "
    "{broker} (iostat -x, iotop), the limits of its volume, and the kernel's log of its machine."
)


def failing_since(view: ClusterView, root: Root) -> str:
    """Returns since when the first of its replicas has failed in this way, or "" if unknown."""
    state = view.brokers.get(root.broker)
    ages = [
        replica.failure_ms
        for replica in view.replicas_of(root.broker)
        if replica.failure == root.cause and replica.failure_ms >= 0
    ]
    if not ages or state is None:
        return ""
    return f" {since(state.now_ms - max(ages), state.now_ms)}"


def hang_over_in_ms(view: ClusterView, broker_id: int) -> int | None:
    """Returns the time until a disk that hung counts as recovered.

    0: it hangs now; None: it does not hang, or fails in another way as well.
    """
    failing = [r for r in view.replicas_of(broker_id) if r.failure == "disk_error"]
    if not failing or any(r.hang_over_in_ms < 0 for r in failing):
        return None
    if any(r.hang_over_in_ms == 0 for r in failing):
        return 0
    return max(r.hang_over_in_ms for r in failing)


def hang_summary(view: ClusterView, broker_id: int) -> str:
    """Returns "" for a disk that fails in another way."""
    over_in_ms = hang_over_in_ms(view, broker_id)
    if over_in_ms is None:
        return ""
    if over_in_ms == 0:
        return f"the disk of broker {broker_id} hangs: a sync does not return"
    return (
        f"the disk of broker {broker_id} has hung; syncs return again, and it counts as recovered "
        f"in {span(over_in_ms)}"
    )


def hang_next_step(view: ClusterView, broker_id: int) -> str:
    """Returns "" for a disk that fails in another way."""
    over_in_ms = hang_over_in_ms(view, broker_id)
    if over_in_ms is None:
        return ""
    return AFTER_HANG_NEXT_STEP if over_in_ms else HANG_NEXT_STEP
