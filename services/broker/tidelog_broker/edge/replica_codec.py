"""Conversion of replica fetches to and from their wire form, for both ends.

The first request of a session names thousands of partitions. Both ends yield to the event loop
while they convert it."""

from __future__ import annotations

from tidelog.batch import NO_SEQUENCE
from tidelog.model import NO_LEADER, EpochEnd
from tidelog.rpc.wire import (
    batch_from_wire,
    batch_to_wire,
    error_from_wire,
    error_to_wire,
    header_to_wire,
)
from tidelog.v1 import replica_pb2 as pb
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.producer_state import (
    ProducerEntry,
    ProducerStates,
    RememberedBatch,
)
from tidelog_broker.partition.range_digest import DIGEST_VERSION, BatchSummary, RangeDigest
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replication.transport import (
    MAX_REPORTED_DIGESTS,
    DivergedRange,
    FetchId,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
    ReportedDigest,
)
from tidelog_runtime.cooperative import QUICK_ITEMS_PER_SLICE, extend_yielding, map_yielding


async def request_to_wire(request: ReplicaFetchRequest) -> pb.ReplicaFetchRequest:
    wire = pb.ReplicaFetchRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        leader_broker_epoch=request.leader_broker_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_sequence=request.session_sequence,
        synced=request.synced,
        now_ms=request.now_ms,
    )
    for reported in request.digests:
        await _fill_digest(wire.digests.add(), reported)
    await extend_yielding(wire.partitions, _entry_to_wire, request.entries)
    await extend_yielding(wire.forgotten, _forgotten_to_wire, request.forgotten)
    return wire


def _forgotten_to_wire(replica: ReplicaKey) -> pb.ForgottenPartition:
    return pb.ForgottenPartition(topic_id=replica.topic_id, partition=replica.partition)


def early_completion_to_wire(request: ReplicaFetchRequest) -> pb.ReplicaFetchRequest:
    """Returns the message that makes this request complete at once."""
    return pb.ReplicaFetchRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        leader_broker_epoch=request.leader_broker_epoch,
        session_id=request.session_id,
        session_sequence=request.session_sequence,
        synced=request.synced,
        hurry=True,
    )


def _entry_to_wire(entry: ReplicaFetchEntry) -> pb.ReplicaFetchPartition:
    replica, position, max_bytes = entry
    return pb.ReplicaFetchPartition(
        topic_id=replica.topic_id,
        partition=replica.partition,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.fetch_offset,
        last_fetched_epoch=position.last_fetched_epoch,
        flushed_offset=position.flushed_offset,
        log_start_offset=position.log_start_offset,
        needs_producers=position.needs_producers,
        max_bytes=max_bytes,
    )


def early_completion_from_wire(wire: pb.ReplicaFetchRequest) -> FetchId:
    """Returns which request has to complete at once."""
    return FetchId(
        broker_id=wire.broker_id,
        broker_epoch=wire.broker_epoch,
        synced=wire.synced,
        session_id=wire.session_id,
        session_sequence=wire.session_sequence,
    )


async def request_from_wire(wire: pb.ReplicaFetchRequest) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(
        broker_id=wire.broker_id,
        broker_epoch=wire.broker_epoch,
        leader_broker_epoch=wire.leader_broker_epoch,
        max_wait_ms=wire.max_wait_ms,
        min_bytes=wire.min_bytes,
        max_bytes=wire.max_bytes,
        entries=await map_yielding(_entry_from_wire, wire.partitions),
        session_id=wire.session_id,
        session_sequence=wire.session_sequence,
        synced=wire.synced,
        forgotten=await map_yielding(_forgotten_from_wire, wire.forgotten, QUICK_ITEMS_PER_SLICE),
        now_ms=wire.now_ms,
        digests=await _digests_from_wire(wire),
    )


async def _fill_digest(wire: pb.RangeDigest, reported: ReportedDigest) -> None:
    """Builds the message in place: its contents have up to 16 MiB, which would be copied with each
    enclosing message."""
    replica, digest, batches, segments, contents = reported
    wire.topic_id, wire.partition = replica
    wire.start_offset, wire.end_offset, wire.digest = digest
    wire.version = DIGEST_VERSION
    wire.segments.extend(segments)
    await extend_yielding(wire.batches, _summary_to_wire, batches)
    await map_yielding(
        lambda batch: wire.contents.add(header=header_to_wire(batch.header), records=batch.records),
        contents,
    )


def _summary_to_wire(batch: BatchSummary) -> pb.BatchSummary:
    return pb.BatchSummary(**batch._asdict())


async def _digests_from_wire(wire: pb.ReplicaFetchRequest) -> tuple[ReportedDigest, ...]:
    """Yields to the event loop: a range has up to MAX_RANGE_BATCHES batches."""
    return tuple(
        [
            ReportedDigest(
                ReplicaKey(reported.topic_id, reported.partition),
                RangeDigest(reported.start_offset, reported.end_offset, reported.digest),
                tuple(
                    await map_yielding(_summary_from_wire, reported.batches, QUICK_ITEMS_PER_SLICE)
                ),
                tuple(reported.segments),
                tuple(await map_yielding(batch_from_wire, reported.contents)),
            )
            for reported in wire.digests[:MAX_REPORTED_DIGESTS]
            if reported.version == DIGEST_VERSION
        ]
    )


def _summary_from_wire(wire: pb.BatchSummary) -> BatchSummary:
    return BatchSummary(
        wire.base_offset,
        wire.record_count,
        wire.leader_epoch,
        wire.append_time_ms,
        wire.crc32c,
        wire.broker_crc32c,
    )


def _forgotten_from_wire(wire: pb.ForgottenPartition) -> ReplicaKey:
    return ReplicaKey(wire.topic_id, wire.partition)


def _entry_from_wire(wire: pb.ReplicaFetchPartition) -> ReplicaFetchEntry:
    return ReplicaFetchEntry(
        ReplicaKey(wire.topic_id, wire.partition),
        FetchPosition(
            # The follower's leader is this broker; the value is not used.
            leader=NO_LEADER,
            leader_epoch=wire.current_leader_epoch,
            fetch_offset=wire.fetch_offset,
            last_fetched_epoch=wire.last_fetched_epoch,
            flushed_offset=wire.flushed_offset,
            log_start_offset=wire.log_start_offset,
            needs_producers=wire.needs_producers,
        ),
        wire.max_bytes,
    )


def _result_to_wire(result: ReplicaFetchResult) -> pb.ReplicaFetchPartitionResult:
    """Leaves out the producers, of which a partition may have a hundred thousand."""
    topic_id, partition = result.replica
    answer = result.answer
    if answer is None:
        assert result.error is not None
        return pb.ReplicaFetchPartitionResult(
            topic_id=topic_id,
            partition=partition,
            error=error_to_wire(result.error),
            log_start_offset=result.log_start_offset,
        )
    diverging = None
    if answer.diverging is not None:
        diverging = pb.EpochEnd(
            leader_epoch=answer.diverging.leader_epoch, end_offset=answer.diverging.end_offset
        )
    return pb.ReplicaFetchPartitionResult(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=answer.leader_epoch,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        diverging=diverging,
        batches=[batch_to_wire(batch) for batch in answer.batches],
    )


def _producer_to_wire(known: tuple[int, ProducerEntry]) -> pb.ProducerProgress:
    producer_id, entry = known
    return pb.ProducerProgress(
        producer_id=producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        end_offset=entry.end_offset,
        last_append_time_ms=entry.last_append_time_ms,
        epoch_start_sequence=(
            None if entry.epoch_start_sequence == NO_SEQUENCE else entry.epoch_start_sequence
        ),
        batches=[pb.RememberedBatch(**batch._asdict()) for batch in entry.batches],
    )


def _producer_from_wire(wire: pb.ProducerProgress) -> tuple[int, ProducerEntry]:
    has_start = wire.HasField("epoch_start_sequence")
    return wire.producer_id, ProducerEntry(
        wire.producer_epoch,
        wire.last_sequence,
        wire.end_offset,
        wire.last_append_time_ms,
        wire.epoch_start_sequence if has_start else NO_SEQUENCE,
        tuple(
            RememberedBatch(
                b.base_sequence,
                b.record_count,
                b.base_offset,
                b.leader_epoch,
                b.append_time_ms,
                b.producer_epoch,
            )
            for b in wire.batches
        ),
    )


def _result_from_wire(wire: pb.ReplicaFetchPartitionResult) -> ReplicaFetchResult:
    replica = ReplicaKey(wire.topic_id, wire.partition)
    if wire.HasField("error"):
        return ReplicaFetchResult(replica, None, error_from_wire(wire.error), wire.log_start_offset)
    diverging = None
    if wire.HasField("diverging"):
        diverging = EpochEnd(wire.diverging.leader_epoch, wire.diverging.end_offset)
    answer = FetchAnswer(
        wire.high_watermark,
        wire.log_start_offset,
        wire.leader_epoch,
        [batch_from_wire(batch) for batch in wire.batches],
        diverging,
    )
    return ReplicaFetchResult(replica, answer, None, wire.log_start_offset)


async def _with_producers(
    result: ReplicaFetchResult, wire: pb.ReplicaFetchPartitionResult
) -> ReplicaFetchResult:
    if result.answer is None or not wire.HasField("producers"):
        return result
    entries = await map_yielding(_producer_from_wire, wire.producers.producers)
    return result._replace(answer=result.answer._replace(producers=ProducerStates(entries)))


async def response_to_wire(response: ReplicaFetchResponse) -> pb.ReplicaFetchResponse:
    wire = pb.ReplicaFetchResponse(
        error=None if response.error is None else error_to_wire(response.error),
        session_id=response.session_id,
        takes_hurry=True,
        now_ms=response.now_ms,
        diverged=[
            pb.RangeDigest(
                topic_id=found.replica.topic_id,
                partition=found.replica.partition,
                start_offset=found.start,
                end_offset=found.end,
                version=DIGEST_VERSION,
                wants_contents=found.wants_contents,
            )
            for found in response.diverged
        ],
    )
    await extend_yielding(wire.partitions, _result_to_wire, response.results)
    for result, added in zip(response.results, wire.partitions, strict=True):
        if result.answer is not None and result.answer.producers is not None:
            added.producers.SetInParent()
            entries = result.answer.producers.entries
            await extend_yielding(added.producers.producers, _producer_to_wire, entries)
    return wire


async def response_from_wire(wire: pb.ReplicaFetchResponse) -> ReplicaFetchResponse:
    results = await map_yielding(_result_from_wire, wire.partitions)
    return ReplicaFetchResponse(
        error_from_wire(wire.error) if wire.HasField("error") else None,
        [await _with_producers(*each) for each in zip(results, wire.partitions, strict=True)],
        wire.session_id,
        wire.now_ms,
        tuple(
            DivergedRange(
                ReplicaKey(found.topic_id, found.partition),
                found.start_offset,
                found.end_offset,
                found.wants_contents,
            )
            for found in wire.diverged[:MAX_REPORTED_DIGESTS]
        ),
    )
