"""What a full file system lacks: bytes or inodes."""

from __future__ import annotations

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.model import RESERVE_FILES

INODES_NEXT_STEP = (
    "Make room for files on its data_dir (df -i): remove small files that are not Tidelog's, raise "
    "segment_bytes of topics with many segments, or create the file system again with more inodes. "
    "It continues by itself."
)


def lacks_inodes(view: ClusterView, broker_id: int) -> bool:
    state = view.brokers.get(broker_id)
    broker = state.broker if state is not None else None
    if broker is None or broker.disk_inodes <= 0:
        return False
    return broker.disk_free_inodes <= RESERVE_FILES


def lines(view: ClusterView, broker_id: int) -> list[str]:
    state = view.brokers.get(broker_id)
    broker = state.broker if state is not None else None
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
