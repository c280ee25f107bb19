"""A service that explains its cluster: itself it asks directly, the others by their calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from tidelog.client.explaining import Explainer
from tidelog.inspection.model import Explanation, Scope, ServiceState, StateRequest


class Described(Protocol):
    def describe(self, request: StateRequest) -> Awaitable[ServiceState]: ...


class Explained:
    """What `InspectServicer` needs, of a service that describes itself."""

    def __init__(self, described: Described, explainer: Explainer) -> None:
        self._described = described
        self._explainer = explainer

    def describe(self, request: StateRequest) -> Awaitable[ServiceState]:
        return self._described.describe(request)

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        return await self._explainer.explain((), scope, timeout_ms, self._described.describe)
