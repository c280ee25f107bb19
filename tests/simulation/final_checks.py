"""Checks of a world that has become quiescent.

Replicas are equal byte by byte below their high watermark, everything acknowledged is read, and
the history shows no anomaly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from simulation.history import Recorder
from simulation.invariants import Invariants
from simulation.partition_id import PartitionId
from simulation.violation import Violation
from simulation.world import World
from tidelog.batch import is_damaged as is_damaged_batch
from tidelog.history import Anomaly, Report
from tidelog.model import Batch, TopicPartition
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.producer_state import is_named

READ_BYTES = 1 << 20


class Contents(NamedTuple):
    """What one replica holds below the committed end.

    - `is_readable`: whether all of it can be read, to that end
    """

    partition: TopicPartition
    broker_id: int
    start: int
    end: int
    batches: list[Batch]
    is_readable: bool


def read_replicas(world: World, invariants: Invariants) -> list[list[Contents]]:
    """Returns the replicas of each partition, the leader's first.

    A damaged replica may be unreadable in parts, but never different.
    """
    found: list[list[Contents]] = []
    for written in invariants.store.partitions.values():
        leader = written.state.leader
        others = [broker_id for broker_id in written.state.replicas if broker_id != leader]
        replicas = [
            (broker_id, partition)
            for broker_id in (leader, *others)
            for partition in world.partitions_of(world.brokers[broker_id])
            if partition.topic_id == written.state.topic_id and partition.name == written.name
        ]
        end = replicas[0][1].high_watermark
        found.append([_contents(world, *replica, end) for replica in replicas])
    return found


def _contents(world: World, broker_id: int, partition: Partition, end: int) -> Contents:
    identity = PartitionId(partition.topic_id, partition.name.partition)
    is_damaged = world.data_losses.was_damaged(broker_id, identity)
    batches = _read(broker_id, partition, end, is_damaged=is_damaged)
    reached = batches[-1].header.next_offset if batches else partition.log.log_start_offset
    start = partition.log.log_start_offset
    is_readable = reached >= end and not any(is_damaged_batch(b.header) for b in batches)
    return Contents(partition.name, broker_id, start, end, batches, is_readable)


def require_named_known(world: World, contents: Sequence[Sequence[Contents]]) -> None:
    """Checks that replicas remember each named producer whose batches they hold.

    They do so however long the producer has been silent.
    """
    for replicas in contents:
        for replica in replicas:
            known = next(
                partition.log.producers.states
                for partition in world.partitions_of(world.brokers[replica.broker_id])
                if partition.name == replica.partition
            )
            named = {b.header.producer_id: None for b in replica.batches}
            for producer_id in named:
                if is_named(producer_id) and known.entry(producer_id) is None:
                    raise Violation(
                        "named_producer_forgotten",
                        f"producer {producer_id} has a name, and batches in the log",
                        broker=replica.broker_id,
                        partition=str(replica.partition),
                    )


def note_digests(contents: Sequence[Sequence[Contents]], recorder: Recorder) -> None:
    """Adds digests to the history, of what all replicas of a partition still have."""
    for replicas in contents:
        start = max(replica.start for replica in replicas)
        for replica in replicas:
            if replica.is_readable:
                recorder.digested(
                    replica.partition,
                    replica.broker_id,
                    start,
                    replica.end,
                    digest_of(replica.batches, start),
                )


def digest_of(batches: Sequence[Batch], start: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for batch in batches:
        if batch.header.base_offset >= start:
            digest.update(repr(batch.header).encode())
            digest.update(batch.records)
    return digest.hexdigest()


def require_equal_replicas(contents: Sequence[Sequence[Contents]]) -> None:
    """Compares replicas, also of topics that the history does not judge.

    Of a damaged replica it compares the parts that can be read.
    """
    for replicas in contents:
        reference: dict[int, Batch] = {}
        for replica in replicas:
            for batch in replica.batches:
                if is_damaged_batch(batch.header):
                    continue
                other = reference.setdefault(batch.header.base_offset, batch)
                if other != batch:
                    raise Violation(
                        "replicas_differ",
                        f"broker {replica.broker_id} has {batch.header} where {other.header} is",
                        partition=str(replica.partition),
                    )


def _read(broker_id: int, partition: Partition, end: int, *, is_damaged: bool) -> list[Batch]:
    log = partition.log
    batches: list[Batch] = []
    offset = log.log_start_offset
    while offset < end:
        try:
            read = log.read(offset, max_bytes=READ_BYTES, up_to=end)
        except LogError as error:
            if is_damaged:
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
    """Checks the history. Raises `Violation` named after the first anomaly without an excuse.

    If producers are not `idempotent`, a retry may write a batch twice.
    """
    report = recorder.report(topics)
    _require_clean(report, idempotent=idempotent)
    return report


def require_clean_lives(recorder: Recorder) -> None:
    """Checks likewise each of the topics that had one name in turn."""
    for report in recorder.reports_of_lives():
        _require_clean(report, idempotent=True)


def _require_clean(report: Report, *, idempotent: bool) -> None:
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
