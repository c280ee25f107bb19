from dataclasses import replace

import pytest

from simulation.partition_id import PartitionId
from simulation.shadow_logs import Entry
from simulation.twins import twin_host
from tidelog.model import NO_LEADER, BatchHeader
from tidelog_runtime.metadata.schema import Member, encode
from unit.simulation.planting import (
    KEYS,
    PARTITION,
    A,
    B,
    C,
    Cluster,
    Shown,
    finds,
    registration,
    state,
)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_valid_behaviour_is_no_violation(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.follow(2, state(), high_watermark=2)
    cluster.append(5, 1, 2)
    cluster.lead(2, state(leader=2, epoch=6, isr=(B, C)), high_watermark=2)
    cluster.append(6, 2)
    # The deposed leader truncates uncommitted records and follows.
    cluster.show(1, replace(cluster.shown[1], leading=None))
    cluster.rules.before_cut(cluster.replicas[1], 3)
    cluster.rules.cut(cluster.replicas[1], 3)
    cluster.append(5, 3)
    cluster.append(6, 3)
    cluster.move(2, 5)
    assert cluster.rules.committed[PARTITION].log.end == 5


@pytest.mark.parametrize(("first", "end", "is_allowed"), [(1, 3, True), (1, 4, False)])
def test_an_unreadable_batch_may_replace_committed_ones(
    cluster: Cluster, first: int, end: int, *, is_allowed: bool
) -> None:
    cluster.commit(3)
    log = cluster.replicas[2].log
    log.cut(first)
    log.add(Entry(first, end, 5, 77, is_unreadable=True))
    if is_allowed:
        cluster.follow(2, state(), high_watermark=3)
    else:
        with finds("logs_differ_below_high_watermark"):
            cluster.follow(2, state(), high_watermark=3)


def test_a_commit_that_a_member_lacks_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2)
    with finds("committed_without_member"):
        cluster.move(1, 1)


def test_a_removal_counts_only_after_the_store_has_accepted_it(cluster: Cluster) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2)
    shrunk = Shown(state(isr=(A, B)), 1000, 1, cluster.shown[1].leading)
    with finds("state_never_written"):
        cluster.show(1, shrunk)


def test_a_member_in_the_store_unknown_to_the_leader_counts(
    cluster: Cluster,
) -> None:
    cluster.lead(1, state(isr=(A, B)))
    cluster.append(5, 1, 2)
    cluster.store.write(state())
    with finds("committed_without_member"):
        cluster.move(1, 1)


def test_a_member_whose_machine_lost_data_is_excused(cluster: Cluster) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2)
    cluster.store.losses.machine_lost(3)
    cluster.move(1, 1)


def test_a_member_with_a_damaged_replica_is_excused(cluster: Cluster) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2)
    cluster.store.losses.replica_damaged(3, PARTITION)
    cluster.move(1, 1)


@pytest.mark.parametrize("damaged", [(3, PARTITION._replace(partition=1)), (2, PARTITION)])
def test_damage_to_another_replica_excuses_no_member(
    cluster: Cluster, damaged: tuple[int, PartitionId]
) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2)
    cluster.store.losses.replica_damaged(*damaged)
    with finds("committed_without_member"):
        cluster.move(1, 1)


def test_damage_to_another_replica_excuses_no_joiner(cluster: Cluster) -> None:
    cluster.lead(1, state(isr=(A, B)))
    cluster.append(5, 1, 2)
    cluster.move(1, 1)
    cluster.store.losses.replica_damaged(3, PARTITION._replace(partition=1))
    with finds("joined_without_committed"):
        cluster.store.write(state())


def test_a_commit_below_min_isr_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state(isr=(A,), eligible=(B, C)))
    cluster.append(5, 1)
    with finds("committed_below_min_isr"):
        cluster.move(1, 1)


def test_a_new_leader_without_a_committed_record_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.rules.cut(cluster.replicas[2], 2)
    with finds("leader_lacks_committed"):
        cluster.lead(2, state(leader=2, epoch=6, isr=(B, C)))


def test_records_committed_before_the_isr_shrank_stay_committed(cluster: Cluster) -> None:
    cluster.commit(3)
    smaller = state(isr=(A,), eligible=(B, C))
    revision = cluster.store.write(smaller)
    cluster.show(1, Shown(smaller, revision, 3, leading=cluster.shown[1].leading))
    cluster.show(1, Shown(smaller, revision, 3, leading=None))
    assert cluster.rules.committed[PARTITION].log.end == 3


def test_a_new_leader_with_another_record_than_the_committed_one_is_found(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    cluster.rules.cut(cluster.replicas[2], 2)
    cluster.append(5, 2, content=99)
    with finds("logs_differ_below_high_watermark"):
        cluster.lead(2, state(leader=2, epoch=6, isr=(B, C)))


def test_a_follower_that_differs_below_its_high_watermark_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state(isr=(A, B)))
    cluster.append(4, 3)
    cluster.append(5, 1, 2)
    cluster.move(1, 1)
    with finds("logs_differ_below_high_watermark"):
        cluster.follow(3, state(isr=(A, B)), high_watermark=1)


def test_a_high_watermark_that_no_leader_had_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.append(5, 2)
    with finds("high_watermark_never_committed"):
        cluster.follow(2, state(), high_watermark=4)


def test_a_high_watermark_beyond_the_log_is_found(cluster: Cluster) -> None:
    with finds("high_watermark_beyond_log"):
        cluster.lead(1, state(), high_watermark=1)


def test_a_high_watermark_that_falls_while_leading_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    with finds("high_watermark_fell"):
        cluster.move(1, 2)


def test_a_second_leader_of_an_epoch_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state())
    with finds("two_leaders_in_one_epoch"):
        cluster.show(2, Shown(cluster.shown[1].state, cluster.shown[1].revision, 0, object()))


def test_another_incarnation_of_the_leader_in_the_same_epoch_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state())
    before = cluster.shown[1]
    cluster.open(1, "broker-1/2", 40, 0)
    with finds("two_leaders_in_one_epoch"):
        cluster.show(1, Shown(before.state, before.revision, 0, object()))


def test_a_member_that_truncates_committed_records_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    with finds("member_cut_committed"):
        cluster.rules.before_cut(cluster.replicas[2], 2)


def test_a_member_that_restarts_above_the_deletions_of_others_is_found(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    with finds("member_cut_committed"):
        cluster.rules.before_reset(cluster.replicas[2], 3)
    cluster.replicas[1].log.forget_below(3)
    cluster.rules.before_reset(cluster.replicas[2], 3)


def test_a_replica_outside_the_isr_may_truncate(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.store.write(state(isr=(A, C)))
    cluster.rules.before_cut(cluster.replicas[2], 2)


def test_a_previous_incarnation_in_the_isr_is_not_the_present_one(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.open(2, "broker-2/2", 40, 3)
    cluster.rules.before_cut(cluster.replicas[2], 2)


def test_an_admission_without_a_committed_record_is_found(cluster: Cluster) -> None:
    cluster.lead(1, state(isr=(A, B)))
    cluster.append(5, 1, 2)
    cluster.move(1, 1)
    with finds("joined_without_committed"):
        cluster.store.write(state())


def test_a_leader_that_truncates_its_log_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    with finds("leader_cut_its_log"):
        cluster.rules.before_cut(cluster.replicas[1], 3)


def test_a_member_that_is_set_aside_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    with finds("member_removed"):
        cluster.rules.removed(cluster.replicas[3])


def test_a_replica_of_a_deleted_topic_counts_until_the_leader_learns_of_the_deletion(
    cluster: Cluster,
) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2, 3)
    cluster.append(5, 1, 2)
    cluster.store.delete_topic()
    cluster.rules.removed(cluster.replicas[3])
    cluster.move(1, 1)
    with finds("committed_without_member"):
        cluster.move(1, 2)


def test_a_replica_removed_by_a_move_counts_until_the_leader_learns_of_it(
    cluster: Cluster,
) -> None:
    cluster.lead(1, state())
    cluster.append(5, 1, 2, 3)
    cluster.append(5, 1, 2)
    cluster.store.write(state(epoch=6, isr=(A, B)))
    cluster.rules.removed(cluster.replicas[3])
    cluster.move(1, 1)
    with finds("committed_without_member"):
        cluster.move(1, 2)


def test_a_log_that_shrinks_across_a_restart_without_loss_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    with finds("written_records_lost"):
        cluster.open(2, "broker-2/2", 40, 2)


def test_a_log_may_shrink_where_its_machine_lost_data(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.open(2, "broker-2/2", 40, 2, lost=True)
    assert cluster.replicas[2].log.end == 2


def test_a_log_whose_start_was_lost_too_may_begin_lower(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.replicas[2].log.forget_below(3)
    cluster.open(2, "broker-2/2", 40, 0, lost=True)
    cluster.open(2, "broker-2/3", 41, 0)
    assert cluster.replicas[2].log.end == 0


def test_a_marked_unclean_leader_gives_up_missing_records_and_reports_it(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.rules.cut(cluster.replicas[2], 1)
    cluster.store.configure(unclean_leader_election="true")
    cluster.lead(2, state(leader=2, epoch=6, isr=(cluster.lose_all(),), unclean=6, min_isr=1))
    assert [(loss.leader_epoch, loss.first_offset, loss.end_offset) for loss in cluster.losses] == [
        (6, 1, 3)
    ]


def test_a_recovery_that_elects_a_shorter_log_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.rules.cut(cluster.replicas[2], 1)
    with finds("recovery_gave_up_too_much"):
        cluster.lead(2, state(leader=2, epoch=6, isr=(cluster.lose_all(),), unclean=6, min_isr=1))


def test_unsynced_records_of_a_synced_partition_are_not_committed(
    cluster: Cluster,
) -> None:
    cluster.store.configure(durability="synced")
    for broker_id, durable in ((1, 2), (2, 2), (3, 1)):
        cluster.replicas[broker_id].durable.offset = durable
    cluster.lead(1, state())
    cluster.append(5, 1, 2, 3)
    cluster.append(5, 1, 2, 3)
    cluster.move(1, 1)
    with finds("committed_unsynced"):
        cluster.move(1, 2)


def test_records_synced_by_a_previous_incarnation_count(cluster: Cluster) -> None:
    replica = cluster.replicas[3]
    cluster.append(5, 3)
    replica.durable.offset = 1
    cluster.open(3, "broker-3/2", 33, 1)
    assert replica.synced_end == 1
    cluster.rules.cut(replica, 0)
    assert replica.synced_end == 0


def test_a_new_leader_that_reports_an_end_below_committed_records_is_found(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    cluster.lead(2, state(leader=2, epoch=6), high_watermark=1)
    cluster.rules.judge_end(cluster.replicas[2], 6, 3)
    with finds("end_went_back"):
        cluster.rules.judge_end(cluster.replicas[2], 6, 1)


def test_after_an_unclean_election_given_up_records_do_not_count_against_other_replicas(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    cluster.follow(3, state(), high_watermark=3)
    cluster.rules.cut(cluster.replicas[2], 1)
    cluster.store.configure(unclean_leader_election="true")
    unclean = state(leader=2, epoch=6, isr=(cluster.lose_all(),), unclean=6, min_isr=1)
    cluster.lead(2, unclean)
    cluster.follow(3, unclean, high_watermark=3)
    cluster.rules.cut(cluster.replicas[3], 1)
    cluster.follow(3, unclean, high_watermark=1)
    cluster.append(6, 2)
    cluster.move(2, 2)
    cluster.append(6, 3, content=99)
    with finds("logs_differ_below_high_watermark"):
        cluster.follow(3, unclean, high_watermark=2)


def test_the_log_read_after_a_loss_is_checked(cluster: Cluster) -> None:
    cluster.commit(3)
    replica = cluster.replicas[2]
    owner = replica.owner
    assert owner is not None
    cluster.rules.opened(replica, owner, 0, [Entry(0, 1, 4, 77)], lost=True)
    with finds("logs_differ_below_high_watermark"):
        cluster.follow(2, state(), high_watermark=1)


def test_an_unregistered_incarnation_has_no_claim(cluster: Cluster) -> None:
    assert cluster.store.rules.has_lost_data_since(Member(2, 999), PARTITION)
    assert not cluster.store.rules.has_lost_data_since(B, PARTITION)
    assert not cluster.store.rules.has_lost_data_since(C, PARTITION)


def test_a_recreated_partition_does_not_have_to_hold_records_of_the_removed_one(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    cluster.store.remove_partition(last_epoch=6)
    for broker_id in (1, 2, 3):
        cluster.rules.removed(cluster.replicas[broker_id])
        cluster.replicas[broker_id] = cluster.rules.of(broker_id, PARTITION)
        cluster.open(broker_id, f"broker-{broker_id}/1", 10 + broker_id, 0)
    cluster.lead(1, state(epoch=7))
    cluster.append(7, 1, 2, 3)
    cluster.move(1, 1)
    assert cluster.rules.committed[PARTITION].log.end == 1
    assert cluster.rules.was_committed(PARTITION, 2, leader_epoch=5)
    assert not cluster.rules.was_committed(PARTITION, 2, leader_epoch=7)


def test_a_leader_of_the_removed_partition_commits_nothing_in_the_new_one(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    removed = cluster.shown[1]
    cluster.store.remove_partition(last_epoch=6)
    cluster.store.write(state(epoch=7))
    cluster.append(5, 1)
    cluster.show(1, replace(removed, high_watermark=4))
    assert PARTITION not in cluster.rules.committed


def _add_again_and_commit_one(cluster: Cluster) -> None:
    cluster.store.remove_partition(last_epoch=6)
    for broker_id in (1, 2):
        cluster.rules.removed(cluster.replicas[broker_id])
        cluster.replicas[broker_id] = cluster.rules.of(broker_id, PARTITION)
        cluster.open(broker_id, f"broker-{broker_id}/1", 10 + broker_id, 0)
    cluster.lead(1, state(epoch=7, isr=(A, B)))
    cluster.append(7, 1, 2)
    cluster.move(1, 1)


def test_a_paused_broker_whose_copy_was_the_broker_may_return_with_a_removed_partition(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    cluster.store.put(KEYS.broker(3), encode(registration(host=twin_host(3))))
    _add_again_and_commit_one(cluster)
    cluster.store.register(3)
    cluster.follow(3, state(epoch=7, isr=(A, B)), high_watermark=3)
    # Once it has followed the leader, it is judged as any other replica.
    cluster.rules.cut(cluster.replicas[3], 0)
    cluster.append(7, 3)
    cluster.move(3, 1)
    cluster.append(7, 3)
    with finds("high_watermark_never_committed"):
        cluster.move(3, 2)


def test_a_broker_that_had_no_copy_may_not_return_with_a_removed_partition(
    cluster: Cluster,
) -> None:
    cluster.commit(3)
    _add_again_and_commit_one(cluster)
    cluster.store.register(3)
    with finds("high_watermark_never_committed"):
        cluster.follow(3, state(epoch=7, isr=(A, B)), high_watermark=3)


def header(offset: int, producer_epoch: int) -> BatchHeader:
    return BatchHeader(offset, 5, 0, 1000 + offset, 0, 0, 1, 0, 0, 77, producer_epoch, offset)


def test_a_batch_of_a_previous_name_holder_appended_after_the_next_is_found(
    cluster: Cluster,
) -> None:
    replica = cluster.replicas[1]
    cluster.rules.appended(replica, [header(0, 1), header(1, 1), header(2, 2)])
    with finds("producer_epoch_fell"):
        cluster.rules.appended(replica, [header(3, 1)])


def test_a_truncated_fence_fences_no_producer(cluster: Cluster) -> None:
    replica = cluster.replicas[1]
    cluster.rules.appended(replica, [header(0, 1), header(1, 2)])
    cluster.rules.cut(replica, 1)
    cluster.rules.appended(replica, [header(1, 1)])


def test_a_replica_that_deletes_uncommitted_records_is_found(cluster: Cluster) -> None:
    cluster.commit(3)
    cluster.append(5, 2)
    cluster.rules.start_moved(cluster.replicas[2], 3)
    with finds("deleted_above_committed"):
        cluster.rules.start_moved(cluster.replicas[2], 4)


@pytest.mark.parametrize("newer", [5, 6])
def test_a_longer_log_of_an_older_epoch_is_not_elected(cluster: Cluster, newer: int) -> None:
    """Broker 2 has two records more, and those of broker 3 are newer."""
    cluster.store.configure(unclean_leader_election="true")
    cluster.commit(3)
    cluster.append(5, 2)
    cluster.append(5, 2)
    cluster.append(newer, 3)
    elected = state(leader=2, epoch=7, isr=(B,), unclean=7, min_isr=1)
    cluster.store.delete(KEYS.broker(1))
    cluster.store.write(state(leader=NO_LEADER, epoch=6, isr=(A,), min_isr=1))
    if newer > 5:
        with finds("older_epoch_elected"):
            cluster.lead(2, elected)
    else:
        cluster.lead(2, elected)
