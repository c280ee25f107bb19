"""Brokers whose network loses packets, by the segments that their connections had to send again."""

from __future__ import annotations

import re
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
    if root is None:
        return None
    lossy = [b for b in ends if b == root.broker or _is_lossy(view, b)]
    if not lossy:
        return None
    words = "loses packets" if lossy[0] == ends[0] else f"reaches broker {lossy[0]} with losses"
    return Reason(root, words)


def summary(view: ClusterView, root: Root) -> str:
    pressure = view.pressure(root.broker, NETWORK)
    others = [other for other in _lossy(view) if other != root.broker]
    if pressure is None:
        count = sum(_resent_between(view, other, root.broker) for other in others)
        return (
            f"broker {root.broker} loses packets: within about 10 s {brokers(others)} sent "
            f"{count:,} TCP segments to it again"
        )
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
    """Returns the root of the broker over whose connections most is sent again, by itself and by
    the others: one that loses packets loses those of all its connections, and the others only those
    of their connections to it. If it loses only what arrives, only the others send again."""
    lossy = _lossy(view)
    if not lossy:
        return None
    resent = {b: view.pressures[b, NETWORK].used for b in lossy}
    for one in sorted(view.registry.brokers):
        to_it = sum(_resent_between(view, other, one) for other in lossy if other != one)
        if to_it and _is_alive(view, one):
            resent[one] = resent.get(one, 0) + to_it
    return Root(causes.PACKETS_LOST, max(sorted(resent), key=lambda b: (resent[b], -b)))


def _lossy(view: ClusterView) -> list[int]:
    return sorted(b for b, resource in view.pressures if resource == NETWORK and _is_lossy(view, b))


def _is_lossy(view: ClusterView, broker_id: int) -> bool:
    """Whether a broker that answers at least health checks loses packets. A cut-off one loses all,
    which is another finding."""
    return view.pressure(broker_id, NETWORK) is not None and _is_alive(view, broker_id)


def _is_alive(view: ClusterView, broker_id: int) -> bool:
    alive = view.liveness(broker_id) in (Liveness.ANSWERS, Liveness.BUSY)
    return alive and not cut_offs.is_cut_off(view, broker_id)


def _peers(view: ClusterView, pressure: BrokerPressure) -> str:
    """Returns the addresses of the peers, with the brokers that advertise them."""
    if not pressure.detail:
        return ""
    named = sorted(
        {
            broker_id
            for address in _resent_to(pressure)
            for broker_id in _brokers_at(view, address, besides=pressure.broker_id)
        }
    )
    of = f", which {'is' if len(named) == 1 else 'are'} {brokers(named)}" if named else ""
    return f" ({pressure.detail}{of})"


def _resent_to(pressure: BrokerPressure) -> Mapping[str, int]:
    """Returns how much was sent again, by the peer's address."""
    found = re.findall(r"([\d,]+) to (\S+?)(?:,|$)", pressure.detail)
    return {address: int(count.replace(",", "")) for count, address in found}


def _resent_between(view: ClusterView, reporter: int, other: int) -> int:
    """Returns how much a broker sent to another one again, if that one alone has the address."""
    counts = _resent_to(view.pressures[reporter, NETWORK]).items()
    return sum(n for address, n in counts if _brokers_at(view, address, reporter) == [other])


def _brokers_at(view: ClusterView, address: str, besides: int) -> list[int]:
    """Returns the brokers that advertise this address, or another port of it if it has none."""
    return [
        broker_id
        for broker_id, registered in sorted(view.registry.brokers.items())
        if broker_id != besides
        and address in (registered.address, registered.address.rpartition(":")[0].strip("[]"))
    ]
