"""Runs `tidelog explain` against the cluster repeatedly."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from beside import beside
from faults.cluster import Cluster
from faults.connections import routed
from faults.explanations import SERIOUS, TimedExplanation
from faults.explicable import LASTING
from faults.load import now_ms
from tidelog.client.explain_requests import explain_cluster
from tidelog.client.tcp_dial import dial
from tidelog.errors import TidelogError
from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import Scope

REQUEST_PAUSE_S = 1.0
ANSWER_MS = 1_000
# Beyond all timeouts of the product.
REQUEST_TIMEOUT_S = 15.0
# Repeated elections count as over after 45 s without another.
WELL_TIMEOUT_S = 90.0


class ExplainWatch:
    """`explanations`: the explanations in the order of their requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random()
        self.explanations: list[TimedExplanation] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Requests explanations while the context is entered."""
        async with beside(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            await self._request()
            await asyncio.sleep(REQUEST_PAUSE_S)

    async def until_well(self) -> str:
        """The findings that remain when the time is up. Empty: the cluster is healthy, except for
        findings that last by design."""
        deadline_ms = now_ms() + round(WELL_TIMEOUT_S * 1000)
        while True:
            answer = await self._request()
            serious = [
                finding
                for finding in answer.findings
                if finding.severity in SERIOUS and finding.cause not in LASTING
            ]
            if not serious and not answer.problem:
                return ""
            if now_ms() >= deadline_ms:
                return answer.text
            await asyncio.sleep(REQUEST_PAUSE_S)

    async def _request(self) -> TimedExplanation:
        """Requests an explanation from the first service that answers, in a random order: all
        services must give equally good explanations."""
        services = self._cluster.services
        routes = self._cluster.direct_routes
        addresses = self._rng.sample(list(services), len(services))
        begin_ms = now_ms()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                explained = await explain_cluster(
                    addresses,
                    Scope(),
                    ANSWER_MS,
                    connect=partial(routed, routes),
                    known=services,
                    dial=partial(_dial, routes),
                )
        except (TidelogError, TimeoutError) as error:
            answer = TimedExplanation(begin_ms, now_ms(), problem=str(error) or "it took too long")
        else:
            answer = TimedExplanation(begin_ms, now_ms(), explained.findings)
        self.explanations.append(answer)
        return answer


async def _dial(routes: Mapping[str, str], address: str) -> Listening:
    return await dial(routes.get(address, address))
