"""Evidence about a broker's machine: room in its file system, packets that its network loses."""

from __future__ import annotations

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, since
from tidelog.inspection.model import RESERVE_FILES

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
        found.append(f"its file system has {broker.disk_free_bytes:,} bytes left")
    if broker.disk_inodes > 0:
        found.append(
            f"its file system has {broker.disk_free_inodes:,} of {broker.disk_inodes:,} inodes left"
        )
    return found


NETWORK = "network"
TO_SEE_LOSS = (
    "`ping -c 100` to its machine shows lost packets, `ss -ti` there connections that send again "
    "(retrans)"
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
