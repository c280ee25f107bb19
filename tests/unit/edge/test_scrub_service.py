"""ScrubService over gRPC."""

from __future__ import annotations

from typing import cast

from tidelog.rpc.channels import new_server, open_channel
from tidelog.v1 import scrub_pb2 as pb
from tidelog.v1.scrub_pb2_grpc import ScrubServiceStub, add_ScrubServiceServicer_to_server
from tidelog_broker.edge.scrub_service import ScrubService
from tidelog_broker.storage.scrub_state import ScrubState
from tidelog_broker.storage.scrubber import Scrubber, ScrubStatus


class FakeScrubber:
    def __init__(self) -> None:
        self.begun: list[bool] = []

    def begin_pass(self, *, full_rate: bool) -> None:
        self.begun.append(full_rate)

    def status(self) -> ScrubStatus:
        state = ScrubState("id", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
        return ScrubStatus(state, 100, bool(self.begun), enabled=True, running=True)


async def test_a_pass_begins_only_on_request_and_the_status_is_returned() -> None:
    scrubber, server = FakeScrubber(), new_server()
    add_ScrubServiceServicer_to_server(ScrubService(cast(Scrubber, scrubber)), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with open_channel(address) as channel:
        stub = ScrubServiceStub(channel)
        shown = (await stub.Scrub(pb.ScrubRequest())).status
        assert scrubber.begun == []
        started = (await stub.Scrub(pb.ScrubRequest(begin=True, full_rate=True))).status
    await server.stop(None)
    assert scrubber.begun == [True]
    assert (shown.full_rate, started.full_rate) == (False, True)
    assert started == pb.ScrubStatus(
        enabled=True,
        running=True,
        full_rate=True,
        total_bytes=100,
        pass_began_ms=3,
        pass_bytes=4,
        passes=5,
        last_pass_began_ms=6,
        last_pass_ended_ms=7,
        last_pass_bytes=8,
        bytes_checked=9,
        damage_found=10,
    )
