"""Ids that two processes claim, and data directories that are intact only since their last
registration."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import (
    BROKER_ID_IN_USE,
    WAITS_FOR_LEASE,
    ClusterView,
    Liveness,
)
from tidelog.inspection.explain.formatting import ago
from tidelog.inspection.state_reports import Finding, RegisteredBroker, RejectedStart

# A rejected process has ended. If it is restarted automatically, it is rejected again within this
# time: Kubernetes waits at most five minutes between two starts.
CONTESTED_MS = 6 * 60_000


def contested_brokers(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each id; it names both processes and both directories."""
    for broker_id, rejected in sorted(view.rejected_starts.items()):
        owner = view.registry.brokers.get(broker_id)
        waits = rejected.cause == WAITS_FOR_LEASE
        is_gone = view.liveness(broker_id) is Liveness.DEAD
        if _is_over(view, rejected) or (is_gone and not waits and _is_reported(view, broker_id)):
            continue
        if is_gone:
            summary, next_step = _beside_a_dead_broker(rejected)
        else:
            summary, next_step = _beside_a_live_broker(owner, rejected)
        yield Finding(
            causes.BROKER_ID_CONTESTED,
            causes.WARNING,
            summary,
            (
                _first_process(broker_id, owner, is_gone=is_gone),
                f"the other process: {_rejected(rejected)}, "
                f"{ago(rejected.at_ms, view.now_ms())}: {rejected.reason}",
            ),
            next_step,
            broker=broker_id,
        )


def _is_reported(view: ClusterView, broker_id: int) -> bool:
    """Whether a broker that is gone is explained already.

    The rejected start may be why it cannot come back, which is a finding of its own. Or the broker
    was stopped cleanly, as the next step after a rejection advises.
    """
    return view.failed_start(broker_id) is not None or view.was_stopped(broker_id)


def _first_process(broker_id: int, owner: RegisteredBroker | None, *, is_gone: bool) -> str:
    if owner is not None:
        return f"the registered process{' is gone' if is_gone else ''}: {_registered(owner)}"
    state = "the last one is gone" if is_gone else "one is running"
    return f"no process is registered as broker {broker_id} now, and {state}"


def _beside_a_live_broker(
    owner: RegisteredBroker | None, rejected: RejectedStart
) -> tuple[str, str]:
    """Returns summary and next step."""
    claim = f"two processes claim broker id {rejected.broker_id}; the second one"
    if rejected.cause == WAITS_FOR_LEASE:
        waits = "waits for the registration of the first one to end"
        return f"{claim} {waits}", _stop_one(owner, rejected)
    return f"{claim} was rejected at its start and has ended", _give_own_id(owner, rejected)


def _beside_a_dead_broker(rejected: RejectedStart) -> tuple[str, str]:
    """Returns summary and next step. A process that waits takes the id as soon as it is free."""
    broker_id, place = rejected.broker_id, f"data_dir {rejected.data_dir}{_on(rejected.host)}"
    if rejected.cause == WAITS_FOR_LEASE:
        return (
            f"broker {broker_id} is gone, and another process with its id waits to replace it",
            f"The waiting process at {rejected.address} with {place} has the same data directory "
            f"or a copy of it, and registers as broker {broker_id} by itself. Stop it if it should "
            f"not run as broker {broker_id}, and start the first process again: once the other one "
            "has registered, the directory of the first one counts as the older copy.",
        )
    return (
        f"broker {broker_id} is gone, and another process with its id was rejected while it ran",
        f"Start broker {broker_id} again with its own data directory. Give the process with "
        f"{place} a broker_id of its own, or keep it from being started.",
    )


def _is_over(view: ClusterView, rejected: RejectedStart) -> bool:
    """Whether the rejected process has ended for good, or now runs as a broker of its own.

    If the registered broker has its directory in the same place, that directory was put back
    there, for example on a disk that was mounted again.
    """
    if rejected.cause == WAITS_FOR_LEASE:
        return False
    if rejected.cause != BROKER_ID_IN_USE:
        return True
    place = (rejected.host, rejected.data_dir)
    owner = view.registry.brokers.get(rejected.broker_id)
    if owner is not None and (owner.host, owner.data_dir) == place:
        return True
    others = [b for i, b in view.registry.brokers.items() if i != rejected.broker_id]
    is_corrected = any(
        broker.directory_id == rejected.directory_id != ""
        or ((broker.host, broker.data_dir) == place and rejected.data_dir != "")
        for broker in others
    )
    return is_corrected or view.now_ms() - rejected.at_ms > CONTESTED_MS


def _stop_one(owner: RegisteredBroker | None, rejected: RejectedStart) -> str:
    registered = f", or the registered one at {owner.address}" if owner is not None else ""
    return (
        f"Both have the same data directory or a copy of it: stop the one that should not run as "
        f"broker {rejected.broker_id}, the waiting process at {rejected.address} with data_dir "
        f"{rejected.data_dir}{_on(rejected.host)}{registered}. Another broker needs an empty "
        "data_dir and a broker_id of its own, not a copy."
    )


def _give_own_id(owner: RegisteredBroker | None, rejected: RejectedStart) -> str:
    directory = owner.directory_id if owner is not None else "and the id that the rejection names"
    return (
        f"Nothing is lost. Give the process with data_dir {rejected.data_dir}"
        f"{_on(rejected.host)} a broker_id of its own, or keep it from being started. If the "
        "directory of the first process is abandoned for good, stop that process and start the "
        f"other one with --replace-directory {directory}."
    )


def not_intact(view: ClusterView) -> Iterator[Finding]:
    """Yields registered brokers whose directory was copied, restored or replaced."""
    for broker_id, broker in sorted(view.registry.brokers.items()):
        if broker.not_intact_reason:
            yield Finding(
                causes.DIRECTORY_NOT_INTACT,
                causes.INFO,
                f"the data directory of broker {broker_id} counts as intact only since its last "
                f"registration: {broker.not_intact_reason}",
                (f"registered in epoch {broker.broker_epoch}: {_registered(broker)}",),
                "Its replicas copy what they lack from their leaders by themselves, and the "
                "finding ends with its next start. Partitions without a leader for which broker "
                f"{broker_id} was the last replica in sync need tidelog topics recover.",
                broker=broker_id,
            )


def _registered(broker: RegisteredBroker) -> str:
    return (
        f"at {broker.address}, data directory {_directory(broker.directory_id, broker.data_dir)}"
        f"{_on(broker.host)}"
    )


def _rejected(rejected: RejectedStart) -> str:
    return (
        f"at {rejected.address or 'an unknown address'}, data directory "
        f"{_directory(rejected.directory_id, rejected.data_dir)}{_on(rejected.host)}"
    )


def _directory(directory_id: str, path: str) -> str:
    return f"{path or 'of unknown path'} ({directory_id or 'without an id'})"


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def contested_controllers(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each id. The waiting process has a record in the store."""
    for waiting in _waiting_controllers(view):
        controller_id, first, second = _processes(waiting)
        yield Finding(
            causes.CONTROLLER_ID_CONTESTED,
            causes.WARNING,
            f"two processes claim controller id {controller_id}: the one at {first} is registered, "
            f"and the one at {second} waits for that registration to end and cannot take over",
            (
                f"the registered process: at {first}",
                f"the other process: at {second}; it began to wait "
                f"{ago(waiting.since_ms, view.now_ms())}",
            ),
            f"No data is at risk. Stop the process at {second}, and start it with a controller_id "
            "of its own where it is to be one more controller. Where it is to replace the one at "
            f"{first}, stop that one: the other takes the id by itself.",
        )


def _processes(waiting: WaitingController) -> tuple[int, str, str]:
    """Returns the id, the registered process and the one that waits."""
    return (
        waiting.controller_id,
        _place(waiting.registered_address, waiting.registered_host),
        _place(waiting.address, waiting.host),
    )


def _place(address: str, host: str) -> str:
    return f"{address} on {host}" if host else address


def _waiting_controllers(view: ClusterView) -> list[WaitingController]:
    """Returns them ordered by id. Controllers that see changes of the store come first."""
    found: dict[int, WaitingController] = {}
    if view.active is not None:
        return sorted(view.control.waiting_controllers, key=lambda w: w.controller_id)
    for state in sorted(view.controllers, key=lambda s: s.store.unreachable_ms >= 0):
        for waiting in state.controller.waiting_controllers if state.controller else ():
            found.setdefault(waiting.controller_id, waiting)
    return [waiting for _, waiting in sorted(found.items())]
