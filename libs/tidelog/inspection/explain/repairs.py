"""Damage on a disk that was found and repaired. Nothing is lost, but the disk may fail again. A
replica that fails now is reported under its root instead."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, ago
from tidelog.inspection.explain.replicas import failure_of
from tidelog.inspection.state_reports import Finding, RepairedDamage
from tidelog.phrases import plural


def repaired(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each broker."""
    for broker_id, broker in sorted(view.broker_states.items()):
        now_ms = view.brokers[broker_id].now_ms
        failing = {
            (replica.topic, replica.partition)
            for replica in broker.replicas
            if failure_of(replica, broker_id) is not None
        }
        damages = sorted(
            (d for d in broker.repaired_damage if (d.topic, d.partition) not in failing),
            key=lambda d: -d.repaired_at_ms,
        )
        if not damages:
            continue
        names = [f"{damage.topic}/{damage.partition}" for damage in damages]
        yield Finding(
            causes.DAMAGE_REPAIRED,
            causes.INFO,
            f"broker {broker_id} found {plural(len(names), 'damaged replica')} on its disk within "
            "the last hour and has repaired what it found",
            tuple(_line(broker_id, damage, now_ms) for damage in damages[:MAX_NAMED]),
            f"Nothing is lost. Check the disk of broker {broker_id} (smartctl -a, the kernel's "
            f"log), and the rest of its data (tidelog brokers scrub {broker_id}); replace the disk "
            "if this comes again.",
            broker=broker_id,
            partitions=tuple(names[:MAX_NAMED]),
            partition_count=len(names),
        )


def _line(broker_id: int, damage: RepairedDamage, now_ms: int) -> str:
    return (
        f"{damage.topic}/{damage.partition}: broker-{broker_id} found damage "
        f'{ago(damage.found_at_ms, now_ms)}: "{damage.reason}"; it had repaired its replica '
        f"{ago(damage.repaired_at_ms, now_ms)}"
    )
