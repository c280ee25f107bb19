from __future__ import annotations

import asyncio
import socket
from typing import NoReturn

import pytest

from tidelog.inspection.controller_reports import BrokerConnection
from tidelog_controller.shell.broker_channel import BrokerChannel, TcpDialer
from tidelog_controller.state.commands import SendStopReplica
from tidelog_controller.state.context import ControllerIdentity
from tidelog_controller.state.events import (
    CommandAnswered,
    CommandLost,
    ConnectionEnded,
    DialOutcome,
    Event,
)
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.replica_control import StopReplicaCommand
from unit.controller.shell_fakes import FakeNetwork


def channel(network: FakeNetwork, events: asyncio.Queue[Event]) -> BrokerChannel:
    return BrokerChannel(
        1,
        10,
        "b:1",
        identity=ControllerIdentity(1, 4, 99),
        control=network.connect("b:1"),
        dialer=network,
        clock=SystemClock(),
        emit=events.put,
    )


async def test_a_closed_connection_is_followed_by_a_dial_and_reported() -> None:
    network, events = FakeNetwork(), asyncio.Queue[Event]()
    made = channel(network, events)
    async with asyncio.TaskGroup() as tasks:
        made.start(tasks)
        network.kill("b:1")
        event = await events.get()
        await made.close()
    assert isinstance(event, ConnectionEnded)
    assert event[:3] == (1, 10, DialOutcome.REFUSED)


async def test_a_watch_names_its_controller_epoch_and_broker_epoch() -> None:
    network, events = FakeNetwork(), asyncio.Queue[Event]()
    made = channel(network, events)
    async with asyncio.TaskGroup() as tasks:
        made.start(tasks)
        await asyncio.sleep(0)
        await made.close()
    assert network.watches == [(1, 4, 10)]


async def test_a_connection_lasts_until_it_ends_and_the_last_dial_is_described() -> None:
    network, events = FakeNetwork(), asyncio.Queue[Event]()
    made = channel(network, events)
    assert not made.described().is_connected
    async with asyncio.TaskGroup() as tasks:
        made.start(tasks)
        await asyncio.sleep(0)
        assert made.described() == BrokerConnection(1, 10)
        network.kill("b:1")
        await events.get()
        ended = made.described()
        await made.close()
    assert not ended.is_connected
    assert ended.dial == "refused"


async def test_a_command_is_answered_or_lost() -> None:
    network, events = FakeNetwork(), asyncio.Queue[Event]()
    made = channel(network, events)
    command = SendStopReplica(1, 7, StopReplicaCommand(1, 4, 10, []))
    await made.send(command)
    network.kill("b:1")
    await made.send(command)
    answered, lost = await events.get(), await events.get()
    assert isinstance(answered, CommandAnswered)
    assert isinstance(lost, CommandLost)
    assert (answered.id, lost.id) == (7, 7)


async def test_a_listening_port_accepts() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await TcpDialer().dial(f"127.0.0.1:{port}") is DialOutcome.ACCEPTED
    server.close()
    await server.wait_closed()


@pytest.mark.rule("refused-connection-is-a-crash")
async def test_a_port_without_a_process_refuses_connections() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert await TcpDialer().dial(f"127.0.0.1:{port}") is DialOutcome.REFUSED


def resolver_fails(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(code, "as the test wants it")

    monkeypatch.setattr(socket, "getaddrinfo", fail)


async def test_an_unknown_name_is_unresolved(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver_fails(monkeypatch, socket.EAI_NONAME)
    assert await TcpDialer().dial("broker-1:7500") is DialOutcome.UNRESOLVED


@pytest.mark.parametrize("host", ["a..b", "n" * 64])
async def test_an_invalid_name_says_nothing_about_the_broker(host: str) -> None:
    assert await TcpDialer().dial(f"{host}:7500") is DialOutcome.NO_ANSWER


@pytest.mark.rule("refused-connection-is-a-crash")
@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_FAIL])
async def test_a_failing_resolver_says_nothing_about_the_broker(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    resolver_fails(monkeypatch, code)
    assert await TcpDialer().dial("broker-1:7500") is DialOutcome.NO_ANSWER
