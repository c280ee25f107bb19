"""Packets that the network loses, as kernels count their retransmissions."""

from __future__ import annotations

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, since

NETWORK = "network"
TO_SEE_LOSS = (
    "`ping -c 100` to its machine shows lost packets, `ss -ti` there connections that send again "
    "(retrans)"
)


def lines(view: ClusterView, broker_id: int | None = None) -> list[str]:
    """Returns the reports of brokers, that of `broker_id` first."""
    reporting = sorted(b for b, resource in view.pressures if resource == NETWORK)
    reporting.sort(key=lambda reporter: reporter != broker_id)
    found = []
    for reporter in reporting[:MAX_NAMED]:
        pressure = view.pressures[reporter, NETWORK]
        found.append(
            f"broker-{reporter} reports: packets are lost: its kernel sent {pressure.used:,} TCP "
            f"segments again beside {pressure.limit:,} within some 10 s, "
            f"{since(pressure.since_ms, view.now_ms())}"
        )
    return found
