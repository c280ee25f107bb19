"""Clients that are at a limit on requests or connections of a service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes, pressures
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.observed import BROKER, name_of
from tidelog.inspection.explain.words import listed, span
from tidelog.inspection.model import Finding, LimitedClient, Scope, ServiceState
from tidelog.wording import plural

OF_ALL_CLIENTS = "max_client_requests"
CONNECTIONS = "max_connections_per_client"
_NEXT_STEP = {
    OF_ALL_CLIENTS: "Find the clients that send most (tidelog_client_requests of each service, and "
    "the rejected addresses above), and let them send fewer requests at once; or raise "
    "max_client_requests of {who}.",
    CONNECTIONS: "Let each process at that address share one client, or close those that it does "
    "not use; where it stands for many machines, raise max_connections_per_client of {who}.",
}
_OTHERWISE = (
    "Let the client wait for answers before it sends more; where its address stands for many "
    "machines, raise {limit} of {who}."
)

_Rejecting = Sequence[tuple[ServiceState, LimitedClient]]


def limited(view: ClusterView, scope: Scope) -> Iterator[Finding]:
    """One finding for each limit and address, whichever services reject; one for all addresses
    where the limit is that of all clients together."""
    found: dict[tuple[str, str], list[tuple[ServiceState, LimitedClient]]] = {}
    for state in sorted(view.observed.tellers, key=name_of):
        is_broker = state.role == BROKER
        if scope.broker is not None and not (is_broker and state.id == scope.broker):
            continue
        for client in state.limited_clients:
            has_finding = is_broker and view.pressure(state.id, pressures.CONNECTIONS) is not None
            if client.limit == CONNECTIONS and has_finding:
                continue
            address = "" if client.limit == OF_ALL_CLIENTS else client.address
            found.setdefault((client.limit, address), []).append((state, client))
    for (limit, address), each in sorted(found.items()):
        yield _finding(limit, address, each)


def _finding(limit: str, address: str, each: _Rejecting) -> Finding:
    states = {name_of(state): state for state, _ in each}
    who, value = listed(states), max(client.value for _, client in each)
    of_whom = f"client {address} is" if address else "all clients together are"
    rejected = sum(client.rejected for _, client in each)
    only = next(iter(states.values())) if len(states) == 1 else None
    return Finding(
        causes.CLIENT_LIMITED,
        causes.WARNING,
        f"{of_whom} at {limit} ({value:,}) of {who}: {plural(rejected, 'request')} rejected, the "
        f"last {span(min(client.last_ms for _, client in each))} ago",
        tuple(
            f"{name_of(state)} has rejected {plural(client.rejected, 'request')} of client "
            f"{client.address} by {client.limit}={client.value}, the last "
            f"{span(client.last_ms)} ago"
            for state, client in each
        ),
        _NEXT_STEP.get(limit, _OTHERWISE).format(limit=limit, who=who),
        broker=only.id if only is not None and only.role == BROKER else -1,
    )
