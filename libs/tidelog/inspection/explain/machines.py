"""Evidence about a broker's machine: room in its file system, a disk that hangs, packets that its
network loses."""

from __future__ import annotations

from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, since, span
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


NETWORK = "network"
TO_SEE_LOSS = (
    "`ping -c 100` to its machine shows lost packets, `ss -ti` there connections that send again "
    "(retrans)"
)

LEADER_SLOW_NEXT_STEP = (
    "Check the network between broker {broker} and the followers that are named: "
    f"{TO_SEE_LOSS}. Then check what CPU and disk broker {{broker}} has left, and what else it has "
    "to send. Its followers rejoin when they have caught up."
)


def packet_loss_lines(view: ClusterView, broker_id: int | None = None) -> list[str]:
    """Returns brokers' reports of retransmissions by their kernels, that of `broker_id` first."""
    reporting = sorted(b for b, resource in view.pressures if resource == NETWORK)
    reporting.sort(key=lambda reporter: reporter != broker_id)
    found = []
    for reporter in reporting[:MAX_NAMED]:
        pressure = view.pressures[reporter, NETWORK]
        found.append(
            f"broker-{reporter} reports: packets are lost: its kernel sent {pressure.used:,} TCP "
            f"segments again beside {pressure.limit:,} within about 10 s, "
            f"{since(pressure.since_ms, view.now_ms())}"
        )
    return found
