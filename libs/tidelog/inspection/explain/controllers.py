"""Problems of controllers, unacknowledged commands of brokers, and deletions."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.inspection.explain import (
    backlogs,
    causes,
    cut_offs,
    packet_loss,
    service_pressures,
    standbys,
)
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import MAX_NAMED, brokers, listed, span
from tidelog.inspection.explain.observation import BROKER, Listening, SilentService, name_of
from tidelog.inspection.explain.packet_loss import TO_SEE_LOSS
from tidelog.inspection.explain.replicas import failure_of, not_queried, why_broker_does_nothing
from tidelog.inspection.explain.root_causes import Following, effects
from tidelog.inspection.state_reports import BrokerBacklog, Finding, ServiceState, WaitingDeletion
from tidelog.phrases import plural

DELETION_WAITS_MIN_MS = 2_000
_MAX_PENDING_SHOWN = 3


_TO_START_A_CONTROLLER = (
    "Start a controller; a controller that runs and is not elected logs the reason."
)
_TO_RESUME_A_CONTROLLER = (
    "Check the process of {which}: is it stopped (kill -CONT PID lets it continue), or starved "
    "of CPU or memory? One that continues takes part in elections by itself. Otherwise start "
    "another controller."
)


def no_controller(view: ClusterView) -> Iterator[Finding]:
    if view.active is not None or (view.metadata_unread and not view.silent_controllers()):
        return
    named = view.named_active()
    silent = {service.address: service for service in view.observed.silent}
    if any(view.silenced_by(silent[address]) for address in named if address in silent):
        return  # The resource that it lacks has a finding of its own.
    evidence = [_standby(state) for state in view.controllers]
    evidence += [
        f"the store names the one at {address} as active; it {silent[address].listening.value} "
        f"and {silent[address].problem}"
        for address in named
        if address in silent
    ]
    evidence += [
        f"{service} {service.listening.value} and {service.problem}"
        for service in view.silent_controllers()
        if service.address not in named
    ]
    reporters = sorted({name_of(state) for state in view.observed.reporters if state.broker})
    if not named and reporters:
        sources = ", ".join(reporters[:MAX_NAMED])
        evidence.append(f"no controller is registered as active, according to {sources}")
    evidence += standbys.faults_of_missing(view)
    because = tuple(
        root
        for service in view.silent_controllers()
        if (root := service_pressures.root_of(view, service))
    )
    if view.store_lost_by_all():
        because = (str(view.lost_store_root),)
    cause, severity, summary, next_step = _without_controller(
        [silent[address] for address in named if address in silent], view.silent_controllers()
    )
    if cause == causes.CONTROLLER_UNREACHABLE:
        evidence += packet_loss.evidence(view)
    yield Finding(
        cause,
        severity,
        summary,
        tuple(evidence),
        "The controllers take part in elections by themselves once the metadata store accepts "
        "changes."
        if view.store_lost_by_all()
        else f"See {listed(because)}. {next_step}"
        if because
        else next_step,
        because=because,
    )


def _standby(state: ServiceState) -> str:
    line = f"{name_of(state)} at {state.address} answers and is not active"
    if state.controller is not None and state.controller.active:
        line = (
            f"{name_of(state)} at {state.address} answers and claims to be active in epoch "
            f"{state.controller.controller_epoch}; brokers report another"
        )
    if state.store.unreachable_ms >= 0:
        line += f"; it has not reached the metadata store for {span(state.store.unreachable_ms)}"
    return line


def _without_controller(
    silent: Sequence[SilentService], all_silent: Sequence[SilentService]
) -> tuple[str, str, str, str]:
    """Returns cause, severity, summary and next step.

    `silent` are the controllers that the store names as active; they are assessed as in
    `ClusterView.has_no_controller`. If it names none, all controllers that ran lately count.
    """
    listening = {service.listening for service in silent}
    effect = "no service elects leaders, creates or deletes topics"
    if Listening.BUSY in listening:
        return (
            causes.CONTROLLER_UNREACHABLE,
            causes.WARNING,
            "the active controller is alive and did not answer in time, so that its state "
            "is missing here",
            "Run explain again with a longer --timeout. If this remains, check the network to it: "
            f"{TO_SEE_LOSS}. Then check what CPU and memory its machine has left.",
        )
    if Listening.UNRESOLVED in listening:
        service = next(s for s in silent if s.listening is Listening.UNRESOLVED)
        who = "the active controller" if service.id < 0 else f"controller {service.id}"
        return (
            causes.CONTROLLER_UNREACHABLE,
            causes.WARNING,
            f"{who} advertises a name that does not resolve here: {service.address}; its state "
            "is missing here",
            f"Correct advertised_address of {who}, or the name resolution of this machine.",
        )
    if listening & {Listening.SILENT, Listening.ERRS}:
        return (
            causes.CONTROLLER_UNREACHABLE,
            causes.WARNING,
            "the active controller cannot be queried, so that its state is missing here",
            "Check the network to its address; run explain on another machine, or through another "
            "service.",
        )
    if Listening.ACCEPTS in listening:
        return (
            causes.NO_CONTROLLER,
            causes.CRITICAL,
            "the active controller is paused: it accepts connections and does not respond; "
            f"{effect}",
            "Check its process: is it stopped, or starved of CPU or memory? Another one takes "
            "over when its lease has ended.",
        )
    paused = [s for s in all_silent if s.listening is Listening.ACCEPTS and s.id >= 0]
    summary, next_step = f"no controller is active: {effect}", _TO_START_A_CONTROLLER
    if paused:
        which = listed(f"controller {service.id}" for service in paused)
        are = "is" if len(paused) == 1 else "are"
        summary += f"; {which} {are} paused: connections are accepted, and no request is answered"
        next_step = _TO_RESUME_A_CONTROLLER.format(which=which)
    return causes.NO_CONTROLLER, causes.CRITICAL, summary, next_step


def no_report(view: ClusterView) -> Iterator[Finding]:
    """Reports services that are alive and did not answer in time. Brokers, and the active
    controller, are left out: they have findings of their own."""
    named = view.named_active()
    busy = [
        service
        for service in view.observed.silent
        if service.listening is Listening.BUSY
        and service.address not in named
        and not (service.role == BROKER and service.id >= 0)
    ]
    if not busy:
        return
    are = "is" if len(busy) == 1 else "are"
    yield Finding(
        causes.BROKER_BUSY,
        causes.WARNING,
        f"{listed(busy)} {are} alive and did not answer in time, so that the state of the cluster "
        "is not known",
        tuple(
            f"{service} {service.listening.value}; when queried, it {service.problem}"
            for service in view.observed.silent[:MAX_NAMED]
        ),
        "Run explain again with a longer --timeout, or through a controller (--bootstrap "
        "host:port), whose answer is smaller. If this remains, check the network to them (`ping -c "
        "100`, retrans in `ss -ti`), then what CPU, memory and disk their machines have left.",
    )


def unacknowledged(view: ClusterView, following: Following) -> Iterator[Finding]:
    """Yields backlogs that are late, and those that cause symptoms."""
    for broker_id in sorted(view.backlogs):
        backlog = view.backlogs[broker_id]
        if _follows_from_replicas(view, backlog) and backlogs.root_of(backlog) not in following:
            continue
        if backlogs.is_late(backlog) or (
            backlog.pending and backlogs.root_of(backlog) in following
        ):
            yield _backlog(view, backlog, following)


def _follows_from_replicas(view: ClusterView, backlog: BrokerBacklog) -> bool:
    """Whether all states that it rejects are of replicas that report a failure: that has a finding
    of its own."""
    failed = {
        (replica.topic, replica.partition)
        for replica in view.replicas_of(backlog.broker_id)
        if failure_of(replica, backlog.broker_id) is not None
    }
    return bool(backlog.first) and all(
        pending.problem and (pending.topic, pending.partition) in failed
        for pending in backlog.first
    )


def _backlog(view: ClusterView, backlog: BrokerBacklog, following: Following) -> Finding:
    broker_id, root = backlog.broker_id, backlogs.root_of(backlog)
    evidence = _evidence_of(view, backlog)
    reason = why_broker_does_nothing(view, broker_id)
    if reason is None and broker_id in view.brokers:
        evidence.append(f"broker-{broker_id} answers requests: it is alive")
    evidence += effects(root, following.get(root, ()))
    changes = plural(backlog.pending, "state change")
    is_starting = reason is not None and reason.root.cause == causes.BROKER_STARTING
    is_worked_through = backlogs.is_worked_through(backlog) and (reason is None or is_starting)
    severity = causes.INFO if is_worked_through else causes.WARNING
    how = "has not acknowledged" if backlog.overdue else "is behind with"
    summary = f"broker {broker_id} {how} {changes}, the oldest for {span(backlog.oldest_ms)}"
    obstacle = cut_offs.why_commands_wait(view, broker_id)
    if obstacle is not None:
        severity, summary = causes.WARNING, f"{summary}: the controller does not reach it"
        next_step = f"See {obstacle}; the controller continues to send."
    elif reason is not None:
        summary += f": it {reason.words}"
        next_step = f"See what is wrong with broker {broker_id}; the controller continues to send."
    elif is_worked_through:
        summary = f"broker {broker_id} works through {changes}{_pace(backlog)}"
        next_step = (
            "Nothing; it acknowledges them by itself. If their number grows, check what CPU and "
            f"disk broker {broker_id} has left."
        )
    else:
        next_step = (
            f"Check what CPU and disk broker {broker_id} has left, its log, and the "
            "network from the controller to it. The controller continues to send."
        )
    return Finding(
        root.cause,
        severity,
        summary,
        tuple(evidence),
        next_step,
        broker=broker_id,
        partitions=tuple(f"{p.topic}/{p.partition}" for p in backlog.first[:MAX_NAMED]),
        partition_count=backlog.pending,
        because=tuple(
            str(root)
            for root in (obstacle, reason.root if reason is not None else None)
            if root is not None
        ),
    )


def _pace(backlog: BrokerBacklog) -> str:
    a_second = backlogs.states_a_second(backlog)
    return f", {a_second:,} per second" if a_second else ""


def _evidence_of(view: ClusterView, backlog: BrokerBacklog) -> list[str]:
    assert view.active is not None
    evidence = [
        f"{name_of(view.active)} reports: broker {backlog.broker_id}, in incarnation "
        f"{backlog.broker_epoch}, has yet to acknowledge {plural(backlog.pending, 'state')}, the "
        f"oldest for {span(backlog.oldest_ms)}{_revisions(backlog)}"
    ]
    if backlog.acknowledged:
        evidence.append(
            f"within {span(backlog.working_ms)} it has acknowledged "
            f"{plural(backlog.acknowledged, 'state')}, the last "
            f"{span(backlog.last_acknowledged_ms)} ago"
        )
    if backlog.problem:
        evidence.append(f'its last command failed: "{backlog.problem}"')
    for pending in backlog.first[:_MAX_PENDING_SHOWN]:
        rejected = f', rejected: "{pending.problem}"' if pending.problem else ""
        known = pending.acknowledged_revision
        evidence.append(
            f"{pending.topic}/{pending.partition} is to reach revision {pending.revision}"
            f"{f' from {known}' if known else ''}{rejected}"
        )
    return evidence


def _revisions(backlog: BrokerBacklog) -> str:
    """How far it is behind. Empty if the controller, of an older version, does not report it."""
    if not backlog.desired_revision:
        return ""
    known = backlog.acknowledged_revision
    acknowledged = f"it has acknowledged revision {known}" if known else "it has acknowledged none"
    return f"; {acknowledged}, and the newest desired is {backlog.desired_revision}"


def deletions(view: ClusterView) -> Iterator[Finding]:
    for deletion in view.control.deletions:
        if deletion.waiting_ms >= DELETION_WAITS_MIN_MS and deletion.brokers:
            yield _deletion(view, deletion)


def _deletion(view: ClusterView, deletion: WaitingDeletion) -> Finding:
    assert view.active is not None
    waits = [_why_not_deleted(view, deletion, broker_id) for broker_id in deletion.brokers]
    at_work = all(wait.how is _How.WORKING for wait in waits)
    return Finding(
        causes.DELETION_WAITS,
        causes.INFO if at_work else causes.WARNING,
        f"{_what(deletion)} has waited {span(deletion.waiting_ms)} for {brokers(deletion.brokers)}",
        (
            f"{name_of(view.active)} reports: topic id {deletion.topic_id} has been waiting for "
            f"{span(deletion.waiting_ms)}",
            *(wait.line for wait in waits),
        ),
        _how_to_delete(waits),
        deletion.topic,
        broker=deletion.brokers[0] if len(deletion.brokers) == 1 else -1,
        because=tuple(dict.fromkeys(str(wait.root) for wait in waits if wait.root is not None)),
    )


def _what(deletion: WaitingDeletion) -> str:
    if not deletion.first_partition:
        return f"the deletion of topic {deletion.topic!r}"
    return (
        f"the removal of the partitions of topic {deletion.topic!r} from "
        f"{deletion.first_partition} on"
    )


class _How(enum.Enum):
    """The state of a broker that a deletion waits for."""

    UNAVAILABLE = enum.auto()  # it does nothing, according to all reports
    BLOCKED = enum.auto()  # it is alive, and has a problem
    WORKING = enum.auto()


class _Wait(NamedTuple):
    broker_id: int
    how: _How
    line: str
    root: Root | None = None


def _how_to_delete(waits: Sequence[_Wait]) -> str:
    """A broker that is alive must not be stopped for this: it holds what it has to delete."""
    unavailable = [wait.broker_id for wait in waits if wait.how is _How.UNAVAILABLE]
    held_up = [wait.broker_id for wait in waits if wait.how is _How.BLOCKED]
    steps = []
    if unavailable:
        steps.append(
            f"Repair {brokers(unavailable)}, or stop "
            f"{'its process' if len(unavailable) == 1 else 'their processes'}: it does not wait "
            "for unavailable brokers; these delete their replicas when they are back."
        )
    if held_up:
        steps.append(f"Repair what holds up {brokers(held_up)}, which deletes them then by itself.")
    return " ".join(steps) or "Run explain again in some seconds; the deletion continues by itself."


def _why_not_deleted(view: ClusterView, deletion: WaitingDeletion, broker_id: int) -> _Wait:
    who = f"broker {broker_id}"
    reason = why_broker_does_nothing(view, broker_id)
    if reason is not None:
        starts = reason.root.cause == causes.BROKER_STARTING
        how = _How.WORKING if starts else _How.UNAVAILABLE
        return _Wait(broker_id, how, f"{who} {reason.words}", reason.root)
    if view.liveness(broker_id) is Liveness.BUSY:
        busy = not_queried(view, broker_id)
        return _Wait(broker_id, _How.WORKING, f"{who} {busy.words}", busy.root)
    backlog = backlogs.pending_of(view, broker_id)
    for pending in backlog.first if backlog else ():
        if pending.topic == deletion.topic and pending.problem:
            return _Wait(broker_id, _How.BLOCKED, f'{who} rejected: "{pending.problem}"')
    if view.store_lost(broker_id):
        root = view.store_root(broker_id)
        return _Wait(broker_id, _How.BLOCKED, f"{who} does not reach the metadata store", root)
    for replica in view.replicas_of(broker_id):
        failure = failure_of(replica, broker_id)
        if failure is not None and replica.topic == deletion.topic:
            return _Wait(broker_id, _How.BLOCKED, f"{who} {failure.words}", failure.root)
    if backlog is None:
        line = f"{who} answers and has not acknowledged that it deleted them"
        return _Wait(broker_id, _How.BLOCKED, line)
    late_root = backlogs.root_of(backlog) if backlogs.is_late(backlog) else None
    if backlogs.is_worked_through(backlog):
        line = f"{who} works through {plural(backlog.pending, 'state change')}{_pace(backlog)}"
        return _Wait(broker_id, _How.WORKING, line, late_root)
    problem = f': "{backlog.problem}"' if backlog.problem else ""
    line = f"{who} answers and has not carried out its last command in time{problem}"
    return _Wait(broker_id, _How.BLOCKED, line, late_root)
