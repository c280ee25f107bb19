"""The explaining service requests the topics from any one broker, for the note about those with a
single replica."""

from __future__ import annotations

from tidelog.client.cluster_explainer import Explainer
from tidelog.inspection.state_reports import Explanation, Scope
from tidelog.v1 import broker_pb2
from unit.client.described_services import DescribedServices
from unit.inspection.explain.described import DescribedCluster, address

SERVICES = [address(1), "127.0.0.1:7401"]


def described(cluster: DescribedCluster | None = None) -> DescribedServices:
    metadata = broker_pb2.MetadataResponse()
    for broker_id in (1, 2, 3):
        metadata.brokers.add(broker_id=broker_id)
    for name, factor in (("bay", 3), ("sea", 1), ("__state_changes", 1)):
        metadata.topics.add(name=name, replication_factor=factor)
    observed = (cluster or DescribedCluster()).observed()
    return DescribedServices(list(observed.states), metadata=metadata)


async def explained(
    services: DescribedServices, scope: Scope, addresses: list[str] = SERVICES
) -> Explanation:
    explainer = Explainer(services.clock, services.connect, services.dial)
    return await explainer.explain(addresses, scope, 500)


async def test_a_healthy_cluster_has_a_note_about_its_unprotected_topics() -> None:
    services = described()
    (finding,) = (await explained(services, Scope())).findings
    assert (finding.cause, finding.topic) == ("single_replica", "sea")
    assert services.open_connections == 0


async def test_a_controller_alone_names_the_broker_that_has_the_topics() -> None:
    (finding,) = (await explained(described(), Scope(), ["127.0.0.1:7401"])).findings
    assert finding.cause == "single_replica"


async def test_the_explanation_of_a_broker_is_not_about_topics() -> None:
    assert (await explained(described(), Scope(broker=1))).findings == ()


async def test_without_a_broker_that_answers_there_is_no_note() -> None:
    cluster = DescribedCluster()
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    found = await explained(described(cluster), Scope(), ["127.0.0.1:7401"])
    assert "single_replica" not in {finding.cause for finding in found.findings}
