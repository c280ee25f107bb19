"""The gateway's view of the cluster as narrow protocols, and how operations receive them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from tidelog.client import Admin
from tidelog.client.scrubbing import scrub_broker
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.model import Explanation, Scope, StateRequest
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.model import Acks
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.event_hub import EventHub, EventSource
from tidelog_admin_api.limits import Usage
from tidelog_admin_api.overviews import Overviews
from tidelog_admin_api.record_reader import ReadsRecords
from tidelog_admin_api.record_sender import RecordSender, SendsRecords
from tidelog_admin_api.timelines import ReadsPublished, Timelines
from tidelog_runtime.clock import Clock


class States(Protocol):
    """Reads the states of services, as each service reports its own."""

    async def ask(self, request: StateRequest, timeout_ms: int = ...) -> ReportedStates: ...


class Explains(Protocol):
    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        """Raises `TidelogError` and `UnreachableError`."""


class ScrubsBroker(Protocol):
    """The signature of `tidelog.client.scrubbing.scrub_broker`."""

    async def __call__(
        self, address: str, *, begin: bool, full_rate: bool, timeout_seconds: float
    ) -> ScrubProgress: ...


@dataclass(slots=True)
class Dependencies:
    """What the composition root provides to the gateway.

    - `rng`: makes trace ids, which must be unique
    """

    admin: Admin
    explains: Explains
    states: States
    clock: Clock
    rng: random.Random
    events: EventSource
    producers: Callable[[Acks], SendsRecords]
    # Returns a consumer for one read. The argument limits, in milliseconds, how long it may take to
    # find the beginning and end of the partition.
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
    hub: EventHub
    sender: RecordSender
    timelines: Timelines


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _admin(request: Request) -> Admin:
    return gateway_of(request).dependencies.admin


def _explains(request: Request) -> Explains:
    return gateway_of(request).dependencies.explains


def _states(request: Request) -> States:
    return gateway_of(request).dependencies.states


def _scrub(request: Request) -> ScrubsBroker:
    return gateway_of(request).dependencies.scrub


def _overviews(request: Request) -> Overviews:
    return gateway_of(request).overviews


def _events(request: Request) -> EventSource:
    return gateway_of(request).dependencies.events


def _timelines(request: Request) -> Timelines:
    return gateway_of(request).timelines


AskAdmin = Annotated[Admin, Depends(_admin)]
AskStates = Annotated[States, Depends(_states)]
AskExplains = Annotated[Explains, Depends(_explains)]
AskScrub = Annotated[ScrubsBroker, Depends(_scrub)]
AskOverviews = Annotated[Overviews, Depends(_overviews)]
AskEvents = Annotated[EventSource, Depends(_events)]
AskTimelines = Annotated[Timelines, Depends(_timelines)]
AskGateway = Annotated[Gateway, Depends(gateway_of)]
