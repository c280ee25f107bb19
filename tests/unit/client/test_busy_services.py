"""Services that run, but are too busy to describe themselves in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tidelog.client.cluster_explainer import Explainer, longest_ms
from tidelog.client.service_round import SOON_MS
from tidelog.inspection.explain import Listening, Observation, explain
from tidelog.inspection.state_reports import (
    LEAST_ANSWER_MS,
    Explanation,
    RegisteredBroker,
    Scope,
    ServiceState,
    StateRequest,
)
from unit.client.described_services import DescribedServices, without_parts
from unit.inspection.explain.described import DescribedCluster, address
from unit.metadata.virtual_time import run, virtual_clock

CLUSTER = Scope()
CONTROLLER = "127.0.0.1:7401"
BROKERS = tuple(address(broker_id) for broker_id in (1, 2, 3))
TIMEOUT_MS = 2_000
NEVER_MS = 60_000


def busy_cluster(*, names_after_ms: int = 0) -> DescribedServices:
    """Brokers that accept connections, return the list of services after a while, and never
    describe themselves in time.
    """
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    services = DescribedServices(list(cluster.observed().states))
    services.states = [_naming_a_controller(state) for state in services.states]
    services.listening = dict.fromkeys(BROKERS, Listening.ACCEPTS)
    services.describes_after_ms = dict.fromkeys(BROKERS, NEVER_MS)
    services.names_after_ms = dict.fromkeys(BROKERS, names_after_ms)
    return services


def _naming_a_controller(state: ServiceState) -> ServiceState:
    if state.broker is None:
        return state
    return replace(state, broker=replace(state.broker, controller_address=CONTROLLER))


def explainer_of(services: DescribedServices) -> Explainer:
    return Explainer(virtual_clock(), services.connect, services.dial)


async def observe(services: DescribedServices, *addresses: str) -> Observation:
    return await explainer_of(services).observe(addresses, CLUSTER, TIMEOUT_MS)


async def explained(services: DescribedServices, scope: Scope = CLUSTER) -> Explanation:
    return await explainer_of(services).explain(BROKERS[:1], scope, TIMEOUT_MS)


def causes(explanation: Explanation) -> list[tuple[str, int]]:
    return [(finding.cause, finding.broker) for finding in explanation.findings]


def test_a_controller_known_only_to_busy_brokers_is_queried() -> None:
    async def story() -> None:
        explanation = await explained(busy_cluster())
        assert explanation.asked[0] == f"controller-1 at {CONTROLLER}"
        assert causes(explanation) == [("broker_busy", broker_id) for broker_id in (1, 2, 3)]

    run(story())


def test_a_busy_service_lists_others_and_no_broker_is_queried_twice() -> None:
    """The controller is, for the partitions of the busy ones."""

    async def story() -> None:
        services = busy_cluster()
        await explained(services)
        assert sorted(services.called) == [CONTROLLER, CONTROLLER, *BROKERS]
        assert sorted(services.called_for_names) == [*BROKERS]

    run(story())


def test_a_service_that_answers_soon_is_queried_once() -> None:
    async def story() -> None:
        services = busy_cluster()
        services.describes_after_ms = dict.fromkeys(BROKERS, SOON_MS - 1)
        await explained(services)
        assert services.called_for_names == []

    run(story())


def test_where_all_are_busy_that_is_the_finding_and_no_controller_is_missing() -> None:
    async def story() -> None:
        services = busy_cluster()
        services.describes_after_ms[CONTROLLER] = NEVER_MS
        services.listening[CONTROLLER] = Listening.ACCEPTS
        explanation = await explained(services)
        assert causes(explanation) == [
            ("controller_unreachable", -1),
            *(("broker_busy", broker_id) for broker_id in (1, 2, 3)),
        ]
        assert set(explanation.listening) == {Listening.BUSY.value}

    run(story())


@pytest.mark.parametrize("scope", [CLUSTER, Scope("sea", 0), Scope(broker=2)])
def test_a_service_that_answers_only_health_checks_is_busy_in_every_scope(scope: Scope) -> None:
    async def story() -> None:
        explanation = await explained(busy_cluster(names_after_ms=NEVER_MS), scope)
        [finding] = explanation.findings
        assert (finding.cause, finding.severity) == ("broker_busy", "warning")
        assert f"at {BROKERS[0]} is alive" in f"at {finding.summary}"

    run(story())


def test_what_busy_services_report_of_the_store_is_explained() -> None:
    async def story() -> None:
        services = busy_cluster()
        services.describes_after_ms[CONTROLLER] = NEVER_MS
        services.listening[CONTROLLER] = Listening.ACCEPTS
        cluster = DescribedCluster()
        cluster.lose_store("broker-1")
        lost = cluster.observed().states[0].store
        services.states = [replace(state, store=lost) for state in services.states]
        first = (await explained(services)).findings[0]
        assert first.cause == "store_unreachable"
        assert "broker-2 has received no answer" in " ".join(first.evidence)

    run(story())


def test_a_busy_service_explains_in_time() -> None:
    async def story() -> None:
        services = busy_cluster()

        async def own(request: StateRequest) -> ServiceState:
            if request.services_only:
                return without_parts(services.states[0])
            await asyncio.sleep(NEVER_MS / 1000)
            return services.states[0]

        explanation = await explainer_of(services).explain((), CLUSTER, TIMEOUT_MS, own)
        assert virtual_clock().monotonic_ms() <= longest_ms(TIMEOUT_MS)
        assert ("broker_busy", 1) in causes(explanation)
        assert BROKERS[0] not in (*services.called, *services.called_for_names)

    run(story())


def test_a_service_found_late_gets_the_full_timeout() -> None:
    async def story() -> None:
        services = busy_cluster()
        services.describes_after_ms = {BROKERS[0]: 1_990, CONTROLLER: 1_000}
        services.names_after_ms = {BROKERS[0]: 1_980}
        observed = await observe(services, BROKERS[0])
        assert [(state.role, state.id) for state in observed.states][-1] == ("controller", 1)
        assert services.given_ms[CONTROLLER] == TIMEOUT_MS

    run(story())


def test_a_service_found_late_by_a_late_one_gets_the_minimum_timeout() -> None:
    """Broker 1 names 2, which names 3, each when its own time is nearly over."""

    async def story() -> None:
        services = busy_cluster()
        services.describes_after_ms = dict.fromkeys(BROKERS[:2], 1_990)
        services.names_after_ms = dict.fromkeys(BROKERS[:2], 1_990)
        for broker_id in (1, 2):
            state = services.states[broker_id - 1]
            assert state.broker is not None
            others = (RegisteredBroker(broker_id + 1, 9, address(broker_id + 1), "running"),)
            broker = replace(state.broker, registered=others, controller_address="")
            services.states[broker_id - 1] = replace(state, broker=broker)
        services.describes_after_ms[BROKERS[2]] = 0
        await observe(services, BROKERS[0])
        assert [services.given_ms[broker] for broker in BROKERS] == [
            TIMEOUT_MS,
            TIMEOUT_MS,
            LEAST_ANSWER_MS,
        ]

    run(story())


def test_an_unresponsive_broker_is_not_called_dead_where_no_service_knows() -> None:
    cluster = DescribedCluster()
    for broker_id in (1, 2):
        cluster.silence(broker_id, Listening.BUSY)
    cluster.silence(3, Listening.SILENT)
    observed = replace(cluster.observed(), states=())
    found = {(finding.cause, finding.broker) for finding in explain(observed)}
    assert found == {("broker_busy", 1), ("broker_busy", 2), ("broker_unreachable", 3)}
