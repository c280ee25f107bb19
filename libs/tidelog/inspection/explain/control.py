"""What is wrong with controllers, with what brokers have yet to acknowledge, and with
deletions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.observed import (
    BROKER,
    Listening,
    SilentService,
    name_of,
)
from tidelog.inspection.explain.replicas import failure_of, not_asked, why_broker_does_nothing
from tidelog.inspection.explain.words import MAX_NAMED, brokers, listed, span
from tidelog.inspection.model import BrokerBacklog, Finding, ServiceState, WaitingDeletion
from tidelog.wording import plural

# A command that was sent is acknowledged within milliseconds.
BACKLOG_MIN_MS = 1_000
DELETION_WAITS_MIN_MS = 2_000
_MAX_PENDING_TOLD = 3


def no_controller(view: ClusterView) -> Iterator[Finding]:
    if view.active is not None or (view.nobody_has_read and not view.silent_controllers()):
        return
    named = view.named_active()
    silent = {service.address: service for service in view.observed.silent}
    evidence = [_standby(state) for state in view.controllers]
    evidence += [
        f"the one at {address} is active by the store; it {silent[address].listening.value} and "
        f"{silent[address].problem}"
        for address in named
        if address in silent
    ]
    evidence += [
        f"{service} {service.listening.value} and {service.problem}"
        for service in view.silent_controllers()
        if service.address not in named
    ]
    tellers = sorted({name_of(state) for state in view.observed.tellers if state.broker})
    if not named and tellers:
        told_by = ", ".join(tellers[:MAX_NAMED])
        evidence.append(f"no controller is registered as active, by the word of {told_by}")
    because: tuple[str, ...] = ()
    if view.everybody_lost_store():
        because = (str(Root(causes.STORE_UNREACHABLE)),)
    cause, severity, summary, next_step = _without_controller(
        [silent[address] for address in named if address in silent]
    )
    yield Finding(
        cause,
        severity,
        summary,
        tuple(evidence),
        "The controllers stand for election by themselves once the metadata store answers."
        if because
        else next_step,
        because=because,
    )


def _standby(state: ServiceState) -> str:
    told = f"{name_of(state)} at {state.address} answers and is not active"
    if state.controller is not None and state.controller.active:
        told = (
            f"{name_of(state)} at {state.address} answers and holds itself to be active in epoch "
            f"{state.controller.controller_epoch}; brokers know of another"
        )
    if state.store.unreachable_ms >= 0:
        told += f"; it has not reached the metadata store for {span(state.store.unreachable_ms)}"
    return told


def _without_controller(silent: Sequence[SilentService]) -> tuple[str, str, str, str]:
    """Cause, severity, summary and next step, by how those are that the store names: as
    `ClusterView.nobody_reigns` judges."""
    listening = {service.listening for service in silent}
    nobody = "nobody elects leaders, creates or deletes topics"
    if Listening.BUSY in listening:
        return (
            causes.CONTROLLER_UNREACHABLE,
            causes.WARNING,
            "the active controller lives and cannot be asked in time, so that what it knows is "
            "not told here",
            "Ask again, with more time (--timeout-ms); if it stays so, look at what CPU and "
            "memory its machine has left.",
        )
    if listening & {Listening.SILENT, Listening.ERRS}:
        return (
            causes.CONTROLLER_UNREACHABLE,
            causes.WARNING,
            "the active controller cannot be asked, so that what it knows is not told here",
            "Check the network to its address; ask from another machine, or one of the services.",
        )
    if Listening.ACCEPTS in listening:
        return (
            causes.NO_CONTROLLER,
            causes.CRITICAL,
            "the active controller stands still: it takes connections and answers nothing; "
            f"{nobody}",
            "Look at its process: is it stopped, or starved of CPU or memory? Another one takes "
            "over when its lease has ended.",
        )
    return (
        causes.NO_CONTROLLER,
        causes.CRITICAL,
        f"no controller is active: {nobody}",
        "Start a controller; one that runs and is not elected says why in its log.",
    )


def nobody_tells(view: ClusterView) -> Iterator[Finding]:
    """Of services that live and could not be asked in time, beside the brokers and the active
    controller among them, which have findings of their own: there is always one."""
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
    lives = "lives" if len(busy) == 1 else "live"
    yield Finding(
        causes.BROKER_BUSY,
        causes.WARNING,
        f"{listed(busy)} {lives} and cannot be asked in time, so that nobody tells how the "
        "cluster stands",
        tuple(
            f"{service} {service.listening.value}; asked, it {service.problem}"
            for service in view.observed.silent[:MAX_NAMED]
        ),
        "Ask again, with more time (--timeout-ms), or a controller (--bootstrap host:port), which "
        "has less to tell; if it stays so, look at what CPU, memory and disk their machines have "
        "left.",
    )


def backlogs(view: ClusterView) -> Iterator[Finding]:
    for broker_id in sorted(view.backlogs):
        backlog = view.backlogs[broker_id]
        if backlog.pending and (backlog.overdue or backlog.oldest_ms >= BACKLOG_MIN_MS):
            yield _backlog(view, backlog)


def _backlog(view: ClusterView, backlog: BrokerBacklog) -> Finding:
    assert view.active is not None
    broker_id = backlog.broker_id
    teller = name_of(view.active)
    evidence = [
        f"{teller} says: broker {broker_id}, in life {backlog.broker_epoch}, has yet to "
        f"acknowledge {plural(backlog.pending, 'state')}, the oldest for "
        f"{span(backlog.oldest_ms)}{_revisions(backlog)}"
    ]
    if backlog.problem:
        evidence.append(f'its last command failed: "{backlog.problem}"')
    for pending in backlog.first[:_MAX_PENDING_TOLD]:
        refused = f', refused: "{pending.problem}"' if pending.problem else ""
        known = pending.acknowledged_revision
        evidence.append(
            f"{pending.topic}/{pending.partition} is to reach revision {pending.revision}"
            f"{f' from {known}' if known else ''}{refused}"
        )
    reason = why_broker_does_nothing(view, broker_id)
    because: tuple[str, ...] = ()
    if reason is not None:
        because = (str(reason.root),)
    elif broker_id in view.brokers:
        evidence.append(f"broker-{broker_id} answers questions: it lives")
    how = "has not acknowledged" if backlog.overdue else "is behind with"
    return Finding(
        causes.COMMAND_OVERDUE if backlog.overdue else causes.COMMAND_BACKLOG,
        causes.WARNING,
        f"broker {broker_id} {how} {plural(backlog.pending, 'state change')}, the oldest for "
        f"{span(backlog.oldest_ms)}" + (f": it {reason.words}" if reason else ""),
        tuple(evidence),
        f"See what is wrong with broker {broker_id}; the controller goes on sending."
        if reason
        else f"Look at the network from the controller to broker {broker_id}, and at its log; "
        "restart it where it does not take commands. The controller goes on sending.",
        broker=broker_id,
        partitions=tuple(f"{p.topic}/{p.partition}" for p in backlog.first[:MAX_NAMED]),
        partition_count=backlog.pending,
        because=because,
    )


def _revisions(backlog: BrokerBacklog) -> str:
    """How far it is behind; empty: the controller does not tell, being of an older version."""
    if not backlog.desired_revision:
        return ""
    known = backlog.acknowledged_revision
    acknowledged = f"it has acknowledged revision {known}" if known else "it has acknowledged none"
    return f"; {acknowledged}, and the newest desired is {backlog.desired_revision}"


def deletions(view: ClusterView) -> Iterator[Finding]:
    for deletion in view.reign.deletions if view.reign else ():
        if deletion.waiting_ms >= DELETION_WAITS_MIN_MS and deletion.brokers:
            yield _deletion(view, deletion)


def _deletion(view: ClusterView, deletion: WaitingDeletion) -> Finding:
    assert view.active is not None
    evidence = [
        f"{name_of(view.active)} says: topic id {deletion.topic_id} has been waiting for "
        f"{span(deletion.waiting_ms)}"
    ]
    because: list[str] = []
    for broker_id in deletion.brokers:
        line, root = _why_not_deleted(view, deletion, broker_id)
        evidence.append(line)
        if root is not None:
            because.append(str(root))
    alone = len(deletion.brokers) == 1
    return Finding(
        causes.DELETION_WAITS,
        causes.WARNING,
        f"the deletion of topic {deletion.topic!r} has waited {span(deletion.waiting_ms)} for "
        f"{brokers(deletion.brokers)}",
        tuple(evidence),
        f"Mend {brokers(deletion.brokers)}, or stop "
        f"{'its process' if alone else 'their processes'}: brokers that are away are not waited "
        "for, and delete their replicas when they are back.",
        deletion.topic,
        broker=deletion.brokers[0] if alone else -1,
        because=tuple(because),
    )


def _why_not_deleted(
    view: ClusterView, deletion: WaitingDeletion, broker_id: int
) -> tuple[str, Root | None]:
    reason = why_broker_does_nothing(view, broker_id)
    if reason is not None:
        return f"broker {broker_id} {reason.words}", reason.root
    backlog = view.backlogs.get(broker_id)
    for pending in backlog.first if backlog else ():
        if pending.topic == deletion.topic and pending.problem:
            return f'broker {broker_id} refused: "{pending.problem}"', None
    if backlog is not None and backlog.problem:
        return f'broker {broker_id} cannot be told: "{backlog.problem}"', None
    if view.store_lost(broker_id):
        return f"broker {broker_id} misses the metadata store", view.store_root(broker_id)
    if broker_id not in view.brokers:
        return f"broker {broker_id} {not_asked(broker_id).words}", not_asked(broker_id).root
    state = view.brokers[broker_id].broker
    for replica in state.replicas if state else ():
        failure = failure_of(replica, broker_id)
        if failure is not None and replica.topic == deletion.topic:
            return f"broker {broker_id} {failure.words}", failure.root
    return f"broker {broker_id} answers and has not acknowledged that it deleted them", None
