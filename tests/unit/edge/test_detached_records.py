"""A Produce request has the same content whether its records are copied or not."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError

from tidelog.batch_slices import decode_slices, is_costly_to_open
from tidelog.model import Batch, Codec
from tidelog.record_batch import check, encode, without_deltas
from tidelog.rpc.detached_records import DETACHED_BYTES, DetachedProduce, batches_of, parse_produce
from tidelog.rpc.wire import batch_from_wire, batch_to_wire
from tidelog.v1 import broker_pb2 as pb
from tidelog.wire_fields import encode_varint

_RANDOM = random.Random(1)


def batch_of(size: int, codec: Codec = Codec.NONE) -> Batch:
    half = _RANDOM.randbytes(size // 2)
    return encode([half, half], [b"k", None], timestamps_ms=[1_000, 1_001], codec=codec)


def request_of(*partitions: list[Batch]) -> pb.ProduceRequest:
    return pb.ProduceRequest(
        acks=pb.ACKS_ALL,
        timeout_ms=7,
        partitions=[
            pb.ProducePartition(
                topic="t", partition=n, topic_id="id", batches=map(batch_to_wire, batches)
            )
            for n, batches in enumerate(partitions)
        ],
    )


def parsed(data: bytes) -> tuple[pb.ProduceRequest, list[list[Batch]]]:
    """The result of the protobuf parser."""
    message = pb.ProduceRequest.FromString(data)
    return message, [[batch_from_wire(b) for b in p.batches] for p in message.partitions]


SMALL, LARGE = batch_of(100), batch_of(2 * DETACHED_BYTES)


@pytest.mark.parametrize(
    "partitions",
    [
        [[LARGE]],
        [[SMALL], [LARGE, SMALL, LARGE], [], [SMALL, LARGE]],
        [[SMALL] * 4_000],
        [[SMALL, batch_of(DETACHED_BYTES - 200)], [batch_of(DETACHED_BYTES + 1)]],
    ],
)
def test_a_request_of_large_batches_has_the_content_that_the_parser_finds(
    partitions: list[list[Batch]],
) -> None:
    data = request_of(*partitions).SerializeToString()
    request = parse_produce(data)
    assert isinstance(request, DetachedProduce)
    message, batches = parsed(data)
    assert batches_of(request) == batches
    for partition in message.partitions:
        for batch in partition.batches:
            if len(batch.records) > DETACHED_BYTES:
                batch.ClearField("records")
    assert request.message == message


def test_the_records_of_a_large_batch_are_not_copied() -> None:
    data = request_of([LARGE]).SerializeToString()
    request = parse_produce(data)
    assert isinstance(request, DetachedProduce)
    ((records,),) = [[batch.records for batch in of] for of in batches_of(request)]
    assert isinstance(records, memoryview)
    assert records.obj is data


def test_a_small_request_is_parsed_normally() -> None:
    request = request_of([SMALL])
    assert parse_produce(request.SerializeToString()) == request


def field(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


@pytest.mark.parametrize("order", [(SMALL, LARGE), (LARGE, SMALL), (LARGE, LARGE, SMALL, LARGE)])
def test_of_duplicate_records_fields_the_last_counts(order: tuple[Batch, ...]) -> None:
    wire = b"".join(field(2, batch.records) for batch in order)
    data = field(3, field(4, wire) + field(4, b""))
    assert batches_of(parse_produce(data)) == parsed(data)[1]


@pytest.mark.parametrize("cut", [1, 100, DETACHED_BYTES])
def test_a_truncated_request_is_rejected_by_the_parser(cut: int) -> None:
    data = request_of([LARGE]).SerializeToString()
    with pytest.raises(DecodeError):
        parse_produce(data[:-cut])


@pytest.mark.parametrize("codec", list(Codec))
def test_brokers_accept_memory_views_of_records(codec: Codec) -> None:
    batch = batch_of(4 * DETACHED_BYTES, codec)
    ((viewed,),) = batches_of(parse_produce(request_of([batch]).SerializeToString()))
    assert isinstance(viewed.records, memoryview)
    check(viewed)
    assert is_costly_to_open(viewed)
    assert list(decode_slices(viewed)) == list(decode_slices(batch))
    assert without_deltas(viewed) == without_deltas(batch)
