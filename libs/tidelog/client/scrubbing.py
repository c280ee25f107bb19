"""Starts the scrub of a broker's disk, and queries its progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

import grpc.aio

from tidelog.admin_messages import BrokerDetails
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.rpc.channels import open_channel
from tidelog.rpc.status import from_status
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import scrub_pb2
from tidelog.v1.scrub_pb2_grpc import ScrubServiceStub


def scrubbed_brokers(
    brokers: Iterable[BrokerDetails], named: Sequence[int] = ()
) -> list[BrokerDetails]:
    """Returns the running brokers. Raises UNKNOWN_BROKER if one in `named` is not running."""
    running = []
    for broker in brokers:
        if broker.address and not broker.gone_at_ms:
            running.append(broker)
        elif broker.broker_id in named:
            raise TidelogError(
                ErrorCode.UNKNOWN_BROKER, f"broker {broker.broker_id} is not running; start it"
            )
    return running


async def scrub_broker(
    address: str, *, begin: bool, full_rate: bool, timeout_seconds: float
) -> ScrubProgress:
    """Returns the progress of the broker at this address; with `begin`, starts a pass. Raises
    `TidelogError`, and `UnreachableError` if there is no answer."""
    request = scrub_pb2.ScrubRequest(begin=begin, full_rate=full_rate)
    async with open_channel(address) as channel:
        try:
            answer = await ScrubServiceStub(channel).Scrub(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise from_status(error, address) from error
    if answer.HasField("error"):
        raise error_from_wire(answer.error)
    return ScrubProgress(*(getattr(answer.status, field.name) for field in fields(ScrubProgress)))
