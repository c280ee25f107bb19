"""Discovery of services, treatment of those that do not answer, and the choice of the service that
explains.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tidelog.client.clock import SystemClock
from tidelog.client.cluster_explainer import Explainer, NoServiceAnswersError
from tidelog.client.explain_requests import explain_cluster
from tidelog.errors import ErrorCode, TidelogError, UnknownBrokerError
from tidelog.inspection.explain import Listening, Observation
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import (
    LEAST_ANSWER_MS,
    NOT_KNOWN,
    ControllerState,
    RegisteredController,
    RejectedStart,
    Scope,
    ServiceState,
    StateRequest,
)
from tidelog.model import TopicPartition
from tidelog.v1 import broker_pb2, errors_pb2, inspect_pb2
from unit.client.described_services import DescribedServices
from unit.inspection.explain.described import NOW_MS, DescribedCluster, address

CLUSTER = Scope()
SEA_0 = Scope("sea", 0)


@pytest.fixture
def cluster() -> DescribedCluster:
    cluster = DescribedCluster()
    cluster.partition("sea/0")
    return cluster


def services_of(cluster: DescribedCluster) -> DescribedServices:
    return DescribedServices(list(cluster.observed().states))


async def observe(
    services: DescribedServices, *addresses: str, scope: Scope = CLUSTER, timeout_ms: int = 1_000
) -> Observation:
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    return await explainer.observe(addresses or (address(1),), scope, timeout_ms)


def names(observed: Observation) -> list[str]:
    return [f"{state.role}-{state.id}" for state in observed.states]


async def test_the_clock_of_each_service_is_read_from_its_answer(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    before_ms = SystemClock().wall_ms()
    observed = await observe(services)
    after_ms = SystemClock().wall_ms()
    assert [str(clock) for clock in observed.clocks] == names(observed)
    for clock in observed.clocks:
        assert NOW_MS - after_ms <= clock.least_ahead_ms <= clock.most_ahead_ms
        assert clock.most_ahead_ms <= NOW_MS - before_ms


async def test_one_address_finds_all_services(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    services.states = [_knowing_a_controller(state) for state in services.states]
    assert names(await observe(services)) == ["broker-1", "broker-2", "broker-3", "controller-1"]
    assert sorted(services.called) == ["127.0.0.1:7401", *map(address, (1, 2, 3))]


async def test_a_broker_names_standby_controllers(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    standby = replace(
        next(state for state in services.states if state.controller is not None),
        id=2,
        address="127.0.0.1:7402",
        controller=ControllerState(active=False, controller_epoch=-1),
    )
    services.states.append(standby)
    others = (RegisteredController(2, "127.0.0.1:7402"), RegisteredController(3, "127.0.0.1:7403"))
    services.states = [
        replace(state, broker=replace(state.broker, controllers=others)) if state.broker else state
        for state in services.states
    ]
    observed = await observe(services)
    assert names(observed) == ["broker-1", "broker-2", "broker-3", "controller-2"]
    assert [(s.role, s.id) for s in observed.silent] == [("controller", 3)]


def _knowing_a_controller(state: ServiceState) -> ServiceState:
    if state.broker is None:
        return state
    return replace(state, broker=replace(state.broker, controller_address="127.0.0.1:7401"))


async def test_a_controller_address_is_a_valid_start(
    cluster: DescribedCluster,
) -> None:
    observed = await observe(services_of(cluster), "127.0.0.1:7401")
    assert names(observed) == ["broker-1", "broker-2", "broker-3", "controller-1"]


async def test_a_departed_broker_is_dialled_at_its_last_address(cluster: DescribedCluster) -> None:
    cluster.kill(2)
    observed = await observe(services_of(cluster), "127.0.0.1:7401")
    [silent] = observed.silent
    assert (silent.role, silent.id, silent.listening) == ("broker", 2, Listening.REFUSES)


async def test_a_hanging_service_costs_no_more_than_the_common_timeout(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.hanging = {address(2)}
    services.listening = {address(2): Listening.ACCEPTS}
    observed = await observe(services)
    assert names(observed) == ["broker-1", "broker-3"]
    assert observed.silent[0].listening is Listening.ACCEPTS
    assert observed.silent[0].problem.startswith("gave no answer within")


@pytest.mark.parametrize("timeout_ms", [LEAST_ANSWER_MS, 2_000])
async def test_a_service_that_answers_slightly_late_is_busy_and_not_paused(
    cluster: DescribedCluster, timeout_ms: int
) -> None:
    services = services_of(cluster)
    services.takes_ms = {address(2): timeout_ms + 100}
    services.listening = {address(2): Listening.ACCEPTS}
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain([address(1), "127.0.0.1:7401"], CLUSTER, timeout_ms)
    assert [(f.cause, f.severity) for f in explained.findings] == [("broker_busy", "warning")]
    assert explained.silent == (f"broker-2 at {address(2)}",)


async def test_a_controller_that_answers_slightly_late_is_not_reported_as_paused(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.states = [_knowing_a_controller(state) for state in services.states]
    services.takes_ms = {"127.0.0.1:7401": 2_100}
    services.listening = {"127.0.0.1:7401": Listening.ACCEPTS}
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain([address(1)], CLUSTER, 2_000)
    [finding] = explained.findings
    assert (finding.cause, finding.severity) == ("controller_unreachable", "warning")
    assert "is alive and did not answer in time" in finding.summary


async def test_partitions_led_by_a_silent_broker_are_queried(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("bay/0", (1, 3))
    cluster.partition("sea/0", (2, 1, 3))
    cluster.pause(2)
    services = services_of(cluster)
    services.well = list(cluster.keys.values())
    services.states = [_reporting_no_keys(state) for state in services.states]
    services.listening = {address(2): Listening.ACCEPTS}
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    for scope in (CLUSTER, Scope(broker=2)):
        explained = await explainer.explain([address(1), "127.0.0.1:7401"], scope, 1_000)
        missing = next(f for f in explained.findings if f.cause == "no_leader")
        assert missing.partitions == ("sea/0",)
        assert missing.because == ("broker_paused of broker 2",)


@pytest.mark.parametrize(("answers", "severity"), [(False, "critical"), (True, "warning")])
async def test_partitions_led_by_a_broker_short_of_cpu_are_queried(
    cluster: DescribedCluster, *, answers: bool, severity: str
) -> None:
    cluster.partition("bay/0", (1, 3))
    cluster.partition("sea/0", (2, 1, 3))
    cluster.pressures.append(BrokerPressure(2, "cpu", 9_000, 10_000, NOW_MS - 8_000))
    if not answers:
        cluster.silence(2, Listening.SILENT)
    services = services_of(cluster)
    services.well = list(cluster.keys.values())
    services.states = [_reporting_no_keys(state) for state in services.states]
    services.listening = {address(2): Listening.SILENT}
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain([address(1), "127.0.0.1:7401"], CLUSTER, 1_000)
    starved = next(f for f in explained.findings if f.cause == "cpu_starved")
    assert (starved.severity, starved.partitions) == (severity, ("sea/0",))


async def test_partitions_led_by_a_starting_broker_are_queried(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.replicas.pop((TopicPartition("sea", 0), 2))
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    services = services_of(cluster)
    services.well = list(cluster.keys.values())
    services.states = [_reporting_no_keys(state) for state in services.states]
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain([address(1), "127.0.0.1:7401"], CLUSTER, 1_000)
    missing = next(f for f in explained.findings if f.cause == "no_leader")
    assert (missing.partitions, missing.because) == (("sea/0",), ("broker_starting of broker 2",))


async def test_a_leader_that_came_back_meanwhile_is_not_reported_as_gone(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    came_back = replace(cluster.registered[2], broker_epoch=40)
    cluster.kill(2)
    services = services_of(cluster)
    services.well = list(cluster.keys.values())
    services.registered_then = [came_back, *cluster.registered.values()]
    services.states = [_reporting_no_keys(state) for state in services.states]
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain([address(1), "127.0.0.1:7401"], CLUSTER, 1_000)
    assert "no_leader" not in {finding.cause for finding in explained.findings}
    services.registered_then = None
    explained = await explainer.explain([address(1), "127.0.0.1:7401"], CLUSTER, 1_000)
    assert "no_leader" in {finding.cause for finding in explained.findings}


async def test_where_no_broker_is_silent_the_controller_is_queried_once(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    await observe(services, "127.0.0.1:7401")
    assert services.called.count("127.0.0.1:7401") == 1


def _reporting_no_keys(state: ServiceState) -> ServiceState:
    if state.controller is None:
        return state
    return replace(state, controller=replace(state.controller, partitions=()))


async def test_an_address_queried_before_it_was_known_is_identified_in_the_end(
    cluster: DescribedCluster,
) -> None:
    cluster.kill(2)
    observed = await observe(services_of(cluster), address(2), "127.0.0.1:7401")
    assert [(s.role, s.id) for s in observed.silent] == [("broker", 2)]


async def test_the_service_at_an_address_may_be_known_beforehand(
    cluster: DescribedCluster,
) -> None:
    cluster.kill(2)
    cluster.unheard(2)
    services = services_of(cluster)
    services.listening = {address(2): Listening.ACCEPTS}
    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain(
        (address(1), address(2)), CLUSTER, 1_000, known={address(2): ("broker", 2)}
    )
    assert [(f.cause, f.broker) for f in explained.findings][:2] == [
        ("no_controller", -1),
        ("broker_paused", 2),
    ]


async def test_a_service_at_two_addresses_is_one(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    twin = replace(services.states[0], address="127.0.0.1:9999")
    services.states.append(twin)
    observed = await observe(services, "127.0.0.1:9999", address(1))
    assert names(observed).count("broker-1") == 1


async def test_no_answer_at_all_is_an_error_that_names_all_addresses(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.states.clear()
    with pytest.raises(NoServiceAnswersError, match=r"127\.0\.0\.1:7501 refuses connections"):
        await observe(services)
    assert services.open_connections == 0


async def test_without_an_active_controller_a_broker_describes_partitions(
    cluster: DescribedCluster,
) -> None:
    cluster.controller_active = False
    services = services_of(cluster)
    services.metadata = broker_pb2.MetadataResponse(
        topics=[
            broker_pb2.TopicMetadata(
                name="sea",
                topic_id="id-sea",
                config={"recovery": "manual"},
                partitions=[
                    broker_pb2.PartitionMetadata(
                        partition=0, leader=-1, replicas=[1, 2], isr=[2], min_isr=2
                    ),
                    broker_pb2.PartitionMetadata(partition=1, unclean_lost_records=0),
                ],
            )
        ]
    )
    key, unclean = (await observe(services)).metadata
    assert (key.leader, key.replicas, key.recovery) == (-1, (1, 2), "manual")
    assert (key.lost_records, unclean.lost_records) == (NOT_KNOWN, 0)


async def test_an_unknown_topic_is_rejected(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    error = errors_pb2.Error(
        code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message="no such topic"
    )
    services.metadata = broker_pb2.MetadataResponse(
        topics=[broker_pb2.TopicMetadata(name="bay", error=error)]
    )
    with pytest.raises(TidelogError) as rejected:
        await observe(services, "127.0.0.1:7401", scope=Scope("bay"))
    assert rejected.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_unknown_partition_of_a_known_topic_is_rejected(cluster: DescribedCluster) -> None:
    cluster.keys.clear()
    services = services_of(cluster)
    services.metadata = broker_pb2.MetadataResponse(
        topics=[
            broker_pb2.TopicMetadata(
                name="sea", partitions=[broker_pb2.PartitionMetadata(partition=0)]
            )
        ]
    )
    with pytest.raises(TidelogError, match="its partitions are 0 to 0"):
        await observe(services, "127.0.0.1:7401", scope=Scope("sea", 7))


async def test_a_broker_unknown_to_all_services_is_rejected(cluster: DescribedCluster) -> None:
    known = r"no service knows a broker 9; known are \[1, 2, 3\]"
    with pytest.raises(UnknownBrokerError, match=known):
        await observe(services_of(cluster), scope=Scope(broker=9))


async def test_a_broker_whose_start_was_rejected_is_known(cluster: DescribedCluster) -> None:
    cluster.rejected_starts.append(RejectedStart(9, NOW_MS, "address", "port 7509 is in use"))
    await observe(services_of(cluster), scope=Scope(broker=9))


async def test_the_leader_of_a_lagging_replica_is_queried_twice(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=40, lag_records=60)
    services = services_of(cluster)
    observed = await observe(services)
    assert [state.id for state in observed.earlier] == [1]
    assert services.called.count(address(1)) == 2


async def test_a_replica_that_caught_up_a_moment_ago_causes_no_second_query(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.seen("sea/0", 2, log_end_offset=99, lag_records=1, last_caught_up_ms=98)
    services = services_of(cluster)
    await observe(services)
    assert services.called.count(address(1)) == 1


async def test_the_explaining_service_describes_itself_without_a_call(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    own_state = services.states[0]

    async def own(request: StateRequest) -> ServiceState:
        assert request.only_unwell
        return own_state

    explainer = Explainer(SystemClock(), services.connect, services.dial)
    explained = await explainer.explain((), CLUSTER, 1_000, own)
    assert explained.asked[0] == f"broker-1 at {address(1)}"
    assert address(1) not in services.called


# The service that explains.


def explain_response(
    *, silent: int, listening: Listening | None = None
) -> inspect_pb2.ExplainResponse:
    return inspect_pb2.ExplainResponse(
        findings=[inspect_pb2.Finding(cause="told", severity="info")],
        asked=[f"broker-{i} at {address(i)}" for i in (1, 2)],
        silent=[f"broker-2 at {address(2)}"][:silent],
        listening=[listening.value] if listening else [],
    )


async def test_a_service_that_reaches_all_others_explains(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = explain_response(silent=0)
    given = [address(1), address(2)]
    explained = await explain_cluster(given, CLUSTER, 1_000, None, services.connect)
    assert [finding.cause for finding in explained.findings] == ["told"]


async def test_while_a_service_explains_no_other_is_queried(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    services.explains |= {address(broker_id): explain_response(silent=0) for broker_id in (1, 2)}
    await explain_cluster([address(1), address(2)], CLUSTER, 1_000, None, services.connect)
    assert (services.explaining, services.called) == ([address(1)], [])


async def test_an_unreachable_service_is_not_asked_to_explain(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.hanging = {address(1)}
    services.explains |= {address(broker_id): explain_response(silent=0) for broker_id in (1, 2)}
    await explain_cluster([address(1), address(2)], CLUSTER, 1_000, None, services.connect)
    assert services.explaining == [address(2)]


async def test_a_service_unreachable_from_both_sides_is_not_queried_again(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.hanging = {address(2)}
    services.explains[address(1)] = explain_response(silent=1)
    explained = await explain_cluster([address(1)], CLUSTER, 1_000, None, services.connect)
    assert [finding.cause for finding in explained.findings] == ["told"]
    assert services.called == []


@pytest.mark.parametrize("timeout_ms", [-5, 0, LEAST_ANSWER_MS - 1])
async def test_a_timeout_in_which_no_service_could_answer_is_rejected(
    cluster: DescribedCluster, timeout_ms: int
) -> None:
    services = services_of(cluster)
    with pytest.raises(TidelogError, match=f"timeout_ms is {timeout_ms}; give .* at least 500"):
        await explain_cluster([address(1)], CLUSTER, timeout_ms, None, services.connect)


async def test_addresses_that_the_service_did_not_query_are_queried_directly(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = explain_response(silent=0)
    given = [address(1), "127.0.0.1:7401"]
    explained = await explain_cluster(given, CLUSTER, 1_000, None, services.connect)
    assert "controller-1 at 127.0.0.1:7401" in explained.asked


@pytest.mark.parametrize("listening", [Listening.BUSY, Listening.ACCEPTS])
async def test_a_service_reported_as_busy_or_paused_is_not_queried_again_directly(
    cluster: DescribedCluster, listening: Listening
) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = explain_response(silent=1, listening=listening)
    explained = await explain_cluster([address(1)], CLUSTER, 1_000, None, services.connect)
    assert [finding.cause for finding in explained.findings] == ["told"]
    assert explained.listening == (listening.value,)
    assert services.called == []


@pytest.mark.parametrize("listening", [Listening.SILENT, Listening.REFUSES, Listening.ERRS])
async def test_a_service_that_only_the_client_reaches_is_queried_directly(
    cluster: DescribedCluster, listening: Listening
) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = explain_response(silent=1, listening=listening)
    explained = await explain_cluster([address(1)], CLUSTER, 1_000, None, services.connect)
    assert (len(explained.asked), explained.silent) == (3, ())


async def test_the_client_explains_where_it_reaches_more_services(
    cluster: DescribedCluster,
) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = explain_response(silent=1)
    explained = await explain_cluster([address(1)], CLUSTER, 1_000, None, services.connect)
    assert len(explained.asked) == 3
    assert services.open_connections == 0


async def test_where_no_service_explains_the_client_does(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    explained = await explain_cluster(["127.0.0.1:7401"], CLUSTER, 1_000, None, services.connect)
    assert explained.findings == ()


async def test_an_error_of_the_explaining_service_is_raised(cluster: DescribedCluster) -> None:
    services = services_of(cluster)
    services.explains[address(1)] = inspect_pb2.ExplainResponse(
        error=errors_pb2.Error(
            code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message="no such topic"
        )
    )
    with pytest.raises(TidelogError, match="no such topic"):
        await explain_cluster([address(1)], SEA_0, 1_000, None, services.connect)
    await asyncio.sleep(0)
    assert services.open_connections == 0
