"""The gateway's view of the cluster as narrow protocols, and how operations receive them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from tidelog.client.admin_topics import AlteredConfig, Assignment, CreatedTopic, ResizedTopic
from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.client.operations import (
    BegunOperation,
    BrokerDetails,
    LeaderChange,
    Operation,
    RestartCheck,
    Throttle,
)
from tidelog.client.scrubbing import scrub_broker
from tidelog.client.service_states import ReportedStates
from tidelog.client.topic_details import TopicDetails
from tidelog.inspection.model import Explanation, Scope, StateRequest
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.model import Acks
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.event_hub import EventHub, TellsEvents
from tidelog_admin_api.limits import Usage
from tidelog_admin_api.operating import LeadersAdmin, OperationsAdmin, RecoveryAdmin
from tidelog_admin_api.overviews import Overviews
from tidelog_admin_api.record_reader import ReadsRecords
from tidelog_admin_api.record_sender import RecordSender, SendsRecords
from tidelog_admin_api.timelines import ReadsPublished, Timelines
from tidelog_runtime.clock import Clock


class ClusterAdmin(Protocol):
    """Metadata that any broker has, and brokers and operations as the controller knows them."""

    async def describe_cluster(self) -> ClusterDescription: ...

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]: ...

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]: ...

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]: ...

    async def describe_throttle(self) -> Throttle: ...


class ThrottleAdmin(Protocol):
    async def describe_throttle(self) -> Throttle: ...

    async def set_throttle(
        self, bytes_per_second: int | None, *, expected_revision: int = 0, dry_run: bool = False
    ) -> Throttle: ...


class BrokerAdmin(Protocol):
    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]: ...

    async def check_restart(self, broker_id: int) -> RestartCheck: ...

    async def set_maintenance(
        self,
        broker_ids: Sequence[int],
        timeout_ms: int = ...,
        *,
        maintenance: bool = True,
        dry_run: bool = False,
    ) -> tuple[list[LeaderChange], int]: ...

    async def add_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation: ...

    async def remove_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation: ...


class TopicAdmin(Protocol):
    """Changes and descriptions of topics; `tidelog.client.admin_topics` documents each method."""

    async def describe_cluster(self) -> ClusterDescription: ...

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]: ...

    async def describe_topic(self, topic: str) -> TopicDescription: ...

    async def topic_details(
        self,
        topics: Sequence[str] = (),
        *,
        internal: bool = False,
        with_partitions: bool = True,
    ) -> list[TopicDetails]: ...

    async def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = ...,
        *,
        assignment: Assignment = (),
        operation_id: str = "",
        dry_run: bool = False,
    ) -> CreatedTopic: ...

    async def plan_deletion(self, topic: str, *, expected_revision: int = 0) -> ResizedTopic: ...

    async def delete_topic(
        self,
        topic: str,
        timeout_ms: int = ...,
        *,
        topic_id: str = "",
        expected_revision: int = 0,
    ) -> tuple[int, ...]: ...

    async def alter_topic_config(
        self,
        topic: str,
        changed: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        timeout_ms: int = ...,
        *,
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> AlteredConfig: ...

    async def add_partitions(
        self,
        topic: str,
        partitions: int,
        timeout_ms: int = ...,
        *,
        assignment: Assignment = (),
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> ResizedTopic: ...

    async def remove_partitions(
        self,
        topic: str,
        partitions: int,
        timeout_ms: int = ...,
        *,
        confirm_topic: str = "",
        topic_id: str = "",
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> ResizedTopic: ...

    async def set_replication_factor(
        self,
        topics: Sequence[str],
        replication_factor: int,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation: ...


class Admin(
    ClusterAdmin,
    ThrottleAdmin,
    BrokerAdmin,
    TopicAdmin,
    OperationsAdmin,
    LeadersAdmin,
    RecoveryAdmin,
    Protocol,
):
    """The part of `tidelog.client.Admin` that the gateway uses."""


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
    events: TellsEvents
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


def _events(request: Request) -> TellsEvents:
    return gateway_of(request).dependencies.events


def _timelines(request: Request) -> Timelines:
    return gateway_of(request).timelines


AskCluster = Annotated[ClusterAdmin, Depends(_admin)]
AskThrottle = Annotated[ThrottleAdmin, Depends(_admin)]
AskBrokers = Annotated[BrokerAdmin, Depends(_admin)]
AskTopics = Annotated[TopicAdmin, Depends(_admin)]
AskStates = Annotated[States, Depends(_states)]
AskExplains = Annotated[Explains, Depends(_explains)]
AskScrub = Annotated[ScrubsBroker, Depends(_scrub)]
AskOverviews = Annotated[Overviews, Depends(_overviews)]
AskOperations = Annotated[OperationsAdmin, Depends(_admin)]
AskLeaders = Annotated[LeadersAdmin, Depends(_admin)]
AskRecovery = Annotated[RecoveryAdmin, Depends(_admin)]
AskEvents = Annotated[TellsEvents, Depends(_events)]
AskTimelines = Annotated[Timelines, Depends(_timelines)]
AskGateway = Annotated[Gateway, Depends(gateway_of)]
