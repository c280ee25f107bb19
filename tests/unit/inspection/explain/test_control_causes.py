"""Controllers, commands, deletions and the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.inspection.explain import Listening, SilentService, explain
from tidelog.inspection.state_reports import (
    BrokerBacklog,
    Departure,
    PendingState,
    StoreHealth,
    WaitingDeletion,
)
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of


@pytest.fixture
def cluster() -> DescribedCluster:
    return DescribedCluster()


def test_an_overdue_command_names_the_broker_and_the_state_change(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.backlogs.append(
        BrokerBacklog(
            2, 12, 3, 14_000, overdue=True, first=(PendingState("sea", 0, 88, "STORAGE_ERROR"),)
        )
    )
    overdue = found(cluster.explain(), "command_overdue")
    assert (overdue.broker, overdue.partition_count) == (2, 3)
    assert "3 states, the oldest for 14.0 s" in text_of(overdue)
    assert 'sea/0 is to reach revision 88, rejected: "STORAGE_ERROR"' in text_of(overdue)
    assert "broker-2 answers requests" in text_of(overdue)


def test_states_that_a_failing_disk_rejects_follow_from_the_disk(
    cluster: DescribedCluster,
) -> None:
    """One root, one finding: states that the controller resends are not due to CPU or network."""
    cluster.partition("sea/0", isr=(1, 3))
    cluster.replica("sea/0", 2, role="none", failure="disk_full", failure_message="no space")
    rejected = PendingState("sea", 0, 88, "cannot open the log: no space")
    cluster.backlogs.append(BrokerBacklog(2, 12, 1, 14_000, overdue=True, first=(rejected,)))
    assert causes_of(cluster.explain()) == ["disk_full"]
    other = PendingState("sea", 1, 89, "no such topic id")
    cluster.backlogs[:] = [BrokerBacklog(2, 12, 2, 14_000, overdue=True, first=(rejected, other))]
    assert causes_of(cluster.explain()) == ["disk_full", "command_overdue"]


def test_an_overdue_command_names_the_desired_and_the_acknowledged_revisions(
    cluster: DescribedCluster,
) -> None:
    cluster.backlogs.append(
        BrokerBacklog(
            2,
            12,
            1,
            14_000,
            overdue=True,
            first=(PendingState("sea", 0, 88, acknowledged_revision=61),),
            desired_revision=90,
            acknowledged_revision=70,
        )
    )
    overdue = found(cluster.explain(), "command_overdue")
    assert "it has acknowledged revision 70, and the newest desired is 90" in text_of(overdue)
    assert "sea/0 is to reach revision 88 from 61" in text_of(overdue)


def test_a_backlog_of_a_paused_broker_follows_from_that(cluster: DescribedCluster) -> None:
    cluster.backlogs.append(BrokerBacklog(2, 12, 40, 6_000, overdue=False))
    cluster.pause(2)
    findings = cluster.explain()
    assert causes_of(findings) == ["broker_paused", "command_backlog"]
    assert found(findings, "command_backlog").because == ("broker_paused of broker 2",)


def test_commands_in_flight_are_no_backlog(cluster: DescribedCluster) -> None:
    cluster.backlogs.append(BrokerBacklog(2, 12, 40, 30, overdue=False))
    assert cluster.explain() == []


def test_a_replica_without_its_newest_state_is_a_consequence_of_the_backlog(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", isr=(1, 3))
    cluster.replica("sea/0", 2, leader_epoch=4)
    cluster.backlogs.append(BrokerBacklog(2, 12, 1, 14_000, overdue=True))
    findings = cluster.explain("sea", 0)
    assert causes_of(findings) == ["command_overdue"]


def test_a_shrinking_backlog_is_being_processed(cluster: DescribedCluster) -> None:
    cluster.backlogs.append(moving(2, 3_880, overdue=True))
    works = found(cluster.explain(), "command_overdue")
    assert works.severity == "info"
    assert works.summary == "broker 2 works through 3,880 state changes, 550 per second"
    assert "within 4.0 s it has acknowledged 2,200 states, the last 700 ms ago" in text_of(works)
    assert "restart" not in text_of(works)


def moving(broker_id: int, pending: int, *, overdue: bool = False) -> BrokerBacklog:
    """2,200 within 4 s, the last 700 ms ago."""
    return BrokerBacklog(
        broker_id,
        10 + broker_id,
        pending,
        14_000 if overdue else 2_600,
        overdue=overdue,
        working_ms=4_000,
        acknowledged=2_200,
        last_acknowledged_ms=700,
    )


def test_a_recent_command_is_no_reason_to_check_the_network(
    cluster: DescribedCluster,
) -> None:
    cluster.backlogs.append(BrokerBacklog(2, 12, 5_003, 8_400, overdue=False))
    works = found(cluster.explain(), "command_backlog")
    assert works.severity == "info"
    assert works.summary == "broker 2 works through 5,003 state changes"


def test_a_starting_broker_is_processing_its_commands(
    cluster: DescribedCluster,
) -> None:
    cluster.brokers[2] = replace(cluster.brokers[2], has_full_state=False, state="starting")
    cluster.backlogs.append(BrokerBacklog(2, 12, 5_003, 8_400, overdue=False))
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2,)))
    findings = cluster.explain()
    backlog, waits = found(findings, "command_backlog"), found(findings, "deletion_waits")
    assert (backlog.severity, waits.severity) == ("info", "info")
    assert backlog.because == waits.because == ("broker_starting of broker 2",)
    assert "stop" not in waits.next_step


@pytest.mark.parametrize(
    "differs",
    [
        {"last_acknowledged_ms": 12_000},
        {"acknowledged": 0},
        {"first": (PendingState("sea", 0, 88, "STORAGE_ERROR"),)},
    ],
)
def test_an_overdue_backlog_without_progress_is_a_warning(
    cluster: DescribedCluster, differs: dict[str, Any]
) -> None:
    cluster.backlogs.append(replace(moving(2, 3_880, overdue=True), **differs))
    overdue = found(cluster.explain(), "command_overdue")
    assert overdue.severity == "warning"
    assert "network from the controller" in overdue.next_step
    assert "restart" not in text_of(overdue)


def test_a_lost_command_is_a_warning_before_it_is_overdue(
    cluster: DescribedCluster,
) -> None:
    cluster.backlogs.append(BrokerBacklog(2, 12, 40, 6_000, overdue=False, problem="UNAVAILABLE"))
    assert found(cluster.explain(), "command_backlog").severity == "warning"


def test_a_deletion_waits_for_busy_brokers_that_must_not_be_stopped(
    cluster: DescribedCluster,
) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2, 3)))
    cluster.backlogs.append(moving(2, 800))
    cluster.backlogs.append(BrokerBacklog(3, 13, 9, 900, overdue=False))
    waits = found(cluster.explain("sea"), "deletion_waits")
    assert waits.severity == "info"
    assert "broker 2 works through 800 state changes, 550 per second" in text_of(waits)
    assert waits.because == ("command_backlog of broker 2",)
    assert waits.next_step.startswith("Run explain again in some seconds")


def test_a_deletion_that_waits_for_a_live_broker_does_not_suggest_stopping_it(
    cluster: DescribedCluster,
) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 18_800, (2,)))
    lost = "DEADLINE_EXCEEDED: Deadline Exceeded"
    cluster.backlogs.append(BrokerBacklog(2, 12, 882, 18_600, overdue=True, problem=lost))
    waits = found(cluster.explain(), "deletion_waits")
    assert waits.severity == "warning"
    assert f'has not carried out its last command in time: "{lost}"' in text_of(waits)
    assert "stop" not in waits.next_step


def test_a_busy_broker_is_processing_although_its_last_command_was_lost(
    cluster: DescribedCluster,
) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2,)))
    cluster.backlogs.append(BrokerBacklog(2, 12, 882, 9_000, overdue=False, problem="DEADLINE"))
    cluster.silence(2, Listening.BUSY)
    waits = found(cluster.explain(), "deletion_waits")
    assert (waits.severity, waits.because) == ("info", ("broker_busy of broker 2",))
    assert "stop" not in waits.next_step


def test_a_pending_deletion_names_its_brokers_and_the_reason(cluster: DescribedCluster) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2, 3)))
    cluster.backlogs.append(
        BrokerBacklog(3, 13, 1, 900, overdue=False, first=(PendingState("sea", 0, 9, "no disk"),))
    )
    cluster.partition("sea/0", leader=-1, isr=())
    cluster.pause(2)
    waits = found(cluster.explain("sea"), "deletion_waits")
    assert "the deletion of topic 'sea' has waited 9.0 s for brokers 2, 3" in waits.summary
    assert "broker 2 accepts connections and does not answer" in text_of(waits)
    assert 'broker 3 rejected: "no disk"' in text_of(waits)
    assert waits.because == ("broker_paused of broker 2",)


def test_partitions_of_a_topic_in_deletion_need_no_leader(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", leader=-1, isr=())
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2,)))
    assert causes_of(cluster.explain()) == ["deletion_waits"]


def test_without_a_controller_a_topic_in_deletion_is_known_by_its_keys(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", leader=-1, isr=())
    cluster.stop_controller()
    assert cluster.explain("sea") == []


def test_a_recent_deletion_is_no_finding(cluster: DescribedCluster) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 200, (2,)))
    assert cluster.explain() == []


def test_without_an_active_controller_standbys_are_quoted(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.controller_active = False
    cluster.silent.append(
        SilentService(
            "127.0.0.1:7402", Listening.REFUSES, "gave no answer within 2.0 s", "controller"
        )
    )
    missing = found(cluster.explain(), "no_controller")
    assert missing.severity == "critical"
    assert "controller-1 at 127.0.0.1:7401 answers and is not active" in text_of(missing)
    assert "127.0.0.1:7402 refuses connections" in text_of(missing)


@pytest.mark.parametrize(
    ("listening", "cause", "severity", "summary"),
    [
        (Listening.REFUSES, "no_controller", "critical", "no controller is active"),
        (Listening.ACCEPTS, "no_controller", "critical", "the active controller is paused"),
        (
            Listening.SILENT,
            "controller_unreachable",
            "warning",
            "the active controller cannot be queried",
        ),
        (
            Listening.UNRESOLVED,
            "controller_unreachable",
            "warning",
            "the active controller advertises a name that does not resolve here: 127.0.0.1:7402",
        ),
        (
            Listening.BUSY,
            "controller_unreachable",
            "warning",
            "the active controller is alive and did not answer in time",
        ),
    ],
)
def test_an_unanswered_active_controller_is_judged_by_connect_and_health_check(
    cluster: DescribedCluster, listening: Listening, cause: str, severity: str, summary: str
) -> None:
    cluster.controller_answers = False
    for broker_id, broker in cluster.brokers.items():
        cluster.brokers[broker_id] = replace(broker, controller_address="127.0.0.1:7402")
    cluster.silent.append(SilentService("127.0.0.1:7402", listening, "gave no answer"))
    missing = found(cluster.explain(), cause)
    assert missing.severity == severity
    assert missing.summary.startswith(summary)
    assert "the store names the one at 127.0.0.1:7402 as active" in text_of(missing)


def test_a_merely_busy_controller_is_not_reported_as_missing(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", (2, 3))
    cluster.kill(2)
    cluster.stop_controller()
    for broker_id, broker in cluster.brokers.items():
        cluster.brokers[broker_id] = replace(broker, controller_address="127.0.0.1:7401")
    cluster.silent.append(
        SilentService("127.0.0.1:7401", Listening.BUSY, "gave no answer", "controller", 1)
    )
    findings = cluster.explain()
    assert "no_controller" not in causes_of(findings)
    missing = found(findings, "no_leader")
    assert missing.because == ("replica_dead of broker 2",)
    assert "no other is elected" not in text_of(missing)


def test_a_deletion_waits_for_a_busy_broker_that_gives_no_reason(
    cluster: DescribedCluster,
) -> None:
    cluster.deletions.append(WaitingDeletion("sea", "id-sea", 9_000, (2,)))
    cluster.silence(2, Listening.BUSY)
    waits = found(cluster.explain(), "deletion_waits")
    assert waits.because == ("broker_busy of broker 2",)


@pytest.mark.parametrize("epoch_that_brokers_know", [4, 5])
def test_a_deposed_controller_without_the_store_does_not_hide_the_silent_active_one(
    cluster: DescribedCluster, epoch_that_brokers_know: int
) -> None:
    cluster.partition("sea/0")
    cluster.departures.append(Departure(3, 13, 1, "broker_crashed"))
    cluster.lose_store("controller-1")
    for broker_id, broker in cluster.brokers.items():
        cluster.brokers[broker_id] = replace(
            broker,
            controller_address="127.0.0.1:7402",
            controller_epoch=epoch_that_brokers_know,
        )
    cluster.silent.append(
        SilentService("127.0.0.1:7402", Listening.ACCEPTS, "gave no answer", "controller")
    )
    missing = found(cluster.explain(), "no_controller")
    assert missing.summary.startswith("the active controller is paused")
    assert "the store names the one at 127.0.0.1:7402 as active" in text_of(missing)
    assert "claims to be active in epoch 4; brokers report another" in text_of(missing)
    assert "broker_crashed" not in "".join(map(text_of, cluster.explain()))


def test_a_controller_without_the_store_that_brokers_name_is_the_active_one(
    cluster: DescribedCluster,
) -> None:
    cluster.lose_store("controller-1")
    for broker_id, broker in cluster.brokers.items():
        cluster.brokers[broker_id] = replace(broker, controller_address="127.0.0.1:7401")
    assert causes_of(cluster.explain()) == ["store_unreachable"]


def test_without_a_controller_brokers_report_when_and_how_others_left(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0", leader=-1, isr=(3,))
    cluster.metadata = list(cluster.keys.values())
    cluster.kill(3)
    cluster.brokers_know_departures = True
    cluster.stop_controller()
    waits = text_of(found(cluster.explain(), "no_leader"))
    assert "broker 3 was in the ISR in its incarnation 13; gone since" in waits
    assert "by broker_crashed" in waits
    dead = text_of(found(cluster.explain(), "replica_dead"))
    assert "broker-1 reports: its incarnation 13 ended" in dead


def test_a_missing_controller_is_not_attributed_to_a_healthy_partition(
    cluster: DescribedCluster,
) -> None:
    cluster.partition("sea/0")
    cluster.stop_controller()
    assert cluster.explain("sea", 0) == []


def test_an_unreachable_store_is_one_finding(cluster: DescribedCluster) -> None:
    cluster.lose_store("broker-1", "broker-2", "broker-3", "controller-1")
    cluster.controller_active = False
    findings = cluster.explain()
    assert causes_of(findings) == ["store_unreachable", "no_controller"]
    assert "broker-2 has received no answer for 1 min 0 s" in text_of(findings[0])
    assert findings[1].because == ("store_unreachable",)


def test_a_store_that_one_broker_cannot_reach_is_a_finding_of_that_broker(
    cluster: DescribedCluster,
) -> None:
    cluster.lose_store("broker-2")
    lost = found(cluster.explain(), "store_unreachable")
    assert lost.broker == 2
    assert "it answers broker-1, broker-3, controller-1" in text_of(lost)
    assert cluster.explain(broker=3) == []


def test_a_store_recently_lost_by_some_may_be_lost_for_all(
    cluster: DescribedCluster,
) -> None:
    cluster.lose_store("broker-2", for_ms=3_000)
    lost = found(cluster.explain(), "store_unreachable")
    assert lost.broker == -1
    assert "broker-1, broker-3, controller-1 may not have used it since" in text_of(lost)


def test_a_slow_store_has_its_latency_and_the_affected_services(cluster: DescribedCluster) -> None:
    cluster.stores["broker-2"] = SLOW
    slow = found(cluster.explain(), "store_slow")
    assert slow.severity == "warning"
    assert "up to 1.8 s to answer broker-2 within the last minute" in slow.summary


# Its longest answer came 10 s ago.
SLOW = StoreHealth(last_latency_ms=900, max_latency_ms=1_800, max_latency_ago_ms=10_000)


def quick(*asked_ms: int) -> StoreHealth:
    return StoreHealth(-1, "", 2, 5, 1_000, asked_ms)


def test_a_store_slow_for_all_its_recent_callers_is_to_be_checked_itself(
    cluster: DescribedCluster,
) -> None:
    for service in ("broker-1", "broker-2", "controller-1"):
        cluster.stores[service] = SLOW
    # Before and after, and so close to both that clocks cannot order them.
    cluster.stores["broker-3"] = quick(12_000, 11_700, 10_100, 4_000)
    slow = found(cluster.explain(), "store_slow")
    assert slow.next_step.startswith("Check etcd's process and disk")
    assert "broker-3 did not use it in that time" in text_of(slow)
    assert slow.broker == -1


def test_a_store_quick_for_others_points_to_the_network(
    cluster: DescribedCluster,
) -> None:
    cluster.stores["broker-2"] = SLOW
    cluster.stores["broker-3"] = quick(12_000, 11_000, 4_000)
    slow = found(cluster.explain(), "store_slow")
    assert slow.next_step == "Check the network between broker-2 and etcd."
    assert "broker-3 had quick answers in that time" in text_of(slow)
    assert slow.broker == 2


def test_a_simultaneous_answer_says_nothing_about_the_network(
    cluster: DescribedCluster,
) -> None:
    cluster.stores["broker-2"] = SLOW
    # Requested in the last half second of the wait, so it may have waited for its end.
    cluster.stores["broker-3"] = quick(10_700)
    slow = found(cluster.explain(), "store_slow")
    assert slow.next_step.startswith("Check etcd's process and disk")


def test_a_service_described_later_does_not_prove_that_the_store_was_quick(
    cluster: DescribedCluster,
) -> None:
    cluster.stores["broker-2"] = SLOW
    cluster.stores["broker-3"] = quick(11_000)
    observed = cluster.observed()
    later = replace(observed.states[2], now_ms=observed.states[2].now_ms + 2_000)
    states = (*observed.states[:2], later, *observed.states[3:])
    slow = found(list(explain(replace(observed, states=states))), "store_slow")
    assert slow.next_step.startswith("Check etcd's process and disk")


# The same answer, and quick ones since.
QUICK_AGAIN = replace(SLOW, last_latency_ms=3, last_slow_ago_ms=10_000, quick_answers_ms=(9_000,))


def test_a_store_that_is_quick_again_is_no_fault(cluster: DescribedCluster) -> None:
    cluster.stores["broker-2"] = QUICK_AGAIN
    slow = found(cluster.explain(), "store_slow")
    assert slow.severity == "info"
    assert "up to 1.8 s to answer broker-2 within the last minute, and is quick again" in (
        slow.summary
    )


@pytest.mark.parametrize(
    "store",
    [
        replace(QUICK_AGAIN, last_slow_ago_ms=9_999),
        replace(QUICK_AGAIN, quick_answers_ms=(11_000,)),
    ],
)
def test_a_store_is_quick_again_after_a_while_of_quick_answers(
    cluster: DescribedCluster, store: StoreHealth
) -> None:
    cluster.stores["broker-2"] = QUICK_AGAIN
    cluster.stores["broker-3"] = store
    assert found(cluster.explain(), "store_slow").severity == "warning"
