"""The answers of services to Inspect."""

from __future__ import annotations

from tidelog.inspection.state_reports import ReplicaState, ServiceState
from tidelog.rpc.channels import open_channel
from tidelog.rpc.event_codec import event_from_wire
from tidelog.rpc.message_codec import from_wire
from tidelog.state_changes.event import StateChange
from tidelog.v1 import inspect_pb2 as pb
from tidelog.v1.inspect_pb2_grpc import InspectServiceStub

TIMEOUT_SECONDS = 10.0


async def described(
    address: str, topic: str = "", partition: int | None = None, *, only_unwell: bool = False
) -> ServiceState:
    request = pb.DescribeServiceRequest(topic=topic, partition=partition, only_unwell=only_unwell)
    async with open_channel(address) as channel:
        answer = await InspectServiceStub(channel).DescribeService(request, timeout=TIMEOUT_SECONDS)
    return from_wire(answer, ServiceState)


async def replica_of(address: str, topic: str, partition: int = 0) -> ReplicaState:
    """The replica as its broker describes it."""
    state = await described(address, topic, partition)
    assert state.broker is not None
    (replica,) = state.broker.replicas
    return replica


async def events_of(address: str, topic: str = "", *kinds: str) -> list[StateChange]:
    """The buffered events of the service at that address, oldest first."""
    request = pb.WatchEventsRequest(topic=topic, kinds=kinds)
    found: list[StateChange] = []
    async with open_channel(address) as channel:
        async for message in InspectServiceStub(channel).WatchEvents(
            request, timeout=TIMEOUT_SECONDS
        ):
            found += map(event_from_wire, message.events)
    return found
