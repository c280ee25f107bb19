"""What must hold once a world has come to rest: replicas are equal byte by byte below their
high watermark, everything acknowledged is read, and the history shows no anomaly."""

from __future__ import annotations

from collections.abc import Callable, Collection

from simulation.history import Recorder
from simulation.invariants import Invariants
from simulation.violation import Violation
from simulation.world import World
from tidelog.history import Anomaly, Report
from tidelog.model import Batch
from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.partition import Partition

READ_BYTES = 1 << 20


def require_equal_replicas(
    world: World, invariants: Invariants, is_damaged: Callable[[int], bool]
) -> int:
    """Returns how many bytes were compared. `is_damaged`: whether bits were flipped on the
    disk of a broker, whose replicas may then be unreadable in parts, but never different."""
    compared = 0
    for written in invariants.store.partitions.values():
        reference: dict[int, Batch] = {}
        leader = world.brokers[written.state.leader]
        replicas = [
            (broker_id, partition)
            for broker_id in (leader.broker_id, *written.state.replicas)
            for partition in world.partitions_of(world.brokers[broker_id])
            if partition.topic_id == written.state.topic_id and partition.name == written.name
        ]
        end = replicas[0][1].high_watermark
        for broker_id, partition in replicas:
            for batch in _read(broker_id, partition, end, is_damaged):
                compared += len(batch.records)
                other = reference.setdefault(batch.header.base_offset, batch)
                if other != batch:
                    raise Violation(
                        "replicas_differ",
                        f"broker {broker_id} has {batch.header} where {other.header} is",
                        partition=str(written.name),
                    )
    return compared


def _read(
    broker_id: int, partition: Partition, end: int, is_damaged: Callable[[int], bool]
) -> list[Batch]:
    log = partition.log
    batches: list[Batch] = []
    offset = log.log_start_offset
    while offset < end:
        try:
            read = log.read(offset, max_bytes=READ_BYTES, up_to=end)
        except LogError as error:
            if is_damaged(broker_id):
                return batches
            raise Violation(
                "replica_unreadable", str(error), broker=broker_id, partition=str(partition.name)
            ) from error
        if not read:
            raise Violation(
                "replica_too_short",
                f"it ends at {offset}, and up to {end} is committed",
                broker=broker_id,
                partition=str(partition.name),
            )
        batches += read
        offset = read[-1].header.next_offset
    return batches


def require_clean_history(
    recorder: Recorder, topics: Collection[str], *, idempotent: bool
) -> Report:
    """Raises `Violation` named after the first anomaly that nothing excuses. Where
    producers are not `idempotent`, a retry may write a batch twice."""
    report = recorder.report(topics)
    for anomaly in Anomaly:
        if anomaly is Anomaly.DUPLICATE and not idempotent:
            continue
        if report.findings.counts[anomaly]:
            finding = report.findings.of(anomaly)[0]
            raise Violation(
                "history: " + anomaly.value,
                finding.summary,
                partition=f"{finding.topic}/{finding.partition}",
                shown_by=[reference.text for reference in finding.references],
            )
    return report
