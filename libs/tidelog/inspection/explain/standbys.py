"""Checks whether another controller can take over from the active one."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes, service_pressures
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import ago, listed
from tidelog.inspection.explain.observation import Listening, SilentService
from tidelog.inspection.explain.reported_metadata import missing_controllers
from tidelog.inspection.state_reports import Finding, MissingController


def no_standby(view: ClusterView) -> Iterator[Finding]:
    """Yields a finding for a cluster that has had a standby. A cluster that runs a single
    controller on purpose has none."""
    if view.active is None:
        return
    silent = {s.id: s for s in view.silent_controllers() if s.id != view.active.id}
    # The shortages of these have findings, which report that they cannot take over.
    short = {b for b, s in silent.items() if view.silenced_by(s)}
    past = {m.controller_id: m for m in view.control.missing_controllers}
    answering = {state.id for state in view.controllers}
    standbys = service_pressures.standbys(view)
    unavailable = sorted({*silent, *past} - answering - standbys - short)
    if not unavailable:
        return
    evidence = tuple(_why_unavailable(view, b, silent.get(b), past.get(b)) for b in unavailable)
    names = listed(f"controller {b}" for b in unavailable)
    are = "is" if len(unavailable) == 1 else "are"
    who = f"controller-{view.active.id}"
    cause, severity = causes.NO_STANDBY, causes.WARNING
    summary = f"{who} is active, and no standby controller can take over: {names} {are} missing"
    if standbys:
        cause, severity = causes.STANDBY_MISSING, causes.INFO
        others = listed(f"controller {b}" for b in sorted(standbys))
        summary = f"{names} {are} missing; {others} can take over from {who}"
    next_step = _next_step(view, unavailable[0], silent.get(unavailable[0]))
    yield Finding(cause, severity, summary, evidence, next_step)


def faults_of_missing(view: ClusterView) -> list[str]:
    """Returns evidence about missing controllers: the faults with which they ended, and whether
    they were at their memory limit."""
    missing = missing_controllers(view.observed.reporters)
    lines = {m.controller_id: _fault(view, m.controller_id, m) for m in missing}
    return [f"controller-{b}: {line}" for b, line in lines.items() if line]


def _fault(view: ClusterView, controller_id: int, past: MissingController | None) -> str:
    """Returns why its last process ended, or "" if that is not known. `past` is None while it is
    registered, which it stays until its lease ends."""
    memory = service_pressures.memory_at_death(view, controller_id)
    if past is None:
        return memory
    if past.stopped_at_ms or not past.fault:
        return "" if past.stopped_at_ms else memory
    details = f"as it reported {ago(past.fault_at_ms, view.now_ms())}, {past.fault}"
    return f"{details}; {memory}" if memory else details


def _why_unavailable(
    view: ClusterView,
    controller_id: int,
    silent: SilentService | None,
    past: MissingController | None,
) -> str:
    details = f"controller-{controller_id}"
    if silent is not None:
        details += (
            f" at {silent.address} {silent.listening.value}; when queried, it {silent.problem}"
        )
    elif past is not None:
        details += f" at {past.address} is not registered"
    if past is not None and past.stopped_at_ms:
        return f"{details}; it was stopped {ago(past.stopped_at_ms, view.now_ms())}"
    if past is not None and silent is not None and silent.listening is Listening.ACCEPTS:
        return f"{details}; its registration has ended"
    fault = _fault(view, controller_id, past)
    if past is not None:
        how = "its last process has ended without a clean stop"
        return f"{details}; {how}; {fault}" if fault else f"{details}; {how}"
    refuses = silent is not None and silent.listening is Listening.REFUSES
    return f"{details}; {fault}" if refuses and fault else details


def _next_step(view: ClusterView, controller_id: int, silent: SilentService | None) -> str:
    missing = {m.controller_id: m for m in missing_controllers(view.observed.reporters)}
    has_ended = silent is None or silent.listening is Listening.REFUSES
    if has_ended and _fault(view, controller_id, missing.get(controller_id)):
        return (
            f"Raise the memory limit of controller {controller_id} (ulimit -v, or its "
            f"container's). Start controller {controller_id} again."
        )
    if silent is not None and silent.listening is Listening.ACCEPTS:
        return (
            f"Check the process of controller {controller_id}: is it stopped (kill -CONT PID "
            "lets it continue), or starved of CPU or memory? Restart it if it does not recover."
        )
    if silent is not None and silent.listening is Listening.SILENT:
        return (
            f"Check the machine of controller {controller_id} and the network to it; start the "
            "controller again if its process has ended."
        )
    return (
        f"Start controller {controller_id} again. A controller that was removed for good is "
        "forgotten seven days after its last report."
    )
