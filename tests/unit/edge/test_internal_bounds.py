"""What brokers and controllers ask of each other is bounded, too, before it is parsed: an entry
takes two bytes on the wire, and an object and a look-up where it is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import (
    MAX_INTERNAL_ENTRY_BYTES,
    MAX_INTERNAL_REQUEST_BYTES,
    MAX_REPLICAS_PER_REQUEST,
    entries_limit,
)
from tidelog.rpc import message_bounds
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.message_bounds import Rejected, bounded_deserializer
from tidelog.rpc.sliced_parsing import FIELDS_PER_SLICE
from tidelog.rpc.status import from_status
from tidelog.rpc.wrapped_handlers import request_type
from tidelog.v1 import controller_pb2, replica_control_pb2, replica_pb2, replica_pb2_grpc
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
    """Each an unknown field of so many bytes, which every message may hold."""
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
def test_each_entry_has_its_bytes(method: str, field: FieldDescriptor) -> None:
    assert not isinstance(parsed(method, entries_of(field, 1, 100_000)), Rejected)
    rejected = parsed(method, entries_of(field, 1, MAX_INTERNAL_ENTRY_BYTES))
    assert isinstance(rejected, Rejected)
    assert f"it has at most {MAX_INTERNAL_ENTRY_BYTES}" in rejected.error.message


def test_a_request_has_its_bytes() -> None:
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
def test_a_large_request_that_is_no_message_is_rejected(cut: bytes) -> None:
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


async def test_a_stream_ends_with_the_first_request_that_is_too_much() -> None:
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
