"""Collects a controller's metrics for a scrape, on its event loop and in slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.inspection.gateway_reports import GATEWAY_STATES, AnnouncedGateway, state_of
from tidelog.inspection.model import BrokerBacklog
from tidelog_controller.metrics.cluster_figures import ClusterFigures, tell_cluster
from tidelog_controller.state.context import Context
from tidelog_runtime.telemetry.metrics import controller_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.service_catalogue import QUEUE_DEPTH
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

# Partitions between two yields to the event loop; about a millisecond.
PARTITIONS_PER_TURN = 512


class Reign(Protocol):
    """What the collector reads from an active controller."""

    @property
    def context(self) -> Context: ...

    @property
    def is_loaded(self) -> bool:
        """Whether the cluster's state has been read from the store."""

    def backlogs(self) -> Sequence[BrokerBacklog]: ...

    def queues(self) -> Mapping[str, int]:
        """Queue depths by the names in CONTROLLER_QUEUES."""


class Controller(Protocol):
    @property
    def reign(self) -> Reign | None:
        """None: the controller is a standby."""

    def described_gateways(self) -> Sequence[AnnouncedGateway]: ...


class ControllerCollector:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def collect(self, snapshot: MetricsSnapshot) -> None:
        reign = self._controller.reign
        snapshot.set(catalogue.ACTIVE, reign is not None)
        states = Counter(map(state_of, self._controller.described_gateways()))
        for state in GATEWAY_STATES:
            snapshot.set(catalogue.GATEWAYS, states[state], state)
        queues = reign.queues() if reign is not None else {}
        for queue in catalogue.CONTROLLER_QUEUES:
            snapshot.set(QUEUE_DEPTH, queues.get(queue, 0), queue)
        if reign is not None and reign.is_loaded:
            await self._collect_cluster(snapshot, reign)

    async def _collect_cluster(self, snapshot: MetricsSnapshot, reign: Reign) -> None:
        """Counts each partition as it is at that moment, and yields between slices."""
        context, figures = reign.context, ClusterFigures()
        tell_cluster(snapshot, context, reign.backlogs())
        position = 0
        for topic in list(context.topics):
            for partition in context.partitions_of(topic):
                held = context.partition(partition)
                if held is not None:
                    figures.add(partition, held)
                position += 1
                if position % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
        if self._controller.reign is reign:
            figures.tell(snapshot)
