"""Brokers that are alive and cut off, from all other brokers or only from the active controller."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import broker_pressures, causes, starts
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import brokers, span
from tidelog.inspection.explain.observation import Listening, name_of
from tidelog.inspection.state_reports import Finding
from tidelog.phrases import plural

# If this many services do not react to the only one that answers, that one is cut off.
MIN_OUT_OF_REACH = 2
# A broker's connections are restored within this time after its process was paused.
RESUMED_WITHIN_MS = 5_000

NEXT_STEP = (
    "Check the network of the machine of broker {broker}: its interface, routes, firewall and "
    "security rules, and what lies between it and the others; they have to reach "
    "its advertised address. Its process needs no restart: it catches up and rejoins by itself."
)


def roots(view: ClusterView) -> Iterator[Root]:
    for broker_id in sorted(view.brokers):
        if is_cut_off(view, broker_id):
            yield root_of(broker_id)


def root_of(broker_id: int) -> Root:
    return Root(causes.BROKER_CUT_OFF, broker_id)


def is_cut_off(view: ClusterView, broker_id: int) -> bool:
    """Whether a broker answers here and exchanges nothing with other brokers that answer. A broker
    that is stopping, or that accepts no connection for lack of files or CPU, is not cut off."""
    if broker_id not in view.brokers or not _serves(view, broker_id):
        return False
    if _answers_alone(view, broker_id):
        return True
    # Until it has its replicas, a starting broker has nothing to exchange with others.
    return not view.is_starting(broker_id) and view.links.is_cut_off(broker_id)


def _answers_alone(view: ClusterView, broker_id: int) -> bool:
    """Whether explain runs on the broker's side of the partition, where no other service reacts."""
    reporters = view.observed.reporters
    if [state.id for state in reporters if state.broker is not None] != [broker_id]:
        return False
    unreachable = view.observed.silent
    unheard = view.store_lost(broker_id) or any(
        view.links.silent_ms(broker_id, other) is not None for other in view.registry.brokers
    )
    return (
        len(reporters) == 1
        and unheard
        and len(unreachable) >= MIN_OUT_OF_REACH
        and all(service.listening is Listening.SILENT for service in unreachable)
    )


def _serves(view: ClusterView, broker_id: int) -> bool:
    broker = view.broker_states.get(broker_id)
    if broker is not None and broker.state == "stopping":
        return False
    paused_ms = broker.elections.last_standstill_ms if broker and broker.elections else -1
    if 0 <= paused_ms < RESUMED_WITHIN_MS:
        return False
    return broker_pressures.why_silent(view, broker_id) is None


def summary(view: ClusterView, root: Root) -> str:
    broker_id = root.broker
    if _answers_alone(view, broker_id):
        return f"broker {broker_id} is cut off: it alone answers here, and reaches no other service"
    store = " and from the metadata store" if view.store_lost(broker_id) else ""
    return f"broker {broker_id} is alive and cut off from the other brokers{store}"


def evidence(view: ClusterView, broker_id: int) -> Iterator[str]:
    yield from view.links.evidence(broker_id)
    unreached = view.links.unreached(broker_id)
    fine = [b for b in unreached if any(view.links.work(b, other) for other in view.brokers)]
    if fine:
        yield f"{brokers(fine)} and others reach each other"
    state = view.brokers[broker_id]
    if view.store_lost(broker_id):
        unreachable_for = span(state.store.unreachable_ms)
        yield f"it has received no answer from the metadata store for {unreachable_for}"
    elif state.store.last_latency_ms >= 0:
        yield "it reaches the metadata store"
    if _answers_alone(view, broker_id):
        for service in view.observed.silent:
            yield f"from here {service} {service.listening.value}"


# The link between the active controller and a broker.


def is_cut_off_from_controller(view: ClusterView, broker_id: int) -> bool:
    """Whether the broker is alive and the active controller does not reach it, though others do."""
    if view.links.broken_ms(broker_id) is None or is_cut_off(view, broker_id):
        return False
    if view.has_unresolved_name(broker_id) or view.answers_elsewhere(broker_id):
        return False  # Its address is wrong, which is a finding of its own.
    if starts.has_yet_to_register(view, broker_id):
        return False  # The controller connects to it once it has.
    liveness = view.liveness(broker_id)
    alive = liveness is Liveness.ANSWERS or (
        liveness is Liveness.UNREACHABLE and view.is_alive_by_peers(broker_id)
    )
    return alive and _serves(view, broker_id)


def controller_root_of(broker_id: int) -> Root:
    return Root(causes.CONTROLLER_CUT_OFF, broker_id)


def why_commands_wait(view: ClusterView, broker_id: int) -> Root | None:
    """Returns why the active controller's commands do not reach a broker that is alive."""
    if is_cut_off(view, broker_id):
        return root_of(broker_id)
    if is_cut_off_from_controller(view, broker_id):
        return controller_root_of(broker_id)
    return None


def controller_cut_off(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each broker, or a single one if the controller reaches none."""
    cut = [b for b in view.links.disconnected if is_cut_off_from_controller(view, b)]
    if view.active is None or not cut:
        return
    who = name_of(view.active)
    if len(cut) > 1 and not view.links.connected:
        yield Finding(
            causes.CONTROLLER_CUT_OFF,
            causes.CRITICAL,
            f"{who}, the active controller, reaches none of {brokers(cut)}, which are alive: they "
            "receive none of its commands",
            tuple(line for b in cut for line in _evidence(view, b)),
            f"Check the network of the machine of {who}. If a standby controller runs, stop {who}: "
            "the standby takes over.",
        )
        return
    for broker_id in cut:
        address = view.registry.brokers[broker_id].address
        yield Finding(
            causes.CONTROLLER_CUT_OFF,
            causes.WARNING,
            f"{who}, the active controller, does not reach broker {broker_id}, which is alive: "
            "the broker receives none of its commands",
            tuple(_evidence(view, broker_id)),
            f"Check the network from the machine of {who} to {address}, the advertised address of "
            f"broker {broker_id}: routes, firewall and security rules, and what lies between. The "
            "controller connects again, and sends what waits, by itself.",
            broker=broker_id,
        )


def _evidence(view: ClusterView, broker_id: int) -> Iterator[str]:
    yield from (f"broker {broker_id}: {line}" for line in view.links.evidence(broker_id))
    if broker_id in view.brokers:
        yield f"broker-{broker_id} answers requests: it is alive"
    reached = view.links.connected
    yield f"the controller reaches {brokers(reached) if reached else 'no broker'}"
    backlog = view.backlogs.get(broker_id)
    if backlog is not None and backlog.pending:
        yield f"{plural(backlog.pending, 'state change')} wait for broker {broker_id}"
