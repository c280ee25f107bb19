"""What operations use of the cluster and the gateway, and how FastAPI passes it to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from tidelog.client import Admin
from tidelog.client.scrubbing import scrub_broker
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.inspection.state_reports import ServiceState, StateRequest
from tidelog.model import Acks
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.event_hub import EventHub, EventSource
from tidelog_admin_api.history_sampler import HistorySampler
from tidelog_admin_api.limits import Usage
from tidelog_admin_api.overviews import Explain, Overviews
from tidelog_admin_api.record_reader import ReadsRecords
from tidelog_admin_api.record_sender import RecordSender, SendsRecords
from tidelog_admin_api.timelines import ReadsPublished, Timelines
from tidelog_runtime.clock import Clock


class States(Protocol):
    """Queries services for their states."""

    async def ask(self, request: StateRequest, timeout_ms: int = ...) -> ReportedStates: ...

    async def replicas(
        self, addresses: Sequence[str], timeout_ms: int
    ) -> Sequence[ServiceState]: ...


class ScrubsBroker(Protocol):
    """The signature of `tidelog.client.scrubbing.scrub_broker`."""

    async def __call__(
        self, address: str, *, begin: bool, full_rate: bool, timeout_seconds: float
    ) -> ScrubProgress: ...


@dataclass(slots=True)
class Dependencies:
    """What the composition root provides to the gateway.

    - `rng`: generates trace ids, which must be unique
    - `consumers`: returns a consumer for one read. The argument is the time in milliseconds that
      it may take to find the first and last offset of the partition.
    """

    admin: Admin
    explain: Explain
    states: States
    clock: Clock
    rng: random.Random
    events: EventSource
    producers: Callable[[Acks], SendsRecords]
    consumers: Callable[[int], ReadsRecords]
    published: ReadsPublished
    scrub: ScrubsBroker = scrub_broker


@dataclass(slots=True)
class Gateway:
    """The parts of a running gateway, in `app.state.gateway`."""

    config: AdminApiConfig
    dependencies: Dependencies
    usage: Usage
    overviews: Overviews
    sampler: HistorySampler
    hub: EventHub
    sender: RecordSender
    timelines: Timelines


def _provided(part: Callable[[Gateway], object]) -> Any:
    # A coroutine, since FastAPI calls other functions in a thread.
    async def provide(request: Request) -> object:
        return part(request.app.state.gateway)

    return Depends(provide)


AdminDep = Annotated[Admin, _provided(lambda gateway: gateway.dependencies.admin)]
StatesDep = Annotated[States, _provided(lambda gateway: gateway.dependencies.states)]
ExplainDep = Annotated[Explain, _provided(lambda gateway: gateway.dependencies.explain)]
ScrubDep = Annotated[ScrubsBroker, _provided(lambda gateway: gateway.dependencies.scrub)]
OverviewsDep = Annotated[Overviews, _provided(lambda gateway: gateway.overviews)]
SamplerDep = Annotated[HistorySampler, _provided(lambda gateway: gateway.sampler)]
EventsDep = Annotated[EventSource, _provided(lambda gateway: gateway.dependencies.events)]
TimelinesDep = Annotated[Timelines, _provided(lambda gateway: gateway.timelines)]
GatewayDep = Annotated[Gateway, _provided(lambda gateway: gateway)]
