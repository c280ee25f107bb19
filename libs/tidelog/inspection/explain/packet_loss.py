"""Brokers whose network loses packets, by the segments that their connections had to send again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.inspection.explain import causes, cut_offs
from tidelog.inspection.explain.causes import Reason, Root
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import MAX_NAMED, brokers, since
from tidelog.inspection.resource_pressures import NETWORK, BrokerPressure

TO_SEE_LOSS = (
    "`ping -c 100` to its machine shows lost packets, `ss -ti` there connections that send again "
    "(retrans)"
)
NEXT_STEP = (
    "Check the network between the machine of broker {broker} and the peers that are named: `ping "
    "-c 100` shows lost packets, `ip -s link` errors and drops of an interface, `ss -ti` "
    "connections that send again (retrans). Then check what lies between: cables, switches, a full "
    "queue, a firewall's limit. No process needs a restart."
)
LEADER_SLOW_NEXT_STEP = (
    "Check the network between broker {broker} and the followers that are named: "
    f"{TO_SEE_LOSS}. Then check what CPU and disk broker {{broker}} has left, and what else it has "
    "to send. Its followers rejoin when they have caught up."
)


def roots(view: ClusterView) -> Iterator[Root]:
    """Yields one root for all reports: a connection has two ends, and both send again."""
    root = _root(view)
    if root is not None:
        yield root


def why_late(view: ClusterView, *ends: int) -> Reason | None:
    """Returns why a broker answers, or replicates, late if one of these brokers loses packets."""
    root = _root(view)
    lossy = [broker_id for broker_id in ends if _is_lossy(view, broker_id)]
    if root is None or not lossy:
        return None
    words = "loses packets" if lossy[0] == ends[0] else f"reaches broker {lossy[0]} with losses"
    return Reason(root, words)


def summary(view: ClusterView, root: Root) -> str:
    pressure = view.pressures[root.broker, NETWORK]
    others = _others(view, root.broker)
    beside = f"; {brokers(others)} as well" if others else ""
    return (
        f"broker {root.broker} loses packets: within about 10 s its connections sent "
        f"{pressure.used:,} of {pressure.limit:,} TCP segments again"
        f"{_peers(view, pressure)}{beside}"
    )


def evidence(view: ClusterView, broker_id: int | None = None) -> list[str]:
    """Returns brokers' reports of segments that they had to send again, that of `broker_id`
    first."""
    reporting = sorted(b for b, resource in view.pressures if resource == NETWORK)
    reporting.sort(key=lambda reporter: reporter != broker_id)
    found = []
    for reporter in reporting[:MAX_NAMED]:
        pressure = view.pressures[reporter, NETWORK]
        found.append(
            f"broker-{reporter} reports: packets are lost: its connections sent {pressure.used:,} "
            f"of {pressure.limit:,} TCP segments again within about 10 s"
            f"{_peers(view, pressure)}, {since(pressure.since_ms, view.now_ms())}"
        )
    return found


def _root(view: ClusterView) -> Root | None:
    """Returns the root of the broker that sends the largest share again: it loses packets of all
    its connections, and other brokers only those of their connections to it."""
    lossy = _lossy(view)
    if not lossy:
        return None
    worst = max(lossy, key=lambda broker_id: (lossy[broker_id], -broker_id))
    return Root(causes.PACKETS_LOST, worst)


def _others(view: ClusterView, broker_id: int) -> list[int]:
    return [other for other in sorted(_lossy(view)) if other != broker_id]


def _lossy(view: ClusterView) -> Mapping[int, float]:
    """Returns the share that is sent again, by broker."""
    return {
        broker_id: pressure.used / max(1, pressure.limit)
        for (broker_id, resource), pressure in view.pressures.items()
        if resource == NETWORK and _is_lossy(view, broker_id)
    }


def _is_lossy(view: ClusterView, broker_id: int) -> bool:
    """Whether a broker that answers at least health checks loses packets. A cut-off one loses all,
    which is another finding."""
    if view.pressure(broker_id, NETWORK) is None or cut_offs.is_cut_off(view, broker_id):
        return False
    return view.liveness(broker_id) in (Liveness.ANSWERS, Liveness.BUSY)


def _peers(view: ClusterView, pressure: BrokerPressure) -> str:
    """Returns the addresses of the peers, with the brokers that advertise them."""
    if not pressure.detail:
        return ""
    words = {word.strip(",") for word in pressure.detail.split()}
    named = [
        broker_id
        for broker_id, registered in sorted(view.registry.brokers.items())
        if broker_id != pressure.broker_id
        and words & {registered.address, registered.address.rpartition(":")[0].strip("[]")}
    ]
    of = f", which {'is' if len(named) == 1 else 'are'} {brokers(named)}" if named else ""
    return f" ({pressure.detail}{of})"
