"""`tidelog brokers scrub`, against a broker's own service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.cli.exit_status import ExitStatus
from tidelog.rpc.channels import new_server
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import scrub_pb2
from tidelog.v1.scrub_pb2_grpc import ScrubServiceServicer, add_ScrubServiceServicer_to_server
from unit.cli.conftest import Commands
from unit.cli.test_broker_commands import GONE

STATUS = scrub_pb2.ScrubStatus(
    enabled=True,
    running=True,
    total_bytes=1_000,
    pass_bytes=250,
    last_pass_ended_ms=1_700_000_000_000,
    damage_found=3,
    diverged_ranges=2,
)


class ScrubbingBroker(ScrubServiceServicer):
    def __init__(self) -> None:
        self.requests: list[scrub_pb2.ScrubRequest] = []
        self.server = new_server()
        add_ScrubServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    async def Scrub(  # noqa: N802 - the generated name
        self,
        request: scrub_pb2.ScrubRequest,
        context: Any,  # noqa: ARG002
    ) -> scrub_pb2.ScrubResponse:
        self.requests.append(request)
        return scrub_pb2.ScrubResponse(status=STATUS)


@pytest.fixture
def broker(commands: Commands) -> Iterator[ScrubbingBroker]:
    async def start() -> ScrubbingBroker:
        broker = ScrubbingBroker()
        await broker.server.start()
        return broker

    broker = commands.in_loop(start())
    running = pb.BrokerDetails(
        broker_id=1, status=pb.BROKER_STATUS_RUNNING, address=broker.address, broker_epoch=9
    )
    commands.controller.answer(
        "DescribeBrokers", pb.DescribeBrokersResponse(brokers=[running, GONE])
    )
    yield broker
    commands.in_loop(broker.server.stop(None))


@pytest.mark.parametrize(
    ("flags", "begin", "full_rate"),
    [((), True, False), (("--full-rate",), True, True), (("--status",), False, False)],
)
def test_a_pass_begins_on_every_running_broker_unless_only_the_status_is_requested(
    commands: Commands,
    broker: ScrubbingBroker,
    flags: tuple[str, ...],
    *,
    begin: bool,
    full_rate: bool,
) -> None:
    result = commands.run("brokers", "scrub", *flags)
    assert result.exit_code == ExitStatus.DONE
    assert broker.requests == [scrub_pb2.ScrubRequest(begin=begin, full_rate=full_rate)]
    row = result.stdout.splitlines()[1].split()
    assert row == ["1", "running", "25", "%", "2023-11-14T22:13:20.000Z", "3", "2"]


def test_json_has_all_reported_fields(commands: Commands, broker: ScrubbingBroker) -> None:
    (shown,) = json.loads(commands.run("brokers", "scrub", "--status", "--json").stdout)
    assert shown["broker_id"] == 1
    assert (shown["total_bytes"], shown["damage_found"]) == (1_000, 3)
    assert set(shown) == {"broker_id", *(f.name for f in STATUS.DESCRIPTOR.fields)}
    assert len(broker.requests) == 1


@pytest.mark.usefixtures("broker")
def test_a_departed_broker_is_an_error(commands: Commands) -> None:
    result = commands.run("brokers", "scrub", "2")
    assert result.exit_code != ExitStatus.DONE
    assert "broker 2 is not running" in result.stderr


def test_status_and_full_rate_are_mutually_exclusive(
    commands: Commands, broker: ScrubbingBroker
) -> None:
    assert commands.run("brokers", "scrub", "--status", "--full-rate").exit_code == 2
    assert broker.requests == []
