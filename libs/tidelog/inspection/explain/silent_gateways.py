"""Gateways that announced themselves to controllers and no longer do."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import broker_pressures, causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import clock_time, gateway_name, listed, span
from tidelog.inspection.explain.observation import Listening, SilentGateway, name_of
from tidelog.inspection.gateway_reports import (
    ALIVE,
    ANNOUNCE_INTERVAL_MS,
    GATEWAY_CUT_OFF_MS,
    AnnouncedGateway,
    known_gateways,
    state_of,
)
from tidelog.inspection.state_reports import Finding

_EFFECT = (
    "clients get no answers from its REST API and console; gRPC clients and `tidelog` commands do "
    "not need it"
)
_EFFECT_OF_CUT = "what its REST API and console request from a controller may fail"
_FORGOTTEN = "One that was removed for good is forgotten a day after its last announcement."
_START = (
    "Start it again: `make start PART=admin-api` for one of `make up`, otherwise as it was started "
    f"before. {_FORGOTTEN}"
)
_WHERE_TO_CHECK = (
    "On {host}, check whether process {pid} runs (`ps -o stat= -p {pid}`). Where it has ended: "
    "{start}"
)
# The state of a gateway, by the result of probing its address; None: it was not probed.
_STATES = {
    Listening.ACCEPTS: "is paused: it accepts connections and does not respond",
    Listening.REFUSES: "has ended without a clean stop: its address refuses connections",
    Listening.BUSY: "is cut off from the controllers, though it answers HTTP: no controller "
    "receives its announcements",
    Listening.UNRESOLVED: "is dead or cut off: its address does not resolve",
    None: "is dead, stopped or cut off: its address cannot be reached from other machines",
}
_OUT_OF_REACH = "is dead or cut off: its address does not react to connections"


def silent(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each gateway. One that answers HTTP may only have lost a few
    announcements."""
    alive = [g for g in known_gateways(view.observed.states) if state_of(g) == ALIVE]
    for each in view.observed.silent_gateways:
        answers = each.listening is Listening.BUSY
        if not answers or each.gateway.last_heard_ms >= GATEWAY_CUT_OFF_MS:
            yield _finding(view, each, alive)


def _finding(view: ClusterView, each: SilentGateway, alive: list[AnnouncedGateway]) -> Finding:
    gateway = each.gateway
    state = _STATES.get(each.listening, _OUT_OF_REACH)
    is_cut_off = each.listening is Listening.BUSY
    effect = _EFFECT_OF_CUT if is_cut_off else _EFFECT
    controllers = listed(name_of(state) for state in view.controllers)
    evidence = [
        f"{controllers}: the last announcement of the gateway at {gateway.address} (host "
        f"{gateway.host}, process {gateway.pid}, release {gateway.version}, started "
        f"{clock_time(gateway.started_at_ms)}) arrived {span(gateway.last_heard_ms)} ago; one is "
        f"sent every {span(ANNOUNCE_INTERVAL_MS)}"
    ]
    if alive:
        answering = listed(f"{g.address} on {g.host}" for g in alive)
        evidence.append(f"alive gateways: {answering}; their clients are not affected")
    since = clock_time(view.now_ms() - gateway.last_heard_ms)
    short = [p for p in gateway.pressures if p.resource in broker_pressures.CAUSES]
    who = gateway_name(gateway)
    evidence += [broker_pressures.reported(who, pressure, view.now_ms()) for pressure in short]
    summary = f"{who} {state}; silent since {since} ({span(gateway.last_heard_ms)}); {effect}"
    steps = [_next_step(each)]
    if short:
        shortages = [
            broker_pressures.shortage(broker_pressures.CAUSES[p.resource], "it", p) for p in short
        ]
        summary += f"; in its last announcement: {listed(shortages)}"
        steps = [
            broker_pressures.next_step_of(broker_pressures.CAUSES[p.resource], who) for p in short
        ] + steps
    return Finding(causes.GATEWAY_SILENT, causes.WARNING, summary, tuple(evidence), " ".join(steps))


def _next_step(each: SilentGateway) -> str:
    host, pid = each.gateway.host, each.gateway.pid
    if each.listening is Listening.ACCEPTS:
        return (
            f"On {host}, check process {pid}: is it stopped (`ps -o stat= -p {pid}` prints T; "
            f"`kill -CONT {pid}` lets it continue), or starved of CPU or memory? Otherwise end it "
            "and start it again."
        )
    if each.listening is Listening.REFUSES:
        return f"{_START} Its log contains the reason for its end."
    if each.listening is Listening.BUSY:
        return f"Check the network from {host} to the addresses of the controllers."
    check = _WHERE_TO_CHECK.format(host=host, pid=pid, start=_START)
    if each.listening is None:
        return check
    return f"Check the machine {host} and the network to it. {check}"
