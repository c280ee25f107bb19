"""Calls every gRPC method of one release that a service may have with an empty request, in a
process of its own:

    python -m upgrade.every_method ADDRESS...

It prints a JSON object: by address, the status of each method. The messages come from the release
whose packages this process imports. An empty request is valid for few methods; it shows that the
other release has the method and answers it. What could change the cluster is a dry run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterable, Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tidelog import v1
from tidelog.rpc.channels import open_channel

TIMEOUT_S = 10.0
# A stream has no end of its own.
STREAM_TIMEOUT_S = 0.5
DRY_RUN = "dry_run"


def own_methods() -> Iterator[Any]:
    """The descriptors of all methods of this release."""
    for name in sorted(m.name for m in iter_modules(v1.__path__) if m.name.endswith("_pb2")):
        module = import_module(f"{v1.__name__}.{name}")
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


async def call(channel: grpc.aio.Channel, method: Any) -> str:
    """Returns the name of the status, and its message if it is an error.

    A method with a stream of requests has a stream of responses, too."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request: Any = GetMessageClass(method.input_type)()
    if DRY_RUN in method.input_type.fields_by_name:
        request.dry_run = True
    serialize = type(request).SerializeToString
    parse = GetMessageClass(method.output_type).FromString
    try:
        if method.client_streaming:
            stream: AsyncIterable[Message] = channel.stream_stream(
                path, request_serializer=serialize, response_deserializer=parse
            )(iter([request]), timeout=STREAM_TIMEOUT_S)
        elif method.server_streaming:
            stream = channel.unary_stream(
                path, request_serializer=serialize, response_deserializer=parse
            )(request, timeout=STREAM_TIMEOUT_S)
        else:
            unary = channel.unary_unary(
                path, request_serializer=serialize, response_deserializer=parse
            )
            await unary(request, timeout=TIMEOUT_S)
            return grpc.StatusCode.OK.name
        async for _ in stream:
            pass
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return grpc.StatusCode.OK.name


async def served_by(channel: grpc.aio.Channel) -> set[str]:
    """The full names of the services behind the channel."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    stream = stub.ServerReflectionInfo(timeout=TIMEOUT_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await stream.read()
    await stream.done_writing()
    return {service.name for service in answer.list_services_response.service}


async def call_all(addresses: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for address in addresses:
        async with open_channel(address) as channel:
            served = await served_by(channel)
            found[address] = {
                f"{method.containing_service.name}.{method.name}": await call(channel, method)
                for method in own_methods()
                if method.containing_service.full_name in served
            }
    return found


def main() -> None:
    json.dump(asyncio.run(call_all(sys.argv[1:])), sys.stdout)


if __name__ == "__main__":
    main()
