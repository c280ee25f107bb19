"""Invalid produce and fetch requests are rejected with a reason, and do no harm. Batches at the
limits are accepted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import pytest
import pytest_asyncio

from integration.topics import create_topic, new_name
from integration.wire_client import WireBatch, WireClient, assert_rejected, values_of, wire_batch
from tidelog.batch import new_batch
from tidelog.compression import compress
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode
from tidelog.record_limits import DEFAULT_MAX_BATCH_RECORDS, RECORD_LIMITS
from tidelog.rpc.wire import batch_to_wire
from tidelog.v1 import broker_pb2, errors_pb2, record_batch_pb2
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "sea"
PARTITIONS = 3
MAX_BATCH_BYTES = 16 << 10
# More than a leader decompresses.
BOMB_BYTES = 65 << 20
LIMITS = RECORD_LIMITS
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Sea:
    """A topic, and connections to the leader of its partition 0 and to the other brokers."""

    leader: WireClient
    leader_id: int
    leader_epoch: int
    leader_address: str
    others: Mapping[int, WireClient]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sea(cluster: LocalCluster) -> AsyncIterator[Sea]:
    config = {"max_batch_bytes": str(MAX_BATCH_BYTES)}
    described = await create_topic(cluster, TOPIC, PARTITIONS, config=config)
    first = described.partitions[0]
    clients = {b: WireClient(cluster.broker_address(b)) for b in cluster.broker_ids}
    leader = clients[first.leader]
    others = {b: client for b, client in clients.items() if client is not leader}
    yield Sea(
        leader, first.leader, first.leader_epoch, cluster.broker_address(first.leader), others
    )
    for client in clients.values():
        await client.__aexit__(None, None, None)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def unharmed(cluster: LocalCluster, sea: Sea) -> AsyncIterator[None]:
    """After each rejection the processes are the same, nothing was appended, and the next batch
    gets the next offset and can be read."""
    pids = [process.pid for process in cluster.processes()]
    end = await sea.leader.end_offset(TOPIC, 0)
    yield
    assert [process.pid for process in cluster.processes()] == pids
    assert await sea.leader.end_offset(TOPIC, 0) == end
    produced = await sea.leader.produce(TOPIC, 0, wire_batch(b"calm"))
    assert (produced.HasField("error"), produced.base_offset) == (False, end)
    fetched = await sea.leader.fetch(TOPIC, 0, end)
    assert values_of(fetched.batches) == [b"calm"]


# -- batches ---------------------------------------------------------------------------


class BadBatch(NamedTuple):
    batch: WireBatch
    code: errors_pb2.ErrorCode.ValueType
    phrases: tuple[str, ...]


def made_of(records: bytes, *, count: int = 1, codec: Codec = Codec.NONE) -> WireBatch:
    """A frame with a valid CRC, whatever its bytes."""
    return batch_to_wire(
        new_batch(
            records,
            codec=codec,
            record_count=count,
            base_timestamp_ms=NOW_MS,
            max_timestamp_ms=NOW_MS,
        )
    )


def flipped_crc() -> WireBatch:
    batch = wire_batch(b"calm")
    batch.header.crc32c ^= 1
    return batch


def flipped_bit() -> WireBatch:
    batch = wire_batch(b"calm")
    batch.records = batch.records[:-1] + bytes([batch.records[-1] ^ 0x10])
    return batch


def with_count(count: int) -> WireBatch:
    records = encode([b"ebb", b"flow"], timestamps_ms=NOW_MS).records
    return made_of(records, count=count)


def with_lengths_that_lie() -> WireBatch:
    message = record_batch_pb2.RecordBatch(values=b"ebb", value_lengths=[2])
    return made_of(message.SerializeToString())


def of_records(count: int) -> WireBatch:
    return packed(encode([None] * count, timestamps_ms=NOW_MS, codec=Codec.ZSTD))


def of_headers(records: int, of_each: int, name: str = "h") -> WireBatch:
    headers = dict.fromkeys(range(records), [(name, b"")] * of_each)
    values = [b"calm"] * records
    return packed(encode(values, timestamps_ms=NOW_MS, headers=headers, codec=Codec.ZSTD))


def of_key(size: int) -> WireBatch:
    return packed(encode([b"calm"], [bytes(size)], timestamps_ms=NOW_MS, codec=Codec.ZSTD))


def packed(batch: Batch) -> WireBatch:
    """The limit on its bytes does not reject it."""
    assert len(batch.records) < MAX_BATCH_BYTES
    return batch_to_wire(batch)


# Records, each with as many headers as it may have, that have as many as a batch may have.
FULL_RECORDS = LIMITS.max_batch_headers // LIMITS.max_headers_per_record


def with_unknown_codec() -> WireBatch:
    batch = wire_batch(b"calm")
    batch.header.codec = 9  # type: ignore[assignment]
    return batch


BAD_BATCHES = {
    "too large": BadBatch(
        wire_batch(bytes(MAX_BATCH_BYTES + 1)),
        errors_pb2.ERROR_CODE_BATCH_TOO_LARGE,
        ("sea/0", "takes at most 16384 (max_batch_bytes)", "send smaller records"),
    ),
    "wrong CRC": BadBatch(
        flipped_crc(),
        errors_pb2.ERROR_CODE_CORRUPT_BATCH,
        ("the header says CRC32C", "send the batch again"),
    ),
    "a flipped bit": BadBatch(
        flipped_bit(),
        errors_pb2.ERROR_CODE_CORRUPT_BATCH,
        ("the bytes have", "send the batch again"),
    ),
    "no RecordBatch": BadBatch(
        made_of(b"\xff\xff\xff\xff, hello"),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("are no RecordBatch message", "serialize one as record_batch.proto says"),
    ),
    "no bytes at all": BadBatch(
        made_of(b""),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("value_lengths has 0 entries but record_count is 1", "one for each record"),
    ),
    "not compressed as it says": BadBatch(
        made_of(b"plain", codec=Codec.ZSTD), errors_pb2.ERROR_CODE_INVALID_BATCH, ("zstd",)
    ),
    "an unknown codec": BadBatch(
        with_unknown_codec(), errors_pb2.ERROR_CODE_INVALID_BATCH, ("codec", "9")
    ),
    "unpacks to too much": BadBatch(
        made_of(compress(Codec.ZSTD, bytes(BOMB_BYTES)), codec=Codec.ZSTD),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("67108864",),
    ),
    "a count of too many": BadBatch(
        with_count(3),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("value_lengths has 2 entries but record_count is 3", "one for each record"),
    ),
    "a count of too few": BadBatch(
        with_count(1),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("value_lengths has 2 entries but record_count is 1", "one for each record"),
    ),
    "lengths that lie": BadBatch(
        with_lengths_that_lie(),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("value_lengths add up to 2 but values holds 3 bytes", "they must be equal"),
    ),
    "a count of 0": BadBatch(
        with_count(0),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("record_count is 0", "at least 1 record"),
    ),
    "a negative count": BadBatch(
        with_count(-1),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("record_count is -1", "at least 1 record"),
    ),
    "too many records": BadBatch(
        of_records(DEFAULT_MAX_BATCH_RECORDS + 1),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("100001 records; the topic takes at most 100000", "send several batches"),
    ),
    "too many headers of a record": BadBatch(
        of_headers(1, LIMITS.max_headers_per_record + 1),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("a record has 1001 headers; it has at most 1000", "put the rest into the value"),
    ),
    "too many headers of all records": BadBatch(
        of_headers(FULL_RECORDS + 1, LIMITS.max_headers_per_record),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("more than 100000 headers", "send several batches"),
    ),
    "a header name that is too long": BadBatch(
        of_headers(1, 1, "h" * (LIMITS.max_header_name_bytes + 1)),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("the name of a header has 1025 bytes; it has at most 1024", "into its value"),
    ),
    "a key that is too long": BadBatch(
        of_key(LIMITS.max_key_bytes + 1),
        errors_pb2.ERROR_CODE_INVALID_BATCH,
        ("a key has 65537 bytes; a key has at most 65536", "put the rest into the value"),
    ),
}

BATCHES_AT_LIMITS = {
    "records": of_records(DEFAULT_MAX_BATCH_RECORDS),
    "headers": of_headers(FULL_RECORDS, LIMITS.max_headers_per_record),
    "header name": of_headers(1, 1, "h" * LIMITS.max_header_name_bytes),
    "key": of_key(LIMITS.max_key_bytes),
}


@pytest.mark.parametrize("bad", BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
async def test_an_invalid_batch_is_rejected(sea: Sea, bad: BadBatch) -> None:
    result = await sea.leader.produce(TOPIC, 0, bad.batch)

    assert_rejected(result.error, bad.code, *bad.phrases)
    assert result.base_offset == -1


@pytest.mark.parametrize("batch", BATCHES_AT_LIMITS.values(), ids=BATCHES_AT_LIMITS.keys())
async def test_a_batch_at_a_limit_is_accepted(
    cluster: LocalCluster, sea: Sea, batch: WireBatch
) -> None:
    topic = new_name("brim")
    led = await create_topic(cluster, topic, PARTITIONS, replication_factor=1)
    partition = next(p.partition for p in led.partitions if p.leader == sea.leader_id)

    result = await sea.leader.produce(topic, partition, batch)

    assert not result.HasField("error"), result.error
    end = await sea.leader.end_offset(topic, partition)
    assert (result.base_offset, end) == (0, batch.header.record_count)


async def test_a_valid_batch_before_an_invalid_one_is_not_appended(sea: Sea) -> None:
    result = await sea.leader.produce(TOPIC, 0, wire_batch(b"calm"), flipped_crc())

    assert_rejected(result.error, errors_pb2.ERROR_CODE_CORRUPT_BATCH, "CRC32C")


async def test_with_acks_none_an_invalid_batch_is_dropped_silently(sea: Sea) -> None:
    result = await sea.leader.produce(TOPIC, 0, flipped_crc(), acks=broker_pb2.ACKS_NONE)

    assert not result.HasField("error")


async def test_an_invalid_batch_does_not_affect_another_partition(
    cluster: LocalCluster, sea: Sea
) -> None:
    led = await create_topic(cluster, "lake", PARTITIONS, replication_factor=1)
    other = next(p.partition for p in led.partitions if p.leader == sea.leader_id)
    request = broker_pb2.ProduceRequest(
        acks=broker_pb2.ACKS_ALL,
        timeout_ms=10_000,
        partitions=[
            broker_pb2.ProducePartition(topic=TOPIC, partition=0, batches=[flipped_crc()]),
            broker_pb2.ProducePartition(
                topic="lake", partition=other, batches=[wire_batch(b"still")]
            ),
        ],
    )

    rejected, taken = (await sea.leader.broker.Produce(request)).partitions

    assert_rejected(rejected.error, errors_pb2.ERROR_CODE_CORRUPT_BATCH)
    assert (taken.HasField("error"), taken.base_offset) == (False, 0)
    assert values_of((await sea.leader.fetch("lake", other, 0)).batches) == [b"still"]


# -- whole requests ----------------------------------------------------------------------


def produce_request(
    *entries: broker_pb2.ProducePartition,
    acks: broker_pb2.Acks.ValueType = broker_pb2.ACKS_ALL,
    timeout_ms: int = 10_000,
) -> broker_pb2.ProduceRequest:
    return broker_pb2.ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=entries)


def calm() -> broker_pb2.ProducePartition:
    return broker_pb2.ProducePartition(topic=TOPIC, partition=0, batches=[wire_batch(b"calm")])


BAD_REQUESTS = {
    "no acks": (
        produce_request(calm(), acks=broker_pb2.ACKS_UNSPECIFIED),
        "acks is 0; set it to ACKS_NONE, ACKS_LEADER or ACKS_ALL",
    ),
    "a partition twice": (produce_request(calm(), calm()), "put its batches into one entry"),
    "no time": (produce_request(calm(), timeout_ms=0), "it must be between 1 and 300000"),
    "too much time": (
        produce_request(calm(), timeout_ms=300_001),
        "timeout_ms is 300001; it must be between 1 and 300000",
    ),
    "no batch": (
        produce_request(broker_pb2.ProducePartition(topic=TOPIC, partition=0)),
        "no batch for sea/0; leave the partition out",
    ),
}


@pytest.mark.parametrize(("request_", "message"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
async def test_an_invalid_produce_request_is_rejected_as_a_whole(
    sea: Sea, request_: broker_pb2.ProduceRequest, message: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as rejected:
        await sea.leader.broker.Produce(request_)

    assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in (rejected.value.details() or "")


async def test_a_fetch_with_a_negative_size_is_rejected_as_a_whole(sea: Sea) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as rejected:
        await sea.leader.broker.Fetch(broker_pb2.FetchRequest(max_bytes=-1))

    assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "max_bytes is -1; it must be 0 or more" in (rejected.value.details() or "")


# -- routing -----------------------------------------------------------------------------

UNKNOWN = {
    "topic": ("no-such-sea", 0, ("'no-such-sea' does not exist", "create it first")),
    "empty name": ("", 0, ("'' does not exist", "create it first")),
    "partition": (TOPIC, PARTITIONS, ("partition 3 of", "its partitions are 0 to 2")),
    "negative partition": (TOPIC, -1, ("partition -1 of", "its partitions are 0 to 2")),
}


@pytest.mark.parametrize(("topic", "partition", "message"), UNKNOWN.values(), ids=UNKNOWN.keys())
async def test_unknown_topics_and_partitions_are_reported_by_every_request(
    sea: Sea, topic: str, partition: int, message: tuple[str, ...]
) -> None:
    errors = [
        (await sea.leader.produce(topic, partition, wire_batch(b"calm"))).error,
        (await sea.leader.fetch(topic, partition, 0)).error,
        (await sea.leader.list_offsets(topic, partition)).error,
    ]

    for error in errors:
        assert_rejected(error, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, *message)


async def test_metadata_reports_an_unknown_topic(sea: Sea) -> None:
    found = await sea.leader.metadata("no-such-sea")

    assert_rejected(
        found.error, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, "create it first"
    )


async def test_a_mismatched_topic_id_is_reported(sea: Sea) -> None:
    result = await sea.leader.produce(TOPIC, 0, wire_batch(b"calm"), topic_id="of-a-former-sea")

    assert_rejected(
        result.error,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
        "not of-a-former-sea",
        "deleted and created again",
    )


async def test_a_broker_that_does_not_lead_names_the_leader(sea: Sea) -> None:
    for broker_id, other in sea.others.items():
        errors = [
            (await other.produce(TOPIC, 0, wire_batch(b"calm"))).error,
            (await other.fetch(TOPIC, 0, 0)).error,
            (await other.list_offsets(TOPIC, 0)).error,
        ]
        for error in errors:
            assert_rejected(
                error,
                errors_pb2.ERROR_CODE_NOT_LEADER,
                f"broker {broker_id} does not lead sea/0",
                f"broker {sea.leader_id} at {sea.leader_address} does",
            )
            assert error.leader == errors_pb2.LeaderHint(
                broker_id=sea.leader_id,
                leader_epoch=sea.leader_epoch,
                address=sea.leader_address,
            )


@pytest.mark.parametrize("beyond", [1, 1 << 40])
async def test_an_offset_beyond_the_end_is_out_of_range(sea: Sea, beyond: int) -> None:
    end = await sea.leader.end_offset(TOPIC, 0)

    result = await sea.leader.fetch(TOPIC, 0, end + beyond)

    assert_rejected(
        result.error,
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
        f"sea/0 has offsets 0 to {end}, not {end + beyond}",
    )


async def test_an_offset_below_the_start_is_out_of_range(sea: Sea) -> None:
    result = await sea.leader.fetch(TOPIC, 0, -1)

    assert_rejected(result.error, errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, "not -1")


async def test_a_reader_of_a_newer_epoch_gets_the_brokers_epoch(sea: Sea) -> None:
    result = await sea.leader.fetch(TOPIC, 0, 0, known_epoch=sea.leader_epoch + 1)

    assert_rejected(
        result.error,
        errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
        f"in leader epoch {sea.leader_epoch}",
        f"the request knows {sea.leader_epoch + 1}",
    )


async def test_an_unspecified_position_is_rejected(sea: Sea) -> None:
    result = await sea.leader.list_offsets(TOPIC, 0, position=0)

    assert_rejected(
        result.error,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        "position is 0; set it to EARLIEST, LATEST or TIMESTAMP",
    )


async def test_bytes_that_are_no_request_are_rejected(cluster: LocalCluster, sea: Sea) -> None:
    async with grpc.aio.insecure_channel(sea.leader_address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tidelog.v1.BrokerService/Produce"
        )
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await call(b"\xff\xff\xff\xff" + os.urandom(64), timeout=10)

    assert "parsing message with type 'tidelog.v1.ProduceRequest'" in (
        rejected.value.details() or ""
    )
    assert not cluster.died()
