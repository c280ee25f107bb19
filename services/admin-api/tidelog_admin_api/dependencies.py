"""What the gateway needs of the cluster, as narrow protocols, and how operations get at it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.client.operations import BrokerDetails, Operation, Throttle
from tidelog.inspection.model import Explanation, Scope
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.limits import Usage
from tidelog_admin_api.overviews import Overviews
from tidelog_runtime.clock import Clock


class ClusterAdmin(Protocol):
    """What any broker tells, and what the controller does of brokers and operations."""

    async def describe_cluster(self) -> ClusterDescription: ...

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]: ...

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]: ...

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]: ...

    async def describe_throttle(self) -> Throttle: ...


class Admin(ClusterAdmin, Protocol):
    """`tidelog.client.Admin`, as far as the gateway asks it."""


class Explains(Protocol):
    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        """Raises `TidelogError` and `UnreachableError`."""


@dataclass(slots=True)
class Dependencies:
    """`rng`: for ids that need to be nobody else's."""

    admin: Admin
    explains: Explains
    clock: Clock
    rng: random.Random


@dataclass(slots=True)
class Gateway:
    """What one running gateway has: `app.state.gateway`."""

    config: AdminApiConfig
    dependencies: Dependencies
    usage: Usage
    overviews: Overviews


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _admin(request: Request) -> Admin:
    return gateway_of(request).dependencies.admin


def _explains(request: Request) -> Explains:
    return gateway_of(request).dependencies.explains


def _overviews(request: Request) -> Overviews:
    return gateway_of(request).overviews


AskCluster = Annotated[ClusterAdmin, Depends(_admin)]
AskExplains = Annotated[Explains, Depends(_explains)]
AskOverviews = Annotated[Overviews, Depends(_overviews)]
