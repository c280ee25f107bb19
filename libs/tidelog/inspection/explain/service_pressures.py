"""Shortages that controllers and gateways report: open files, memory or CPU."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import broker_pressures, causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import gateway_name, listed
from tidelog.inspection.explain.observation import Listening, SilentService
from tidelog.inspection.gateway_reports import ALIVE, AnnouncedGateway, known_gateways, state_of
from tidelog.inspection.resource_pressures import (
    FILES,
    HAND_OVER_AFTER_MS,
    MEMORY,
    ControllerPressure,
    ResourcePressure,
    has_no_files_left,
)
from tidelog.inspection.state_reports import Finding

_ACTIVE_WITHOUT_FILES = (
    "it is active and still works: it keeps its lease and its open connections, and elects leaders "
    "over these; what needs a new connection to it or from it fails (topics, operations, brokers "
    "that start)"
)
_ACTIVE_SILENT = "it is active, and does not answer in time"


# Controllers that are alive and may take over, however late they answer here.
_MAY_TAKE_OVER = (Listening.BUSY, Listening.ERRS)


def standbys(view: ClusterView) -> set[int]:
    """Returns the controllers that can take over from the active one."""
    found = {state.id for state in view.controllers}
    found |= {
        service.id
        for service in view.silent_controllers()
        if service.listening in _MAY_TAKE_OVER and not view.silenced_by(service)
    }
    return found - {view.active.id} if view.active is not None else found


def of_controllers(view: ClusterView) -> Iterator[Finding]:
    """Yields the shortages of controllers that run. A process that is gone uses nothing."""
    silent = {service.id: service for service in view.silent_controllers()}
    running = {state.id for state in view.controllers}
    running |= {b for b, s in silent.items() if s.listening is not Listening.REFUSES}
    for controller_id in sorted(running & view.controller_pressures.keys()):
        for resource, pressure in sorted(view.controller_pressures[controller_id].items()):
            if resource in broker_pressures.CAUSES:
                yield _of_controller(view, pressure, silent.get(controller_id))


def _of_controller(
    view: ClusterView, pressure: ControllerPressure, silent: SilentService | None
) -> Finding:
    cause, who = broker_pressures.CAUSES[pressure.resource], f"controller {pressure.controller_id}"
    summary, severity = broker_pressures.shortage(cause, who, pressure), causes.WARNING
    evidence = [
        broker_pressures.reported(f"controller-{pressure.controller_id}", pressure, view.now_ms())
    ]
    if silent is not None:
        evidence.append(f"{silent} {silent.listening.value}; when queried, it {silent.problem}")
    if silent is not None and view.silenced_by(silent) == pressure.resource:
        if silent.address not in view.named_active():
            summary += f"; {_standby_without(view)}"
        elif pressure.resource == FILES:
            summary = f"{summary}; {_ACTIVE_WITHOUT_FILES}; {_hand_over(view)}"
            severity = causes.CRITICAL
        else:
            summary += f"; {_ACTIVE_SILENT}"
    step = broker_pressures.next_step_of(cause, who)
    return Finding(cause, severity, summary, tuple(evidence), step)


def _hand_over(view: ClusterView) -> str:
    """Describes what an active controller without files does next."""
    others = sorted(standbys(view))
    if not others:
        return "no other controller can take over"
    return (
        f"it hands over to a standby ({listed(f'controller {b}' for b in others)}) once it could "
        f"open no file for {HAND_OVER_AFTER_MS // 1_000} s"
    )


def _standby_without(view: ClusterView) -> str:
    if view.active is None:
        return "it may not be able to take over"
    also = "" if standbys(view) else ", and no other controller can"
    return f"it cannot take over from controller-{view.active.id}{also}"


def root_of(view: ClusterView, service: SilentService) -> str:
    """Returns the shortage of a silent controller, as `because` names it, or "". Requests to one at
    its memory limit may fail."""
    known = view.controller_pressures.get(service.id, {})
    resource = view.silenced_by(service)
    if not resource and MEMORY in known and service.listening is not Listening.REFUSES:
        resource = MEMORY
    return f"{broker_pressures.CAUSES[resource]} of controller {service.id}" if resource else ""


def root_of_active(view: ClusterView) -> str:
    """Returns the shortage of an active controller that does not answer, or ""."""
    named = view.named_active() if view.active is None else ()
    found = (root_of(view, s) for s in view.silent_controllers() if s.address in named)
    return next(filter(None, found), "")


def memory_at_death(view: ClusterView, controller_id: int) -> str:
    """Returns how much of its memory limit a controller used when it ended, by its last report, or
    "" if it was not close to the limit."""
    memory = view.controller_pressures.get(controller_id, {}).get(MEMORY)
    return broker_pressures.memory_at_end(memory)


def of_gateways(view: ClusterView) -> Iterator[Finding]:
    """Yields the shortages of gateways that announce themselves; `gateways` reports silent ones."""
    for gateway in known_gateways(view.observed.states):
        for pressure in gateway.pressures if state_of(gateway) == ALIVE else ():
            if pressure.resource in broker_pressures.CAUSES:
                yield _of_gateway(view, gateway, pressure)


def _of_gateway(
    view: ClusterView, gateway: AnnouncedGateway, pressure: ResourcePressure
) -> Finding:
    cause, who = broker_pressures.CAUSES[pressure.resource], gateway_name(gateway)
    summary = broker_pressures.shortage(cause, who, pressure)
    if has_no_files_left(pressure):
        summary += "; new connections to its REST API and console get no answer"
    return Finding(
        cause,
        causes.WARNING,
        summary,
        (broker_pressures.reported(f"{who} (process {gateway.pid})", pressure, view.now_ms()),),
        broker_pressures.next_step_of(cause, who),
    )
