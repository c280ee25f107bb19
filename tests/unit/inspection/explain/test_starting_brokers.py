"""Starting brokers are named as such, with what they wait for, and never reported as paused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import (
    OPENS_LOGS,
    TAKES_STATES,
    WAITS_FOR_STORE,
    BrokerBacklog,
    Departure,
    StoreHealth,
)
from unit.inspection.explain.described import (
    NOW_MS,
    DescribedCluster,
    address,
    causes_of,
    found,
    text_of,
)


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def start(
    cluster: DescribedCluster, *broker_ids: int, phase: str, done: int = 0, of: int = 0
) -> None:
    for broker_id in broker_ids:
        cluster.brokers[broker_id] = replace(
            cluster.brokers[broker_id],
            has_full_state=False,
            state="starting",
            start_phase=phase,
            start_done=done,
            start_total=of,
        )


def know_nothing(cluster: DescribedCluster) -> None:
    """The knowledge of brokers that have not read the store yet, when only they answer."""
    cluster.controller_answers = False
    cluster.registered.clear()
    cluster.replicas.clear()
    cluster.keys.clear()


def test_partitions_of_a_starting_leader_have_no_leader(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.partition("bay/0", (1, 3))
    cluster.replicas.pop(next(at for at in cluster.replicas if at[1] == 2))
    start(cluster, 2, phase=WAITS_FOR_STORE)
    cluster.lose_store("broker-1", "broker-2", "broker-3", "controller-1")
    missing = found(cluster.explain(), "no_leader")
    assert missing.partitions == ("sea/0",)
    assert set(missing.because) == {"broker_starting of broker 2", "store_unreachable"}
    assert "no other can be elected while the metadata store" in missing.summary


def test_a_start_without_consequences_is_reported_and_no_fault(
    cluster: DescribedCluster,
) -> None:
    start(cluster, 2, phase=OPENS_LOGS, done=120, of=5_003)
    [starting] = cluster.explain()
    assert (starting.cause, starting.severity, starting.broker) == ("broker_starting", "info", 2)
    assert "it opens its logs, 120 of 5,003 so far" in starting.summary


def test_the_number_of_received_states_is_reported(cluster: DescribedCluster) -> None:
    start(cluster, 2, phase=TAKES_STATES, done=700, of=5_003)
    assert "700 of 5,003 so far" in found(cluster.explain(), "broker_starting").summary


def test_a_restarting_broker_after_a_stop_is_reported(
    cluster: DescribedCluster,
) -> None:
    del cluster.registered[2]
    gone = Departure(2, 12, NOW_MS - 9_000, "broker_stopped", address(2))
    cluster.departures.append(gone)
    start(cluster, 2, phase=OPENS_LOGS)
    assert causes_of(cluster.explain()) == ["broker_starting"]


def test_brokers_that_all_start_without_the_store_wait_only_for_it(
    cluster: DescribedCluster,
) -> None:
    know_nothing(cluster)
    start(cluster, 1, 2, 3, phase=WAITS_FOR_STORE)
    cluster.lose_store("broker-1", "broker-2", "broker-3")
    findings = cluster.explain()
    assert causes_of(findings) == ["store_unreachable", *["broker_starting"] * 3]
    for starting in findings[1:]:
        assert starting.because == ("store_unreachable",)
        assert "waits for the cluster id from the metadata store" in starting.next_step


def test_without_a_read_of_the_store_health_is_not_claimed(
    cluster: DescribedCluster,
) -> None:
    know_nothing(cluster)
    start(cluster, 1, 2, 3, phase=OPENS_LOGS, done=1, of=9)
    for findings in (cluster.explain(), cluster.explain("sea")):
        assert [(f.cause, f.severity) for f in findings] == [("broker_starting", "warning")] * 3


def test_a_service_without_an_answer_yet_does_not_claim_that_the_store_answers(
    cluster: DescribedCluster,
) -> None:
    start(cluster, 3, phase=WAITS_FOR_STORE)
    cluster.lose_store("broker-1", "broker-2", "controller-1")
    cluster.stores["broker-3"] = StoreHealth()
    lost = found(cluster.explain(), "store_unreachable")
    assert lost.broker == -1
    assert "which others reach" not in text_of(lost)
    assert found(cluster.explain(), "broker_starting").because == ("store_unreachable",)


def test_waiting_for_a_starting_broker_is_reported_as_such(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (1, 2, 3))
    start(cluster, 2, phase=TAKES_STATES)
    starting = found(cluster.explain(), "broker_starting")
    assert "still in the ISR of 1 partition: sea/0" not in text_of(starting)
    cluster.unheard(2)
    starting = found(cluster.explain(), "broker_starting")
    assert "still in the ISR of 1 partition: sea/0" in text_of(starting)


def add_backlog(
    cluster: DescribedCluster, broker_id: int, known_for_ms: int, replicas: int
) -> None:
    cluster.backlogs.append(
        BrokerBacklog(
            broker_id,
            10 + broker_id,
            replicas,
            known_for_ms,
            overdue=False,
            known_for_ms=known_for_ms,
            full_state_size=replicas,
        )
    )


def test_a_broker_silent_during_a_large_full_state_is_busy_and_not_paused(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.pause(2)
    add_backlog(cluster, 2, known_for_ms=4_000, replicas=5_003)
    findings = cluster.explain()
    assert set(causes_of(findings)) == {"broker_busy", "command_backlog"}
    busy = found(findings, "broker_busy")
    assert "busy with its full state of 5,003 replicas" in busy.summary
    assert "kill -CONT" not in text_of(busy)


@pytest.mark.parametrize(("known_for_ms", "replicas"), [(40_000, 5_003), (4_000, 12), (-1, 0)])
def test_a_small_or_received_full_state_excuses_no_silence(
    cluster: DescribedCluster, known_for_ms: int, replicas: int
) -> None:
    cluster.partition("sea/0", (2, 1, 3))
    cluster.pause(2)
    add_backlog(cluster, 2, known_for_ms, replicas)
    assert "broker_paused" in causes_of(cluster.explain())


@pytest.mark.parametrize(
    ("listening", "said_of_it"),
    [
        (Listening.UNRESOLVED, "advertises a name that does not resolve here: 127.0.0.1"),
        (Listening.REFUSES, "which it advertises, though it answers elsewhere"),
    ],
)
def test_a_broker_that_no_controller_reaches_is_not_merely_starting(
    cluster: DescribedCluster, listening: Listening, said_of_it: str
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    start(cluster, 2, phase=TAKES_STATES)
    cluster.silent.append(SilentService(address(2), listening, "gave no answer", "broker", 2))
    [finding] = cluster.explain()
    assert (finding.cause, finding.broker) == ("broker_unreachable", 2)
    assert said_of_it in finding.summary
    assert "out of the ISR of 1 partition" in finding.summary
    assert "advertised_address" in finding.next_step or "advertised address" in finding.next_step
