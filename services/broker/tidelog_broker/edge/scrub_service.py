"""ScrubService: begins a check of the logs on disk, and returns its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio

from tidelog.v1 import scrub_pb2 as pb
from tidelog.v1.scrub_pb2_grpc import ScrubServiceServicer
from tidelog_broker.storage.scrubber import Scrubber, ScrubStatus

Context = grpc.aio.ServicerContext[Any, Any]


class ScrubService(ScrubServiceServicer):
    def __init__(self, scrubber: Scrubber, diverged_ranges: Callable[[], int] = lambda: 0) -> None:
        """`diverged_ranges` returns the present number of divergences."""
        self._scrubber = scrubber
        self._diverged_ranges = diverged_ranges

    async def Scrub(  # noqa: N802 - the generated name
        self,
        request: pb.ScrubRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ScrubResponse:
        if request.begin:
            self._scrubber.begin_pass(full_rate=request.full_rate)
        status = self._scrubber.status()
        return pb.ScrubResponse(status=_to_wire(status, self._diverged_ranges()))


def _to_wire(status: ScrubStatus, diverged_ranges: int) -> pb.ScrubStatus:
    state = status.state
    return pb.ScrubStatus(
        enabled=status.enabled,
        running=status.running,
        full_rate=status.full_rate,
        total_bytes=status.total_bytes,
        pass_began_ms=state.pass_began_ms,
        pass_bytes=state.pass_bytes,
        passes=state.passes,
        last_pass_began_ms=state.last_pass_began_ms,
        last_pass_ended_ms=state.last_pass_ended_ms,
        last_pass_bytes=state.last_pass_bytes,
        bytes_checked=state.bytes_checked,
        damage_found=state.damage_found,
        diverged_ranges=diverged_ranges,
    )
