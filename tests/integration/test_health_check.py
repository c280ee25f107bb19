"""The health check of containers, as they run it, against real servers."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator

import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tidelog.rpc.channels import new_server

STATUS = health_pb2.HealthCheckResponse


async def check(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tidelog_runtime.health_check",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.fixture
async def servicer() -> health.aio.HealthServicer:
    return health.aio.HealthServicer()


@pytest.fixture
async def address(servicer: health.aio.HealthServicer) -> AsyncIterator[str]:
    server = new_server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_serving_server_is_healthy(
    servicer: health.aio.HealthServicer, address: str
) -> None:
    await servicer.set("", STATUS.SERVING)
    assert await check("grpc", address) == (0, f"{address}: SERVING\n")


async def test_a_server_that_does_not_serve_yet_is_alive_and_not_healthy(
    servicer: health.aio.HealthServicer, address: str
) -> None:
    await servicer.set("", STATUS.NOT_SERVING)
    assert await check("grpc", address) == (1, f"{address}: says NOT_SERVING\n")
    assert await check("grpc", "--alive", address) == (0, f"{address}: NOT_SERVING\n")


async def test_an_absent_server_is_unhealthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    status, output = await check("grpc", f"127.0.0.1:{port}")
    assert status == 1
    assert "refused" in output


async def test_an_http_service_is_checked_for_readiness() -> None:
    requests = []

    async def answer_unavailable(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        requests.append(await reader.readline())
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_unavailable, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        status, output = await check("http", f"127.0.0.1:{port}")
    assert (status, requests) == (1, [b"GET /ready HTTP/1.1\r\n"])
    assert "503" in output
