"""Runs explain with the services that still answer."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.explain_requests import explain_cluster
from tidelog.inspection.model import Explanation, Scope
from tidelog_runtime.clock import Clock


class ClusterExplainer:
    """Explains the cluster, beginning with some addresses of its services.

    Services that those name are contacted, too.
    """

    def __init__(self, addresses: Sequence[str], clock: Clock) -> None:
        self._addresses = list(addresses)
        self._clock = clock

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        return await explain_cluster(self._addresses, scope, timeout_ms, self._clock)
