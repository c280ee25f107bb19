"""A `FakeBroker` as it describes itself: the replicas that it leads, with the sizes of logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.inspection.state_reports import (
    BrokerState,
    Explanation,
    LeaderState,
    RegisteredBroker,
    ReplicaState,
    Scope,
    ServiceState,
    StateRequest,
    StoreHealth,
)

if TYPE_CHECKING:
    from unit.client.fake_broker import FakeBroker


class FakeInspection:
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    async def describe(self, request: StateRequest) -> ServiceState:
        broker = self._broker
        registered = [
            RegisteredBroker(other.broker_id, 1, other.address, "running")
            for other in broker.cluster.brokers.values()
            if other.alive
        ]
        state = BrokerState(
            1,
            "running",
            has_full_state=True,
            controller_epoch=1,
            registered=registered,
            replicas=tuple(self._replicas(request)),
        )
        return ServiceState(
            "broker", broker.broker_id, broker.address, "0", 1, 1_000, StoreHealth(), broker=state
        )

    def _replicas(self, request: StateRequest) -> Iterator[ReplicaState]:
        for name, topic in self._broker.cluster.topics.items():
            for number, partition in enumerate(topic.partitions):
                if partition.leader == self._broker.broker_id and request.topic in ("", name):
                    yield ReplicaState(
                        name,
                        topic.topic_id,
                        number,
                        "leader",
                        partition.leader_epoch,
                        1,
                        partition.log_start,
                        partition.end,
                        partition.end,
                        size_bytes=sum(len(batch.records) for batch in partition.batches),
                        leader=LeaderState(min_isr=1),
                    )

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:
        raise NotImplementedError
