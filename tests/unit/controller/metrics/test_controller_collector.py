"""Metrics of a controller that stands by, reads the cluster, or is active."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.state_reports import BrokerBacklog
from tidelog.model import TopicPartition
from tidelog_controller.metrics.controller_metrics import PARTITIONS_PER_TURN, ControllerCollector
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.telemetry.metrics.controller_catalogue import (
    CLUSTER_METRICS,
    CONTROLLER_METRICS,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from unit.controller.metrics.test_cluster_metrics import key

KEYS = Keys("test")
CLUSTER_NAMES = {metric.name for metric in CLUSTER_METRICS}


class Reign:
    def __init__(self, partitions: int, *, loaded: bool = True) -> None:
        self.is_loaded = loaded
        self.context = Context(KEYS)
        entry = encode(TopicEntry("id", partitions, 3, {}))
        self._absorb(KEYS.topic("sea"), entry)
        for number in range(partitions):
            name = KEYS.leader_and_isr(TopicPartition("sea", number))
            self._absorb(name, encode_leader_and_isr(key()))

    def _absorb(self, name: str, value: bytes) -> None:
        revision = self.context.revision + 1
        self.context.absorb(Changed(name, KeyValue(name, value, revision, revision), revision))

    def backlogs(self) -> Sequence[BrokerBacklog]:
        return ()

    def queues(self) -> Mapping[str, int]:
        return {"events": 4}


class Controller:
    def __init__(self, term: Reign | None) -> None:
        self.term = term

    def described_gateways(self) -> Sequence[AnnouncedGateway]:
        ages_ms = (100, 200, 20_000)
        return [AnnouncedGateway("gate:7600", str(ms), 1, "", 0, ms) for ms in ages_ms]


async def collected(term: Reign | None) -> MetricsSnapshot:
    snapshot = MetricsSnapshot(CONTROLLER_METRICS)
    await ControllerCollector(Controller(term)).collect(snapshot)
    return snapshot


async def test_a_standby_reports_its_role_and_nothing_of_the_cluster() -> None:
    snapshot = await collected(None)

    assert snapshot.values["tidelog_controller_active"] == {(): 0}
    assert not CLUSTER_NAMES & snapshot.values.keys()
    assert set(snapshot.values["tidelog_queue_depth"].values()) == {0}
    assert snapshot.values["tidelog_gateways"] == {("alive",): 2, ("silent",): 1, ("stopped",): 0}


async def test_an_active_controller_reports_nothing_of_the_cluster_before_it_has_read_it() -> None:
    snapshot = await collected(Reign(1, loaded=False))

    assert snapshot.values["tidelog_controller_active"] == {(): 1}
    assert not CLUSTER_NAMES & snapshot.values.keys()


async def test_every_partition_is_reported_though_it_takes_several_turns() -> None:
    partitions = 2 * PARTITIONS_PER_TURN + 1

    snapshot = await collected(Reign(partitions))

    assert snapshot.values["tidelog_cluster_partitions"] == {(): partitions}
    assert snapshot.values["tidelog_cluster_topics"] == {(): 1}
    assert snapshot.values["tidelog_queue_depth"]["events",] == 4
