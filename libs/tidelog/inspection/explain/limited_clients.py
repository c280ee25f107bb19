"""Clients that have reached a service's limit on requests or connections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.caller_limits import (
    GATEWAY_TOTAL_LIMITS,
    METRICS_CONNECTIONS,
    METRICS_CONNECTIONS_PER_CLIENT,
    METRICS_LIMITS,
    LimitedClient,
)
from tidelog.inspection.explain import broker_pressures, causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import gateway_name, listed, span
from tidelog.inspection.explain.observation import BROKER, name_of
from tidelog.inspection.explain.rejections import OVER_AFTER_MS
from tidelog.inspection.gateway_reports import ALIVE, known_gateways, state_of
from tidelog.inspection.resource_pressures import CONNECTIONS
from tidelog.inspection.state_reports import Finding, Scope, ServiceState
from tidelog.phrases import plural
from tidelog.unsent_answers import ANSWER_LIMITS, UNSENT_BYTES

OF_ALL_CLIENTS = "max_client_requests"
MAX_CONNECTIONS = "max_connections_per_client"
_NEXT_STEP = {
    OF_ALL_CLIENTS: "Find the clients that send most (tidelog_client_requests of each service, and "
    "the rejected addresses above), and let them send fewer requests at once; or raise "
    "max_client_requests of {who}.",
    MAX_CONNECTIONS: "Let each process at that address share one client, or close those that it "
    "does not use; if many machines share the address, raise max_connections_per_client of {who}.",
    "connections": "Find the clients that hold most connections of {who} (`ss -tn` on its host), "
    "and let them use fewer; or start another gateway.",
    METRICS_CONNECTIONS_PER_CLIENT: "Find what connects from that address to the metrics port of "
    "{who} (metrics_listen; port 1000 above listen's by default), and let it close its "
    "connections: a scraper needs one.",
    METRICS_CONNECTIONS: "Find what connects from these addresses to the metrics port of {who} "
    "(metrics_listen; port 1000 above listen's by default), and let only scrapers reach it: each "
    "needs one connection.",
    **dict.fromkeys(
        ANSWER_LIMITS,
        "Find out why the client does not receive its answers (a paused process, a slow network), "
        "and let it fetch fewer bytes at once; {limit} of {who} is fixed.",
    ),
    "body_bytes": "Let clients send fewer large bodies to {who} at once, or raise its "
    "max_body_bytes.",
    **dict.fromkeys(
        ("max_concurrent_requests", "max_concurrent_streams", "max_concurrent_searches"),
        "Find the clients that send most (the request log of {who}, and the rejected addresses "
        "above), and let them send fewer requests at once; or raise {limit}, or start another "
        "gateway.",
    ),
}
_OTHERWISE = (
    "Let the client wait for answers before it sends more; if many machines share its "
    "address, raise {limit} of {who}."
)
_OF_ALL = frozenset({OF_ALL_CLIENTS, UNSENT_BYTES, *GATEWAY_TOTAL_LIMITS})


class _Rejecting(NamedTuple):
    """A service that rejects a client. `broker` is -1 if the service is no broker."""

    service: str
    broker: int
    client: LimitedClient


def limited(view: ClusterView, scope: Scope) -> Iterator[Finding]:
    """Yields one finding for each limit and address, whichever services reject requests.

    A limit of all clients together has one finding for all addresses. A service is left out if it
    has rejected no request for OVER_AFTER_MS.
    """
    found: dict[tuple[str, str], list[_Rejecting]] = {}
    for each in (*_of_services(view), *_of_gateways(view)):
        client = each.client
        if scope.broker not in (None, each.broker) or client.last_ms > OVER_AFTER_MS:
            continue
        address = "" if client.limit in _OF_ALL else client.address
        found.setdefault((client.limit, address), []).append(each)
    for (limit, address), rejecting in sorted(found.items()):
        yield _finding(limit, address, rejecting)


def _of_services(view: ClusterView) -> Iterator[_Rejecting]:
    """Leaves out clients whose many connections are a finding about the service."""
    for state in view.reporters:
        broker = state.id if state.role == BROKER else -1
        for client in state.limited_clients:
            if not _has_finding(view, state, client):
                yield _Rejecting(name_of(state), broker, client)


def _of_gateways(view: ClusterView) -> Iterator[_Rejecting]:
    """Yields the clients in the gateways' announcements, as controllers report them."""
    for gateway in known_gateways(view.observed.states):
        if state_of(gateway) == ALIVE:
            name = gateway_name(gateway)
            many = next((p for p in gateway.pressures if p.resource == CONNECTIONS), None)
            for client in gateway.limited_clients:
                if client.limit != MAX_CONNECTIONS or not broker_pressures.is_of_client(
                    many, client.address
                ):
                    yield _Rejecting(name, -1, client)


def of_many_connections(view: ClusterView, broker_id: int) -> list[str]:
    """Returns evidence: the broker's rejections of the client that has most connections."""
    state = view.brokers.get(broker_id)
    clients = () if state is None else state.limited_clients
    return [
        _line(name_of(state), client)
        for client in clients
        if state is not None and _has_finding(view, state, client)
    ]


def _has_finding(view: ClusterView, state: ServiceState, client: LimitedClient) -> bool:
    """Whether the client's many connections are a finding about the service."""
    if client.limit != MAX_CONNECTIONS:
        return False
    if state.role != BROKER:
        many = view.controller_pressures.get(state.id, {}).get(CONNECTIONS)
        return broker_pressures.is_of_client(many, client.address)
    return broker_pressures.connects_most(view, state.id, client.address)


def _counted(limit: str) -> tuple[str, str]:
    """Returns what is rejected, singular and plural. An idle connection above the limit is
    closed."""
    if limit == "connections":
        return "connection", "connections"
    if limit in ANSWER_LIMITS:
        return "answer", "answers"
    if limit in METRICS_LIMITS:
        return "metrics-port connection", "metrics-port connections"
    if limit == MAX_CONNECTIONS:
        return "request or idle connection", "requests or idle connections"
    return "request", "requests"


def _line(service: str, client: LimitedClient) -> str:
    return (
        f"{service} has rejected {plural(client.rejected, *_counted(client.limit))} of "
        f"client {client.address} by {client.limit}={client.value}, the last "
        f"{span(client.last_ms)} ago"
    )


def _finding(limit: str, address: str, rejecting: Sequence[_Rejecting]) -> Finding:
    brokers = {each.service: each.broker for each in rejecting}
    who, value = listed(brokers), max(each.client.value for each in rejecting)
    of_whom = f"client {address} has" if address else "all clients together have"
    rejected = plural(sum(each.client.rejected for each in rejecting), *_counted(limit))
    return Finding(
        causes.CLIENT_LIMITED,
        causes.WARNING,
        f"{of_whom} reached {limit} ({value:,}) of {who}: {rejected} rejected, the last "
        f"{span(min(each.client.last_ms for each in rejecting))} ago",
        tuple(_line(each.service, each.client) for each in rejecting),
        _NEXT_STEP.get(limit, _OTHERWISE).format(limit=limit, who=who),
        broker=next(iter(brokers.values())) if len(brokers) == 1 else -1,
    )
