"""Requests between brokers and controllers are bounded before they are parsed, too. An entry
takes two bytes on the wire, but an object and a look-up in the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import (
    MAX_INTERNAL_REQUEST_BYTES,
    MAX_RANGE_BATCHES,
    MAX_RANGE_CONTENT_BYTES,
    MAX_REPLICAS_PER_REQUEST,
    TOTAL_LIMITS,
    entries_limit,
    entry_bytes_limit,
)
from tidelog.rpc import message_bounds
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.message_bounds import Rejected, bounded_deserializer
from tidelog.rpc.sliced_parsing import FIELDS_PER_SLICE
from tidelog.rpc.status import from_status
from tidelog.rpc.wrapped_handlers import request_type
from tidelog.v1 import (
    controller_pb2,
    record_batch_pb2,
    replica_control_pb2,
    replica_pb2,
    replica_pb2_grpc,
)
from tidelog.wire_fields import encode_varint
from unit.loop_turns import Turns


def internal_lists() -> Iterator[tuple[str, FieldDescriptor]]:
    for module in (controller_pb2, replica_control_pb2, replica_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for rpc in service.methods:
                for field in rpc.input_type.fields:
                    if field.is_repeated and field.message_type is not None:
                        yield f"/{service.full_name}/{rpc.name}", field


LISTS = list(internal_lists())


def parsed(method: str, data: bytes) -> Any:
    descriptor = request_type(method)
    assert descriptor is not None
    parse = GetMessageClass(descriptor).FromString
    received = bounded_deserializer(method, parse, descriptor)(data)
    return asyncio.run(message_bounds.parsed(method, received))


def entries_of(field: FieldDescriptor, count: int, size: int = 0) -> bytes:
    """Entries with one unknown field of this size, which every message accepts."""
    held = b"" if size == 0 else encode_varint(1000 << 3 | 2) + encode_varint(size) + bytes(size)
    return (encode_varint(field.number << 3 | 2) + encode_varint(len(held)) + held) * count


@pytest.mark.parametrize(("method", "field"), LISTS, ids=[field.full_name for _, field in LISTS])
def test_each_list_has_its_limit(method: str, field: FieldDescriptor) -> None:
    limit = entries_limit(field.full_name)
    assert len(getattr(parsed(method, entries_of(field, limit)), field.name)) == limit
    rejected = parsed(method, entries_of(field, limit + 1))
    assert isinstance(rejected, Rejected)
    assert rejected.error.code is ErrorCode.INVALID_REQUEST
    assert f"has {limit + 1} entries; a request has at most {limit}" in rejected.error.message


@pytest.mark.parametrize(("method", "field"), LISTS, ids=[field.full_name for _, field in LISTS])
def test_each_entry_has_a_byte_limit(method: str, field: FieldDescriptor) -> None:
    limit = entry_bytes_limit(field.full_name)
    assert not isinstance(parsed(method, entries_of(field, 1, limit - 10)), Rejected)
    rejected = parsed(method, entries_of(field, 1, limit))
    assert isinstance(rejected, Rejected)
    assert f"it has at most {limit}" in rejected.error.message


def nested_lists() -> Iterator[tuple[str, list[FieldDescriptor]]]:
    """The fields that lead from a request to a list in an entry of a list."""
    for method, field in LISTS:
        of_entry = field.message_type
        assert of_entry is not None
        for path in paths_of(of_entry):
            yield method, [field, *path]


def paths_of(descriptor: Descriptor) -> Iterator[list[FieldDescriptor]]:
    for field in descriptor.fields:
        if field.is_repeated:
            yield [field]
        elif field.message_type is not None:
            for path in paths_of(field.message_type):
                yield [field, *path]


NESTED = list(nested_lists())
OF_NESTED = pytest.mark.parametrize(
    ("method", "path"), NESTED, ids=[path[-1].full_name for _, path in NESTED]
)


def wire_field(field: FieldDescriptor, content: bytes) -> bytes:
    return encode_varint(field.number << 3 | 2) + encode_varint(len(content)) + content


def nested_in(path: list[FieldDescriptor], entries: bytes) -> bytes:
    for field in reversed(path[:-1]):
        entries = wire_field(field, entries)
    return entries


def wire_entries(field: FieldDescriptor, first: int, count: int) -> bytes:
    """Wire bytes of a list: packed for numbers, and with a key for a map."""
    if field.message_type is None and field.type != FieldDescriptor.TYPE_STRING:
        return wire_field(field, b"\x96\x01" * count)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        keys = [b"%d" % number for number in range(first, first + count)]
        of_key = field.message_type.fields_by_name["key"]
        return b"".join(wire_field(field, wire_field(of_key, key)) for key in keys)
    return wire_field(field, b"") * count


def padded(data: bytes) -> bytes:
    """The request, padded so that it is parsed in slices."""
    return data + encode_varint(1000 << 3 | 2) + encode_varint(100_000) + bytes(100_000)


def too_many(request: Any, path: list[FieldDescriptor]) -> None:
    assert isinstance(request, Rejected)
    assert request.error.code is ErrorCode.INVALID_REQUEST
    limit = entries_limit(path[-1].full_name)
    assert f"a request has at most {limit}" in request.error.message
    assert path[-1].name in request.error.message


def test_nested_lists_of_every_kind_are_covered() -> None:
    names = {path[-1].full_name for _, path in NESTED}
    assert {
        "tidelog.v1.RangeDigest.contents",
        "tidelog.v1.RangeDigest.segments",
        "tidelog.v1.PartitionState.isr",
        "tidelog.v1.PartitionState.config",
        "tidelog.v1.MovingReplicas.target",
    } <= names


@OF_NESTED
def test_each_nested_list_has_its_limit(method: str, path: list[FieldDescriptor]) -> None:
    limit = entries_limit(path[-1].full_name)
    allowed = nested_in(path, wire_entries(path[-1], 0, limit))
    descriptor = request_type(method)
    assert descriptor is not None
    expected = GetMessageClass(descriptor).FromString(allowed)
    assert parsed(method, allowed) == expected
    assert parsed(method, padded(allowed)) == GetMessageClass(descriptor).FromString(
        padded(allowed)
    )
    rejected = nested_in(path, wire_entries(path[-1], 0, limit + 1))
    too_many(parsed(method, rejected), path)
    too_many(parsed(method, padded(rejected)), path)


@OF_NESTED
def test_a_list_in_several_parts_has_one_limit(method: str, path: list[FieldDescriptor]) -> None:
    """A non-repeated message field may arrive in several parts, and so may numbers in unpacked
    form."""
    limit = entries_limit(path[-1].full_name)
    half = limit // 2 + 1
    parts = [wire_entries(path[-1], first, half) for first in (0, half)]
    in_entry = b"".join(nested_in(path[1:], part) for part in parts)
    rejected = wire_field(path[0], in_entry)
    too_many(parsed(method, rejected), path)
    too_many(parsed(method, padded(rejected)), path)


def test_unpacked_numbers_are_counted() -> None:
    method, path = next((m, p) for m, p in NESTED if p[-1].name == "replicas")
    number = encode_varint(path[-1].number << 3) + b"\x01"
    limit = entries_limit(path[-1].full_name)
    for count in (limit, limit + 1):
        found = parsed(method, padded(wire_field(path[0], number * count)))
        assert isinstance(found, Rejected) == (count > limit)


def test_short_entries_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list exceeds its own limit, but together they exceed the common one."""
    method, path = next((m, p) for m, p in NESTED if p[-1].name == "isr")
    monkeypatch.setitem(TOTAL_LIMITS, "tidelog.v1.LeaderAndIsrRequest", 20_000)
    entry = wire_field(path[0], wire_entries(path[-1], 0, 49))
    assert not isinstance(parsed(method, entry * 400), Rejected)
    rejected = parsed(method, entry * 401)
    assert isinstance(rejected, Rejected)
    assert "in all its lists together; it has at most 20000" in rejected.error.message


async def test_a_costly_entry_is_parsed_in_slices() -> None:
    limit = MAX_RANGE_BATCHES
    digest = replica_pb2.RangeDigest(
        topic_id="t" * 22,
        batches=[replica_pb2.BatchSummary(base_offset=n, crc32c=n) for n in range(limit)],
        segments=["one"] * limit,
        contents=[record_batch_pb2.Batch(records=b"r")] * (limit - 1),
        version=1,
    )
    digest.contents.add(records=bytes(MAX_RANGE_CONTENT_BYTES))
    other = replica_pb2.RangeDigest(segments=["other"])
    sent = replica_pb2.ReplicaFetchRequest(digests=[other, digest, other], broker_id=7)
    method = "/tidelog.v1.ReplicaService/ReplicaFetch"
    received = bounded_deserializer(method, sent.FromString, sent.DESCRIPTOR)(
        sent.SerializeToString()
    )
    async with Turns() as turns:
        assert await message_bounds.parsed(method, received) == sent
        assert turns.taken() >= 3 * limit // FIELDS_PER_SLICE


def test_a_request_has_a_byte_limit() -> None:
    method, _ = LISTS[0]
    rejected = parsed(method, bytes(MAX_INTERNAL_REQUEST_BYTES + 1))
    assert isinstance(rejected, Rejected)
    assert f"it has at most {MAX_INTERNAL_REQUEST_BYTES}" in rejected.error.message


async def test_a_large_request_is_parsed_in_slices() -> None:
    entries = [
        replica_pb2.ReplicaFetchPartition(topic_id="t" * 22, partition=number)
        for number in range(5 * FIELDS_PER_SLICE)
    ]
    sent = replica_pb2.ReplicaFetchRequest(
        partitions=entries, broker_id=7, digests=[replica_pb2.RangeDigest(segments=["one"])]
    )
    method = "/tidelog.v1.ReplicaService/ReplicaFetch"
    received = bounded_deserializer(method, sent.FromString, sent.DESCRIPTOR)(
        sent.SerializeToString()
    )
    async with Turns() as turns:
        assert await message_bounds.parsed(method, received) == sent
        assert turns.taken() >= 4


@pytest.mark.parametrize("cut", [b"\x08", b"\x0b", b"\x4a\x7f", b"\x08" + b"\xff" * 11])
def test_an_undecodable_large_request_is_rejected(cut: bytes) -> None:
    method, field = LISTS[0]
    rejected = parsed(method, entries_of(field, 9_000, 1) + cut)
    assert isinstance(rejected, Rejected)
    assert "is no message of that type" in rejected.error.message


class Replicas(replica_pb2_grpc.ReplicaServiceServicer):
    """Answers each request with its partitions."""

    async def ReplicaFetch(  # noqa: N802
        self, requests: AsyncIterator[replica_pb2.ReplicaFetchRequest], _: Any
    ) -> AsyncIterator[replica_pb2.ReplicaFetchResponse]:
        async for request in requests:
            yield replica_pb2.ReplicaFetchResponse(session_id=len(request.partitions))


async def test_a_stream_ends_with_the_first_request_beyond_a_limit() -> None:
    server = new_server()
    replica_pb2_grpc.add_ReplicaServiceServicer_to_server(Replicas(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    one = replica_pb2.ReplicaFetchPartition()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            call: Any = replica_pb2_grpc.ReplicaServiceStub(channel).ReplicaFetch()
            await call.write(replica_pb2.ReplicaFetchRequest(partitions=[one] * 3))
            assert (await call.read()).session_id == 3
            many = [one] * (MAX_REPLICAS_PER_REQUEST + 1)
            await call.write(replica_pb2.ReplicaFetchRequest(partitions=many))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
    finally:
        await server.stop(None)
    error = from_status(caught.value, "broker")
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert f"at most {MAX_REPLICAS_PER_REQUEST}" in str(error)
