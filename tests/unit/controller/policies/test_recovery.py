"""Elections that may lose records (rule `best-last-known-log-leads`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_election import next_state
from tidelog_controller.policies.recovery import Logs, needs_descriptions, records_given_up
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
    RecoveryConsent,
)
from tidelog_runtime.replica_control import LogExtent, ReplicaSummary

EPOCH = 7
BALANCED = ElectionRules()
MANUAL = ElectionRules(recovery="manual")
UNCLEAN = ElectionRules(unclean_leader_election=True)
CONSENT = RecoveryConsent("id", from_live_replicas=False)
CONSENT_TO_LIVE = RecoveryConsent("id", from_live_replicas=True)


def rebooted(*broker_ids: int, running: bool = True) -> dict[int, LiveBroker]:
    """Brokers that lost unsynced data. They were admitted in epoch 10 * b, and run in the next
    one.
    """
    return {b: LiveBroker(10 * b + 1, running, 10 * b + 1, 10 * b + 1) for b in broker_ids}


def leaderless(*isr: int, eligible: tuple[int, ...] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id="id",
        replicas=(1, 2, 3, 4),
        controller_epoch=3,
        leader=NO_LEADER,
        leader_epoch=EPOCH,
        isr=tuple(Member(b, 10 * b) for b in isr),
        eligible=tuple(Member(b, 10 * b) for b in eligible),
        min_isr=2,
    )


def log(end: int, *epochs: tuple[int, int], start: int = 0) -> ReplicaSummary:
    return ReplicaSummary("id", 0, 90, start, end, epochs)


def elected(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    logs: Logs,
    rules: ElectionRules = BALANCED,
    consent: RecoveryConsent | None = None,
) -> int | None:
    """The elected broker is marked as elected uncleanly, and is the only member of the ISR."""
    new = next_state(state, live, 4, rules, logs=logs, consent=consent)
    if new is None:
        return None
    assert (new.leader_epoch, new.unclean_leader_epoch) == (EPOCH + 1, EPOCH + 1)
    assert new.isr == (Member(new.leader, live[new.leader].broker_epoch),)
    assert new.eligible == ()
    return new.leader


# Among the last-known members.


@pytest.mark.rule("best-last-known-log-leads")
def test_the_longest_log_in_the_newest_epoch_leads() -> None:
    logs = {1: log(9, (1, 0)), 2: log(7, (1, 0), (2, 5)), 3: log(8, (1, 0), (2, 5))}
    assert elected(leaderless(1, 2, 3), rebooted(1, 2, 3), logs) == 3


def test_of_equal_logs_the_first_in_the_order_of_replicas_leads() -> None:
    logs = {2: log(9, (1, 0)), 3: log(9, (1, 0))}
    assert elected(leaderless(3, 2), rebooted(2, 3), logs) == 2


def test_of_equal_logs_one_without_damage_leads() -> None:
    logs = {1: log(9, (1, 0)), 2: log(9, (1, 0)), 3: log(8, (1, 0))}
    assert elected(damaged(leaderless(1), 1), rebooted(1, 2, 3), logs) == 2
    assert elected(damaged(leaderless(1), 1), rebooted(1, 2, 3), logs | {2: log(8, (1, 0))}) == 1


def test_an_eligible_member_counts_like_one_in_sync() -> None:
    logs = {1: log(5, (1, 0)), 2: log(6, (1, 0))}
    assert elected(leaderless(1, eligible=(2,)), rebooted(1, 2), logs) == 2


@pytest.mark.rule("every-write-sets-eligible-set")
def test_an_unclean_election_empties_the_eligible_set() -> None:
    state = leaderless(1, eligible=(2,))
    new = next_state(state, rebooted(1, 2), 4, BALANCED, logs={1: log(5), 2: log(5)})
    assert new is not None
    assert (new.unclean_leader_epoch, new.min_isr, len(new.isr)) == (EPOCH + 1, 2, 1)
    assert new.eligible == ()


@pytest.mark.rule("best-last-known-log-leads")
def test_no_replica_is_elected_while_a_last_known_member_is_away() -> None:
    state = leaderless(1, eligible=(2,))
    assert needs_descriptions(state, rebooted(1, 3), BALANCED, None) == ()
    assert elected(state, rebooted(1, 3), {1: log(5), 3: log(9)}) is None


def test_no_replica_is_elected_while_a_last_known_member_is_stopping() -> None:
    live = rebooted(1) | rebooted(2, running=False)
    assert needs_descriptions(leaderless(1, 2), live, BALANCED, None) == ()


def test_a_resigned_member_is_waited_for_and_its_log_counts() -> None:
    state = replace(leaderless(1), isr=(Member(1, NOT_WHOLE),))
    same_life = {1: LiveBroker(10, True, 10, 10)}
    assert elected(state, rebooted(2), {2: log(9, (1, 0))}) is None
    assert elected(state, same_life, {1: log(4, (1, 0))}) == 1


def test_an_intact_member_is_elected_cleanly_and_needs_no_logs() -> None:
    live = rebooted(1) | {2: LiveBroker(21, True, 20, 20)}
    assert needs_descriptions(leaderless(1, 2), live, BALANCED, None) == ()
    new = next_state(leaderless(1, 2), live, 4, BALANCED)
    assert new is not None
    assert (new.leader, new.unclean_leader_epoch) == (2, -1)


def test_no_replica_is_elected_before_every_running_replica_has_described_its_log() -> None:
    live = rebooted(1, 2, 3)
    assert needs_descriptions(leaderless(1, 2), live, BALANCED, None) == (1, 2, 3)
    assert elected(leaderless(1, 2), live, {1: log(5), 2: log(5)}) is None


def test_a_partition_that_still_names_a_leader_is_not_recovered() -> None:
    led = replace(leaderless(1, 2), leader=1)
    assert needs_descriptions(led, rebooted(1, 2), BALANCED, None) == ()


def test_a_partition_that_was_stopped_for_deletion_is_not_recovered() -> None:
    assert needs_descriptions(leaderless(), rebooted(1, 2), UNCLEAN, CONSENT_TO_LIVE) == ()


def test_a_member_with_an_unreadable_log_is_not_skipped() -> None:
    assert elected(leaderless(1, 2), rebooted(1, 2), {1: log(5, (1, 0)), 2: None}) is None


def test_a_member_that_came_back_empty_counts_as_an_empty_log() -> None:
    assert elected(leaderless(1), rebooted(1), {1: log(0)}) == 1


# Outside the last-known members.


@pytest.mark.rule("best-last-known-log-leads")
def test_an_outside_log_that_extends_the_best_leads() -> None:
    logs = {1: log(5, (1, 0)), 3: log(8, (1, 0), (2, 6))}
    assert elected(leaderless(1), rebooted(1, 3), logs) == 3


def test_the_longest_log_that_extends_the_best_leads() -> None:
    logs = {1: log(5, (1, 0)), 3: log(8, (1, 0)), 4: log(9, (1, 0))}
    assert elected(leaderless(1), rebooted(1, 3, 4), logs) == 4


@pytest.mark.rule("best-last-known-log-leads")
def test_a_newer_outside_log_that_diverged_from_the_best_does_not_lead() -> None:
    """A deposed leader's tail must not win over a committed record: its epoch 1 ends at 4."""
    logs = {1: log(5, (1, 0)), 3: log(9, (1, 0), (3, 4))}
    assert elected(leaderless(1), rebooted(1, 3), logs) == 1


def test_an_outside_log_without_the_epoch_of_the_best_does_not_lead() -> None:
    logs = {1: log(5, (1, 0), (2, 4)), 3: log(9, (1, 0), (3, 5))}
    assert elected(leaderless(1), rebooted(1, 3), logs) == 1


def test_an_outside_log_that_begins_after_the_end_of_the_best_does_not_lead() -> None:
    logs = {1: log(5, (1, 0)), 3: log(9, (1, 7), start=7)}
    assert elected(leaderless(1), rebooted(1, 3), logs) == 1


def test_every_log_extends_an_empty_one() -> None:
    logs = {1: log(0), 3: log(9, (2, 7), start=7)}
    assert elected(leaderless(1), rebooted(1, 3), logs) == 3


def test_an_outside_broker_without_a_replica_delays_no_recovery() -> None:
    assert elected(leaderless(1), rebooted(1, 3), {1: log(5, (1, 0)), 3: None}) == 1


# Manual recovery and consent.


@pytest.mark.rule("best-last-known-log-leads")
def test_manual_recovery_waits_for_consent() -> None:
    logs = {1: log(5, (1, 0))}
    assert needs_descriptions(leaderless(1), rebooted(1), MANUAL, None) == ()
    assert elected(leaderless(1), rebooted(1), logs, MANUAL) is None
    assert elected(leaderless(1), rebooted(1), logs, MANUAL, CONSENT) == 1


def test_consent_to_a_previous_topic_of_the_name_is_ignored() -> None:
    previous = RecoveryConsent("another", from_live_replicas=True)
    assert needs_descriptions(leaderless(1), rebooted(1), MANUAL, previous) == ()


def test_consent_still_waits_for_the_last_known_members() -> None:
    assert needs_descriptions(leaderless(1, 2), rebooted(1), MANUAL, CONSENT) == ()


def test_consent_to_live_replicas_does_not_wait_for_absent_ones() -> None:
    logs = {2: log(5, (1, 0)), 3: log(4, (1, 0), (2, 3))}
    live = rebooted(2, 3)
    assert needs_descriptions(leaderless(1), live, MANUAL, CONSENT_TO_LIVE) == (2, 3)
    assert elected(leaderless(1), live, logs, MANUAL, CONSENT_TO_LIVE) == 3


def test_consent_to_live_replicas_skips_an_unreadable_log() -> None:
    logs = {1: None, 2: log(5, (1, 0))}
    assert elected(leaderless(1), rebooted(1, 2), logs, MANUAL, CONSENT_TO_LIVE) == 2


# Unclean leader election.


@pytest.mark.rule("unclean-election-needs-permission")
def test_where_the_topic_allows_it_the_best_live_log_leads_at_once() -> None:
    logs = {2: log(5, (1, 0)), 3: log(9, (1, 0))}
    assert elected(leaderless(1), rebooted(2, 3), logs, UNCLEAN) == 3


def test_a_stopping_broker_is_not_elected_uncleanly() -> None:
    live = rebooted(2) | rebooted(3, running=False)
    logs = {2: log(5, (1, 0)), 3: log(9, (1, 0))}
    assert elected(leaderless(1), live, logs, UNCLEAN) == 2


def test_without_a_live_log_no_replica_is_elected_uncleanly() -> None:
    assert elected(leaderless(1), rebooted(2), {2: None}, UNCLEAN) is None
    assert elected(leaderless(1), {}, {}, UNCLEAN) is None


# Lost records.


def test_records_beyond_the_elected_log_are_lost() -> None:
    logs = {1: log(7, (0, 0), (1, 6)), 2: log(12, (0, 0)), 3: log(9, (0, 0))}
    assert records_given_up(leaderless(1, 2, 3), 1, logs) == 6


def test_logs_that_the_elected_one_extends_lose_nothing() -> None:
    logs = {1: log(12, (0, 0), (1, 6)), 2: log(5, (0, 0)), 3: log(0)}
    assert records_given_up(leaderless(1, 2, 3), 1, logs) == 0


def test_all_records_of_others_are_lost_for_an_empty_log() -> None:
    logs = {1: log(0), 2: log(5, (0, 2), start=2)}
    assert records_given_up(leaderless(1, 2), 1, logs) == 3


def damaged(state: LeaderAndIsr, *broker_ids: int) -> LeaderAndIsr:
    """These have recorded that they lost data."""
    for broker_id in broker_ids:
        state = state.resigned(broker_id)
    return state


def cut(end: int, *epochs: tuple[int, int], before: LogExtent | None) -> ReplicaSummary:
    return log(end, *epochs)._replace(before_cut=before)


def test_the_loss_of_a_damaged_member_is_unknown() -> None:
    state = damaged(leaderless(1), 1)
    assert records_given_up(state, 1, {1: log(20, (0, 0))}) == -1
    assert records_given_up(state, 1, {1: log(0)}) == -1


def test_a_damaged_member_that_knows_the_end_of_its_log_loses_what_was_cut() -> None:
    state = damaged(leaderless(1), 1)
    before = LogExtent(50, ((0, 0),))
    assert records_given_up(state, 1, {1: cut(20, (0, 0), before=before)}) == 30
    assert records_given_up(state, 1, {1: cut(0, before=before)}) == 50


def test_another_member_may_still_hold_what_a_damaged_one_has_lost() -> None:
    state = damaged(leaderless(1, 2), 1)
    logs = {1: cut(20, (0, 0), before=LogExtent(50, ((0, 0),))), 2: log(50, (0, 0))}
    assert records_given_up(state, 2, logs) == 0
    assert records_given_up(state, 2, logs | {2: log(40, (0, 0))}) == 10


def test_records_cut_long_ago_by_an_intact_member_are_not_counted() -> None:
    logs = {1: cut(20, (0, 0), before=LogExtent(50, ((0, 0),))), 2: log(20, (0, 0))}
    assert records_given_up(leaderless(1, 2), 2, logs) == 0


def test_the_loss_is_unknown_while_the_log_of_a_member_is_unknown() -> None:
    logs = {1: log(7, (0, 0)), 3: None}
    assert records_given_up(leaderless(1, 2), 1, logs) == -1
    assert records_given_up(leaderless(1, 3), 1, logs) == -1


# Chosen by an administrator.


def chosen(broker_id: int) -> RecoveryConsent:
    return RecoveryConsent("id", from_live_replicas=False, broker_id=broker_id)


def test_a_chosen_replica_leads_even_if_others_hold_more() -> None:
    logs = {1: log(9, (1, 0)), 2: log(7, (1, 0))}
    assert elected(leaderless(1, 2), rebooted(1, 2), logs, MANUAL, chosen(2)) == 2


def test_a_chosen_replica_does_not_wait_for_others() -> None:
    logs = {4: log(3, (1, 0))}
    assert elected(leaderless(1, 2), rebooted(2, 4), logs, MANUAL, chosen(4)) == 4


def test_a_chosen_replica_has_to_run_and_to_describe_its_log() -> None:
    assert elected(leaderless(1, 2), rebooted(1), {1: log(9, (1, 0))}, MANUAL, chosen(2)) is None
    assert elected(leaderless(1, 2), rebooted(1, 2), {1: log(9, (1, 0))}, MANUAL, chosen(2)) is None
    nothing = {1: log(9, (1, 0)), 2: None}
    assert elected(leaderless(1, 2), rebooted(1, 2), nothing, MANUAL, chosen(2)) is None


def test_a_choice_is_ignored_while_a_replica_can_lead_without_loss() -> None:
    whole = {1: LiveBroker(11, True, 5, 5), **rebooted(2)}
    new = next_state(
        leaderless(1, 2), whole, 4, MANUAL, logs={2: log(9, (1, 0))}, consent=chosen(2)
    )
    assert new is not None
    assert (new.leader, new.unclean_leader_epoch) == (1, -1)
