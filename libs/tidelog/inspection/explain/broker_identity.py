"""Broker ids that two data directories claim, and directories that count as intact only since
their last registration."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import (
    BROKER_ID_IN_USE,
    WAITS_FOR_LEASE,
    ClusterView,
)
from tidelog.inspection.explain.words import ago
from tidelog.inspection.model import Finding, RegisteredBroker, RejectedStart


def contested(view: ClusterView) -> Iterator[Finding]:
    """One finding for each id: it names both processes and both directories."""
    for broker_id, rejected in sorted(view.rejected_starts.items()):
        if rejected.cause not in (BROKER_ID_IN_USE, WAITS_FOR_LEASE):
            continue
        waits = rejected.cause == WAITS_FOR_LEASE
        owner = view.registry.brokers.get(broker_id)
        evidence = [
            f"the registered process: {_registered(owner)}"
            if owner is not None
            else f"no process is registered as broker {broker_id} now",
            f"the other process: {_rejected(rejected)}, "
            f"{ago(rejected.at_ms, view.now_ms())}: {rejected.reason}",
        ]
        what = "waits for the registration to end" if waits else "was rejected at its start"
        yield Finding(
            causes.BROKER_ID_CONTESTED,
            causes.WARNING,
            f"two processes claim broker id {broker_id}; the second one {what}",
            tuple(evidence),
            "Stop the process that should not run as this broker, or give it a broker_id and a "
            "data_dir of its own. Where the first data directory is lost for good, start the "
            f"other process with --replace-directory {_id_of(owner)}.",
            broker=broker_id,
        )


def not_intact(view: ClusterView) -> Iterator[Finding]:
    """Registered brokers whose directory was copied, restored or replaced."""
    for broker_id, broker in sorted(view.registry.brokers.items()):
        if broker.not_intact_reason:
            yield Finding(
                causes.DIRECTORY_NOT_INTACT,
                causes.INFO,
                f"the data directory of broker {broker_id} counts as intact only since its last "
                f"registration: {broker.not_intact_reason}",
                (f"registered in epoch {broker.broker_epoch}: {_registered(broker)}",),
                "Its replicas copy what they lack from their leaders by themselves. Partitions "
                f"without a leader for which broker {broker_id} was the last replica in sync need "
                "tidelog topics recover.",
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


def _id_of(owner: RegisteredBroker | None) -> str:
    """Where no process is registered, the rejected one's reason names the directory."""
    return owner.directory_id if owner is not None and owner.directory_id else "and its id"


def _on(host: str) -> str:
    return f" on {host}" if host else ""
