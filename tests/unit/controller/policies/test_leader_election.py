from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_election import next_state
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
)

# The epoch of broker b is 10 * b unless a test states another.
EPOCH = 7
CONTROLLER_EPOCH = 4
RULES = ElectionRules()


def live(*broker_ids: int, stopping: tuple[int, ...] = ()) -> dict[int, LiveBroker]:
    return {b: LiveBroker(10 * b, b not in stopping, 10 * b, 10 * b) for b in broker_ids}


def restarted(
    broker_id: int, *, whole_since: int | None = None, synced_whole_since: int | None = None
) -> dict[int, LiveBroker]:
    epoch = 10 * broker_id + 5
    since = epoch if whole_since is None else whole_since
    synced_since = since if synced_whole_since is None else synced_whole_since
    return {broker_id: LiveBroker(epoch, True, since, synced_since)}


def members(*broker_ids: int) -> tuple[Member, ...]:
    return tuple(Member(b, 10 * b) for b in broker_ids)


def partition(
    *,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    eligible: tuple[int, ...] = (),
    min_isr: int = 2,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id="id",
        replicas=replicas,
        controller_epoch=3,
        leader=leader,
        leader_epoch=EPOCH,
        isr=members(*isr),
        eligible=members(*eligible),
        min_isr=min_isr,
    )


def elect(
    state: LeaderAndIsr, brokers: dict[int, LiveBroker], rules: ElectionRules = RULES
) -> LeaderAndIsr:
    new = next_state(state, brokers, CONTROLLER_EPOCH, rules)
    assert new is not None
    assert next_state(new, brokers, CONTROLLER_EPOCH, rules) is None, "one step has to be enough"
    return new


def test_a_healthy_partition_is_left_alone() -> None:
    assert next_state(partition(), live(1, 2, 3), CONTROLLER_EPOCH, RULES) is None


@pytest.mark.rule("leader-elected-from-live-isr")
def test_the_first_live_in_sync_replica_in_the_order_of_replicas_is_elected() -> None:
    new = elect(partition(replicas=(1, 3, 2)), live(2, 3))
    assert new.leader == 3


@pytest.mark.rule("elections-are-conditional-writes", "decisions-name-their-controller")
def test_an_election_takes_the_next_leader_epoch_and_the_controllers_own() -> None:
    new = elect(partition(), live(2, 3))
    assert (new.leader_epoch, new.controller_epoch) == (EPOCH + 1, CONTROLLER_EPOCH)


@pytest.mark.rule("leader-elected-from-live-isr")
def test_an_election_keeps_the_live_members_in_the_isr() -> None:
    assert elect(partition(), live(2, 3)).isr == members(2, 3)


@pytest.mark.rule("unclean-election-needs-permission")
def test_a_replica_outside_the_isr_is_not_elected() -> None:
    assert elect(partition(isr=(1, 3)), live(2, 3)).leader == 3


@pytest.mark.rule("election-takes-new-leader-epoch")
def test_a_leader_that_restarted_within_its_lease_is_elected_again_in_a_new_epoch() -> None:
    new = elect(partition(isr=(1,), min_isr=1), restarted(1, whole_since=10) | live(2))
    assert (new.leader, new.leader_epoch, new.leader_broker_epoch) == (1, EPOCH + 1, 15)


def test_a_restarted_intact_member_is_in_the_new_isr_with_its_new_incarnation() -> None:
    new = elect(partition(), restarted(2, whole_since=20) | live(3))
    assert new.isr == (Member(2, 25), Member(3, 30))


def test_a_restarted_member_that_lost_data_is_neither_elected_nor_kept() -> None:
    new = elect(partition(), restarted(2) | live(3))
    assert (new.leader, new.isr) == (3, members(3))


@pytest.mark.rule("losses-remembered-across-incarnations")
def test_a_member_that_lost_data_earlier_is_not_electable_in_a_later_incarnation() -> None:
    # Rule `losses-remembered-across-incarnations`: intact since 22, but admitted in 20.
    new = elect(partition(isr=(2,), leader=2), {2: LiveBroker(25, True, 22, 22)} | live(3))
    assert new.leader == NO_LEADER


def test_a_stopping_leader_transfers_to_a_running_member() -> None:
    new = elect(partition(), live(1, 2, 3, stopping=(1,)))
    assert new.leader == 2


def test_a_stopping_leader_leaves_the_isr_with_its_leadership() -> None:
    assert elect(partition(), live(1, 2, 3, stopping=(1,))).isr == members(2, 3)


def test_a_stopping_leader_that_leaves_fewer_than_min_isr_stays_eligible() -> None:
    new = elect(partition(isr=(1, 2)), live(1, 2, 3, stopping=(1,)))
    assert (new.isr, new.eligible) == (members(2), members(1))


def test_a_stopping_follower_leaves_the_isr_while_it_still_runs() -> None:
    # Rule `stopping-broker-does-not-rejoin`: its end must not delay the high watermark.
    new = elect(partition(), live(1, 2, 3, stopping=(3,)))
    assert (new.leader, new.leader_epoch, new.isr) == (1, EPOCH, members(1, 2))


def test_a_stopping_leader_transfers_to_an_eligible_replica_where_no_other_is_in_sync() -> None:
    new = elect(partition(isr=(1,), eligible=(3,)), live(1, 2, 3, stopping=(1,)))
    assert (new.leader, new.isr, new.eligible) == (3, members(3), members(1))


@pytest.mark.rule("stopping-broker-does-not-rejoin")
def test_a_stopping_member_is_not_elected() -> None:
    assert elect(partition(), live(2, 3, stopping=(2,))).leader == 3


def test_a_stopping_leader_without_a_successor_leads_until_it_is_gone() -> None:
    alone = partition(isr=(1,), min_isr=1)
    assert next_state(alone, live(1, 2, 3, stopping=(1,)), CONTROLLER_EPOCH, RULES) is None
    assert elect(alone, live(2, 3)).leader == NO_LEADER


def test_where_all_members_stop_the_leader_continues_and_its_followers_leave() -> None:
    new = elect(partition(), live(1, 2, 3, stopping=(1, 2, 3)))
    assert (new.leader, new.leader_epoch, new.isr) == (1, EPOCH, members(1))
    assert new.eligible == members(2, 3)


def test_a_stopping_member_is_not_elected_even_without_a_leader() -> None:
    leaderless = partition(leader=NO_LEADER, isr=(2,))
    assert next_state(leaderless, live(2, 3, stopping=(2,)), CONTROLLER_EPOCH, RULES) is None


# A replica that resigned (rule `damaged-replica-resigns-first`).


def test_a_resigned_leader_is_replaced_by_another_member_of_the_isr() -> None:
    new = elect(partition().resigned(1), live(1, 2, 3))
    assert (new.leader, new.leader_epoch, new.isr) == (2, EPOCH + 1, members(2, 3))


def test_a_resigned_leader_is_replaced_by_an_eligible_replica_where_it_was_alone() -> None:
    new = elect(partition(isr=(1,), eligible=(3,)).resigned(1), live(1, 2, 3))
    assert (new.leader, new.isr) == (3, members(3))
    assert new.eligible == (Member(1, NOT_WHOLE),)


def test_a_resigned_last_leader_leaves_no_leader_and_stays_last_known() -> None:
    new = elect(partition(isr=(1,)).resigned(1), live(1, 2, 3))
    assert (new.leader, new.isr) == (NO_LEADER, (Member(1, NOT_WHOLE),))


def test_a_resigned_member_is_not_elected_even_if_it_is_preferred() -> None:
    state = partition(leader=NO_LEADER, isr=(1, 2)).resigned(1)
    assert elect(state, live(1, 2)).leader == 2


def test_a_resigned_member_leaves_the_isr_of_another_leader_at_once() -> None:
    state = replace(partition(), isr=(Member(1, 10), Member(2, NOT_WHOLE), Member(3, 30)))
    assert elect(state, live(1, 2, 3)).isr == members(1, 3)


# Synced topics.


def test_a_synced_replica_is_intact_after_a_reboot() -> None:
    rebooted = restarted(2, whole_since=25, synced_whole_since=20)
    leaderless = partition(leader=NO_LEADER, isr=(2,))
    assert next_state(leaderless, rebooted, CONTROLLER_EPOCH, RULES) is None
    assert elect(leaderless, rebooted, ElectionRules(synced=True)).leader == 2


def test_a_synced_replica_that_lost_synced_data_is_not_intact() -> None:
    damaged = restarted(2, whole_since=20, synced_whole_since=25)
    leaderless = partition(leader=NO_LEADER, isr=(2,))
    synced = ElectionRules(synced=True)
    assert next_state(leaderless, damaged, CONTROLLER_EPOCH, synced) is None


@pytest.mark.rule("no-candidate-means-no-leader", "leaderless-partition-is-offline")
def test_without_a_candidate_there_is_no_leader_and_the_isr_stays() -> None:
    new = elect(partition(isr=(1, 2)), live(3))
    assert (new.leader, new.leader_epoch, new.isr) == (NO_LEADER, EPOCH + 1, members(1, 2))


def test_a_leaderless_partition_waits_without_being_written_again() -> None:
    leaderless = partition(leader=NO_LEADER, isr=(1, 2))
    assert next_state(leaderless, live(3), CONTROLLER_EPOCH, RULES) is None


def test_a_leaderless_partition_keeps_its_isr_when_its_members_are_gone() -> None:
    leaderless = partition(leader=NO_LEADER, isr=(1, 2))
    assert next_state(leaderless, {}, CONTROLLER_EPOCH, RULES) is None


def test_an_intact_member_that_returns_ends_the_wait() -> None:
    leaderless = partition(leader=NO_LEADER, isr=(1, 2))
    new = elect(leaderless, restarted(2, whole_since=20) | live(3))
    assert (new.leader, new.isr, new.eligible) == (2, (Member(2, 25),), members(1))


def test_a_returning_member_that_lost_data_does_not_end_the_wait() -> None:
    leaderless = partition(leader=NO_LEADER, isr=(1, 2))
    assert next_state(leaderless, restarted(2), CONTROLLER_EPOCH, RULES) is None


def test_with_the_isr_gone_an_eligible_replica_is_elected_alone() -> None:
    new = elect(partition(isr=(1,), eligible=(3,)), live(2, 3))
    assert (new.leader, new.isr) == (3, members(3))


def test_an_in_sync_replica_is_preferred_to_an_eligible_one() -> None:
    new = elect(partition(isr=(1, 3), eligible=(2,), min_isr=3), live(2, 3))
    assert new.leader == 3


@pytest.mark.rule("hw-held-below-min-isr")
def test_an_eligible_replica_that_lost_data_is_not_elected() -> None:
    new = elect(partition(isr=(1,), eligible=(3,)), restarted(3) | live(2))
    assert new.leader == NO_LEADER


def test_after_an_eligible_replica_is_elected_the_previous_isr_stays_eligible() -> None:
    assert elect(partition(isr=(1,), eligible=(3,)), live(3)).eligible == members(1)


def test_an_election_that_keeps_min_isr_empties_the_eligible_set() -> None:
    new = elect(partition(isr=(1, 2, 3), min_isr=2), live(2, 3))
    assert new.eligible == ()


def test_an_election_that_falls_below_min_isr_keeps_removed_members_eligible() -> None:
    assert elect(partition(isr=(1, 2)), live(2, 3)).eligible == members(1)


def test_a_follower_that_is_gone_leaves_the_isr_without_a_new_epoch() -> None:
    new = elect(partition(), live(1, 3))
    assert (new.leader, new.leader_epoch, new.isr) == (1, EPOCH, members(1, 3))


def test_a_follower_that_restarted_leaves_the_isr_until_its_leader_admits_it() -> None:
    assert elect(partition(), live(1, 3) | restarted(2, whole_since=20)).isr == members(1, 3)


def test_a_shrink_below_min_isr_keeps_removed_members_eligible() -> None:
    assert elect(partition(isr=(1, 2)), live(1, 3)).eligible == members(2)


def never_led(replicas: tuple[int, ...] = (2, 1, 3)) -> LeaderAndIsr:
    return replace(partition(leader=NO_LEADER, isr=(), replicas=replicas), leader_epoch=NO_EPOCH)


@pytest.mark.rule("new-partitions-get-leaders")
def test_a_new_partition_is_led_by_its_first_live_replica_in_epoch_0() -> None:
    new = elect(never_led(), live(1, 3))
    assert (new.leader, new.leader_epoch) == (1, 0)


@pytest.mark.rule("new-partitions-get-leaders")
def test_a_new_partition_has_all_its_live_replicas_in_sync() -> None:
    assert elect(never_led(), live(1, 3)).isr == members(1, 3)


def test_a_new_partition_does_not_require_intact_replicas() -> None:
    lossy = {2: LiveBroker(20, True, 20, 20)} | live(1, 3)
    assert elect(never_led(), lossy).leader == 2


def test_a_new_partition_without_a_live_replica_waits() -> None:
    assert next_state(never_led(), live(4), CONTROLLER_EPOCH, RULES) is None


def test_a_stopping_broker_is_in_the_isr_of_no_new_partition() -> None:
    new = elect(never_led(), live(1, 2, 3, stopping=(2,)))
    assert (new.leader, new.isr) == (1, members(1, 3))
