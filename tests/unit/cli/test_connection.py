"""Where commands get the broker addresses from."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidelog.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    check_any_listens,
    find_bootstrap,
)
from tidelog.cli.exit_status import ClusterUnreachableError, UsageError
from tidelog.client.tcp_dial import dial_service
from tidelog.inspection.explain import Listening
from tidelog_runtime.local.cluster_file import BrokerPart, ClusterFile, ControllerPart

VARIABLE = {"TIDELOG_BOOTSTRAP": "b:2"}


def local_cluster(directory: Path) -> Path:
    (directory / ".tidelog").mkdir()
    parts = ClusterFile(
        "default",
        "127.0.0.1:2379",
        [ControllerPart(1, "127.0.0.1:7401", 1)],
        [BrokerPart(1, "127.0.0.1:7501", 1, "/")],
    )
    parts.write(directory / ".tidelog")
    return directory / ".tidelog" / "cluster.json"


def test_the_option_overrides_the_variable(tmp_path: Path) -> None:
    local_cluster(tmp_path)
    assert find_bootstrap("a:1", VARIABLE, tmp_path) == Bootstrap("a:1", "--bootstrap")
    assert find_bootstrap(None, VARIABLE, tmp_path) == Bootstrap("b:2", "TIDELOG_BOOTSTRAP")


def test_the_local_cluster_is_found_from_subdirectories(tmp_path: Path) -> None:
    path = local_cluster(tmp_path)
    below = tmp_path / "a" / "b"
    assert find_bootstrap(None, {}, below) == Bootstrap(
        "127.0.0.1:7501",
        str(path),
        (("broker", 1, "127.0.0.1:7501"), ("controller", 1, "127.0.0.1:7401")),
    )


def test_without_a_setting_the_default_ports_are_tried(tmp_path: Path) -> None:
    assert find_bootstrap(None, {}, tmp_path).addresses == DEFAULT_BOOTSTRAP


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        json.dumps({"bootstrap": ""}),
        json.dumps({"bootstrap": "a:1", "brokers": [{"id": "first", "address": "a:1"}]}),
    ],
)
def test_an_invalid_cluster_file_is_rejected(tmp_path: Path, content: str) -> None:
    local_cluster(tmp_path).write_text(content)
    with pytest.raises(UsageError, match=r"cluster\.json.*--bootstrap"):
        find_bootstrap(None, {}, tmp_path)


async def test_a_missing_listener_fails_at_once() -> None:
    with socket.socket() as reserved:
        # Bound but not listening: connections are refused, and no other process takes the port.
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ClusterUnreachableError, match="from --bootstrap"):
            await check_any_listens(Bootstrap(address, "--bootstrap"))


async def test_one_listening_address_is_enough() -> None:
    with socket.socket() as reserved, socket.create_server(("127.0.0.1", 0)) as listening:
        reserved.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in (reserved, listening)]
        await check_any_listens(Bootstrap(",".join(addresses), "--bootstrap"))


FOREIGN = [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/1.1, not gRPC"),
    (bytes((0x15, 3, 1, 0, 2, 2, 70)), "speaks TLS, not plain gRPC"),
    (b"\x00\xff" * 50, "does not speak gRPC"),
    (b"SSH-2.0-x\r\n", "does not speak gRPC"),
]


@asynccontextmanager
async def server_that_sends(first: bytes) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("first", "named"), FOREIGN)
@pytest.mark.parametrize("only_foreign", [False, True])
async def test_another_program_at_every_address_fails_at_once(
    first: bytes, named: str, *, only_foreign: bool
) -> None:
    async with server_that_sends(first) as address:
        with pytest.raises(ClusterUnreachableError, match=f"{address} {named}.*gRPC address"):
            await check_any_listens(Bootstrap(address, "--bootstrap"), only_foreign=only_foreign)
        assert (await dial_service(address)).value == named


async def test_a_process_that_sends_nothing_or_grpc_may_be_a_broker() -> None:
    settings = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    for first in (b"", settings):
        async with server_that_sends(b"HTTP/1.1") as other, server_that_sends(first) as address:
            await check_any_listens(Bootstrap(f"{other},{address}", "--bootstrap"))
            assert await dial_service(address) is Listening.ACCEPTS


async def test_an_unresolvable_host_name_is_named() -> None:
    with pytest.raises(ClusterUnreachableError, match=r"absent\.invalid .*cannot be resolved"):
        await check_any_listens(Bootstrap("absent.invalid:7500", "--bootstrap"))


@pytest.mark.parametrize("given", ["", " ", ","])
def test_an_empty_bootstrap_does_not_select_another_cluster(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--bootstrap is empty"):
        find_bootstrap(given, VARIABLE, tmp_path)
