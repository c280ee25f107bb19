"""A service that explains its cluster: it describes itself, and queries the other services."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable
from typing import Protocol

from tidelog.caller_limits import Callers
from tidelog.client.cluster_explainer import Explainer
from tidelog.inspection.model import (
    Explanation,
    Scope,
    ServiceState,
    StateRequest,
)


class Described(Protocol):
    def describe(self, request: StateRequest) -> Awaitable[ServiceState]: ...


class Explained:
    """The interface for `InspectServicer`, over a service that describes itself.

    - `callers`: the clients of all servers of the service.
    """

    def __init__(self, described: Described, explainer: Explainer, callers: Callers) -> None:
        self._described = described
        self._explainer = explainer
        self._callers = callers

    async def describe(self, request: StateRequest) -> ServiceState:
        state = await self._described.describe(request)
        now_ms = time.monotonic_ns() // 1_000_000
        return dataclasses.replace(state, limited_clients=self._callers.limited(now_ms))

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        return await self._explainer.explain((), scope, timeout_ms, self.describe)
