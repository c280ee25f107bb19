"""What a broker returns to clients that connect to its external listener."""

from __future__ import annotations

from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.edge.external_broker_service import ExternalBrokerService
from tidelog_broker.membership.known_services import CachedServices
from tidelog_runtime.external_addresses import ExternalAddresses
from tidelog_runtime.metadata.schema import ControllerEntry, ControllerProcess, encode
from unit.broker.broker_parts import KEYS, broker_change, on, partition_change, topic_change
from unit.broker.edge.test_broker_service import CONTEXT, Edge, batch_of, written
from unit.broker.fake_log import NAME, state

CONTROLLER, OUTSIDE_CONTROLLER = "10.0.0.9:7400", "127.0.0.1:7404"


def outside(broker_id: int) -> str:
    return f"127.0.0.1:{7500 + broker_id}"


class ExternalEdge(Edge):
    """Broker 1 of a cluster in which broker 2 leads the first partition and broker 3 has no
    external address.
    """

    def __init__(self) -> None:
        super().__init__()
        cache = self.replicas.cache
        cache.apply(
            [
                *(broker_change(b, external_address=outside(b)) for b in (1, 2)),
                broker_change(3),
                topic_change(partitions=2),
                partition_change(state(leader=2, isr=(2, 1)), 120),
                partition_change(state(leader=3, isr=(3, 1)), 121, on(1)),
                written(
                    KEYS.controller, encode(ControllerEntry(4, CONTROLLER, OUTSIDE_CONTROLLER))
                ),
                written(
                    KEYS.controller_process(4),
                    encode(ControllerProcess(CONTROLLER, 80, OUTSIDE_CONTROLLER)),
                ),
            ]
        )
        addresses = ExternalAddresses(CachedServices(cache, 1, cache.brokers[1].registration))
        self.external = ExternalBrokerService(self.service, addresses)


async def test_metadata_names_external_addresses() -> None:
    response = await ExternalEdge().external.Metadata(pb.MetadataRequest(), CONTEXT)
    assert [b.address for b in response.brokers] == [outside(1), outside(2), "10.0.0.3:7500"]
    assert [c.address for c in response.controllers] == [OUTSIDE_CONTROLLER]
    assert response.controller.address == OUTSIDE_CONTROLLER
    assert [topic.name for topic in response.topics] == [NAME.topic]


async def test_internal_clients_get_internal_addresses() -> None:
    response = await ExternalEdge().service.Metadata(pb.MetadataRequest(), CONTEXT)
    assert [b.address for b in response.brokers] == [f"10.0.0.{b}:7500" for b in (1, 2, 3)]
    assert response.controller.address == CONTROLLER


async def test_a_hint_to_the_leader_has_its_external_address() -> None:
    edge = ExternalEdge()
    edge.service = edge.external  # type: ignore[assignment]
    for error in (
        (await edge.produce(batch_of(b"ebb"))).error,
        (await edge.fetch()).error,
        (await edge.find(pb.OFFSET_POSITION_LATEST)).error,
    ):
        assert (error.leader.broker_id, error.leader.address) == (2, outside(2))
