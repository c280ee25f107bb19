"""Live brokers that others, or the active controller, do not reach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.controller_reports import BrokerConnection
from tidelog.inspection.explain import Listening
from tidelog.inspection.state_reports import (
    REGISTERS,
    TAKES_STATES,
    WAITS_FOR_STORE,
    BrokerBacklog,
    HeardBroker,
    RecentElections,
)
from unit.inspection.explain.described import DescribedCluster, address, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    """All partitions are healthy by their keys; brokers fetch from each other."""
    described = DescribedCluster()
    for one, other in ((1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)):
        described.hears(one, HeardBroker(other, last_fetch_ms=200, last_answer_ms=100))
    described.connections = [BrokerConnection(b, 10 + b) for b in (1, 2, 3)]
    return described


def cut(cluster: DescribedCluster, one: int, other: int, *, by_word_of_both: bool = True) -> None:
    """The two brokers no longer receive messages from each other."""
    for here, there in ((one, other), (other, one)):
        broker = cluster.brokers[here]
        heard = [h for h in broker.heard if h.broker_id != there]
        if here == one or by_word_of_both:
            heard.append(HeardBroker(there, 9_000, 9_500, unanswered_ms=9_000))
        else:
            heard.append(HeardBroker(there, 9_000))
        cluster.brokers[here] = replace(broker, heard=tuple(heard))


def disconnect(cluster: DescribedCluster, broker_id: int, for_ms: int = 8_000) -> None:
    cluster.connections = [
        BrokerConnection(broker_id, 10 + broker_id, for_ms, "no_answer")
        if link.broker_id == broker_id
        else link
        for link in cluster.connections
    ]


def test_a_broker_unreachable_only_for_the_controller(cluster: DescribedCluster) -> None:
    disconnect(cluster, 2)
    findings = cluster.explain()
    assert causes_of(findings) == ["controller_cut_off"]
    finding = findings[0]
    assert (finding.broker, finding.severity) == (2, "warning")
    assert "controller-1, the active controller, does not reach broker 2" in finding.summary
    words = text_of(finding)
    assert "no connection to it for 8.0 s" in words
    assert 'ended with "no_answer"' in words
    assert "the controller reaches brokers 1, 3" in words
    assert "it and brokers 1, 3 reach each other" in words
    assert address(2) in finding.next_step
    assert cluster.explain(broker=2) == findings
    assert cluster.explain(broker=1) == []


def test_a_recently_ended_connection_is_no_finding(
    cluster: DescribedCluster,
) -> None:
    disconnect(cluster, 2, for_ms=1_500)
    assert cluster.explain() == []


@pytest.mark.parametrize("how", ["paused", "dead", "stopping", "just resumed"])
def test_an_unanswered_or_stopping_broker_is_not_cut_off_from_the_controller(
    cluster: DescribedCluster, how: str
) -> None:
    disconnect(cluster, 2)
    if how == "paused":
        cluster.brokers[1] = replace(cluster.brokers[1], heard=())
        cluster.brokers[3] = replace(cluster.brokers[3], heard=())
        cluster.pause(2)
    elif how == "dead":
        cluster.kill(2)
    elif how == "stopping":
        cluster.brokers[2] = replace(cluster.brokers[2], state="stopping")
    else:
        resumed = RecentElections(standstills=1, last_standstill_ms=4_900)
        cluster.brokers[2] = replace(cluster.brokers[2], elections=resumed)
    assert "controller_cut_off" not in causes_of(cluster.explain())


def test_states_pending_at_an_isolated_broker_follow_from_the_cut(
    cluster: DescribedCluster,
) -> None:
    disconnect(cluster, 2)
    cluster.partition("sea/0")
    cluster.backlogs.append(BrokerBacklog(2, 12, 3, 14_000, overdue=True))
    overdue = found(cluster.explain(), "command_overdue")
    assert overdue.because == ("controller_cut_off of broker 2",)
    assert "CPU" not in overdue.next_step


def test_a_controller_that_reaches_no_broker_is_isolated_itself(cluster: DescribedCluster) -> None:
    for broker_id in (1, 2, 3):
        disconnect(cluster, broker_id)
    finding = found(cluster.explain(), "controller_cut_off")
    assert (finding.broker, finding.severity) == (-1, "critical")
    assert "reaches none of brokers 1, 2, 3, which are alive" in finding.summary
    assert "network of the machine of controller-1" in finding.next_step


@pytest.mark.parametrize("by_word_of_both", [True, False])
def test_a_broker_that_exchanges_nothing_with_others_is_cut_off(
    cluster: DescribedCluster, by_word_of_both: bool
) -> None:
    for other in (1, 2):
        cut(cluster, 3, other, by_word_of_both=by_word_of_both)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_cut_off"]
    finding = findings[0]
    assert finding.broker == 3
    assert finding.summary == "broker 3 is alive and cut off from the other brokers"
    words = text_of(finding)
    assert "broker-3 reports: broker 1 has not answered it for 9.0 s" in words
    assert ("broker-1 reports: broker 3 has not answered it for 9.0 s" in words) == by_word_of_both
    assert "brokers 1, 2 and others reach each other" in words
    assert "it reaches the metadata store" in words
    assert "controller-1, the active controller, has a connection to it" in words
    assert "etcd" not in words


def test_a_starting_broker_is_not_cut_off(cluster: DescribedCluster) -> None:
    for other in (1, 2):
        cut(cluster, 3, other, by_word_of_both=False)
    cluster.brokers[3] = replace(cluster.brokers[3], has_full_state=False)
    assert "broker_cut_off" not in causes_of(cluster.explain())


@pytest.mark.parametrize(
    ("phase", "is_found"),
    [(WAITS_FOR_STORE, False), (REGISTERS, False), (TAKES_STATES, True)],
)
def test_the_controller_has_no_connection_to_a_broker_that_has_yet_to_register(
    cluster: DescribedCluster, phase: str, *, is_found: bool
) -> None:
    """Without the store it may stay so for long; the broker is starting and nothing else."""
    disconnect(cluster, 3, for_ms=60_000)
    cluster.brokers[3] = replace(cluster.brokers[3], has_full_state=False, start_phase=phase)
    assert ("controller_cut_off" in causes_of(cluster.explain())) == is_found


def test_a_cut_between_two_brokers_leaves_both_with_the_third(cluster: DescribedCluster) -> None:
    cut(cluster, 3, 1)
    assert cluster.explain() == []


def test_of_two_brokers_the_one_unreachable_for_the_controller_is_cut_off(
    cluster: DescribedCluster,
) -> None:
    cluster.kill(1)
    cut(cluster, 3, 2)
    assert "broker_cut_off" not in causes_of(cluster.explain())
    disconnect(cluster, 3)
    findings = cluster.explain()
    assert found(findings, "broker_cut_off").broker == 3
    assert "controller_cut_off" not in causes_of(findings)


def test_replicas_of_an_isolated_broker_follow_from_the_cut(cluster: DescribedCluster) -> None:
    cluster.partition("sea/0", (1, 3), isr=(1,))
    cluster.partition("bay/0", (3, 2), isr=(3,))
    cluster.replicas.clear()
    for other in (1, 2):
        cut(cluster, 3, other)
    finding = found(cluster.explain(), "broker_cut_off")
    assert set(finding.partitions) == {"sea/0", "bay/0"}
    assert cluster.explain("sea")[0].cause == "broker_cut_off"


def test_a_broker_isolated_from_peers_and_store_does_not_point_to_etcd(
    cluster: DescribedCluster,
) -> None:
    for other in (1, 2):
        cut(cluster, 3, other)
    disconnect(cluster, 3)
    cluster.lose_store("broker-3")
    del cluster.registered[3]
    findings = cluster.explain()
    assert set(causes_of(findings)) == {"broker_cut_off", "store_unreachable"}
    assert "and from the metadata store" in found(findings, "broker_cut_off").summary
    lost = found(findings, "store_unreachable")
    assert lost.because == ("broker_cut_off of broker 3",)
    assert lost.next_step == "See broker_cut_off of broker 3."


def test_from_an_isolated_broker_explain_says_that_it_alone_answers(
    cluster: DescribedCluster,
) -> None:
    for other in (1, 2):
        cut(cluster, 3, other)
        cluster.silence(other, Listening.SILENT)
    cluster.controller_answers = False
    cluster.lose_store("broker-3")
    findings = cluster.explain()
    finding = found(findings, "broker_cut_off")
    assert finding.broker == 3
    assert "it alone answers here" in finding.summary
    assert "does not react to connections" in text_of(finding)
    assert found(findings, "store_unreachable").because == ("broker_cut_off of broker 3",)


def test_a_broker_whose_peers_are_dead_is_not_cut_off(cluster: DescribedCluster) -> None:
    for other in (1, 2):
        cut(cluster, 3, other)
        cluster.kill(other)
    assert "broker_cut_off" not in causes_of(cluster.explain())


@pytest.mark.parametrize("listening", [Listening.SILENT, Listening.REFUSES])
def test_a_departed_broker_may_be_cut_off_where_its_address_does_not_respond(
    cluster: DescribedCluster, listening: Listening
) -> None:
    cluster.kill(3, "broker_lease_ended")
    cluster.silent[-1] = replace(cluster.silent[-1], listening=listening)
    dead = found(cluster.explain(), "replica_dead")
    assert ("cut off from the network" in dead.next_step) == (listening is Listening.SILENT)
    assert ("its log contains the reason for its end" in dead.next_step) == (
        listening is Listening.REFUSES
    )
