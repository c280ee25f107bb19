"""Queries leaders for the leader epoch of a record. A reader that continues later compares it with
the log (`log_continuity`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.batch import is_intact
from tidelog.client.connections import BrokerApi
from tidelog.client.leader_queries import LeaderAnswers, LeaderQueries, LedPartitions
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.rpc.wire import batch_from_wire, error_from_wire
from tidelog.v1 import broker_pb2

REQUEST_TIMEOUT_MS = 5_000
# Partitions that do not fit into one answer are queried again.
MAX_ANSWER_BYTES = 8 << 20
PARTITIONS_FIELD = "tidelog.v1.FetchRequest.partitions"


class RecordEpoch(NamedTuple):
    """Leader epoch of the record at an offset.

    - `record_epoch`: NO_EPOCH if the log of the leader of `leader_epoch` does not have the offset.
      That log is committed from `log_start_offset` to before `high_watermark`.
    - `damaged`: the log has the offset, but the record cannot be read any more. Its epoch is not
      known (NO_EPOCH).
    """

    record_epoch: int
    leader_epoch: int
    topic_id: str
    log_start_offset: int
    high_watermark: int
    damaged: bool = False


class RecordEpochs:
    def __init__(self, queries: LeaderQueries) -> None:
        self._queries = queries

    async def find(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RecordEpoch]:
        """Returns the epoch of the record at one offset of each partition. Follows changes of
        leaders. Raises `TidelogError` after the timeout. Each partition costs the transfer of the
        batch that has the record."""

        async def ask(broker: BrokerApi, requested: LedPartitions) -> LeaderAnswers[RecordEpoch]:
            wire = broker_pb2.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MAX_ANSWER_BYTES)
            for partition, leader in requested:
                wire.partitions.add(
                    topic=partition.topic,
                    partition=partition.partition,
                    topic_id=leader.topic_id,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=offsets[partition],
                    max_bytes=1,
                )
            answer = await broker.fetch(wire, REQUEST_TIMEOUT_MS)
            results = {TopicPartition(r.topic, r.partition): r for r in answer.partitions}
            return [
                (
                    partition,
                    leader,
                    _record_epoch(
                        partition, offsets[partition], leader.topic_id, results.get(partition)
                    ),
                )
                for partition, leader in requested
            ]

        return await self._queries.query_all(
            offsets, ask, "leader epochs of records", PARTITIONS_FIELD
        )


def _record_epoch(
    partition: TopicPartition,
    offset: int,
    topic_id: str,
    result: broker_pb2.FetchPartitionResult | None,
) -> RecordEpoch | TidelogError:
    if result is None:
        return TidelogError(ErrorCode.INTERNAL, f"there was no result for {partition}")
    error = error_from_wire(result.error) if result.HasField("error") else None
    damaged = error is not None and error.code is ErrorCode.RECORDS_DAMAGED
    if error is not None and not damaged and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return error
    record_epoch = NO_EPOCH
    if error is None and not result.batches:
        # A leader that reports a high watermark has every record that was committed below it.
        if not 0 <= result.high_watermark <= offset:
            return TidelogError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the leader of {partition} did not show the record at offset {offset}; try again",
            )
    elif error is None:
        batch = batch_from_wire(result.batches[0])
        if not is_intact(batch):
            return TidelogError(
                ErrorCode.CORRUPT_BATCH,
                f"the batch at offset {batch.header.base_offset} of {partition} fails its CRC32C",
            )
        record_epoch = batch.header.leader_epoch
    return RecordEpoch(
        record_epoch,
        result.leader_epoch,
        topic_id,
        result.log_start_offset,
        result.high_watermark,
        damaged,
    )
