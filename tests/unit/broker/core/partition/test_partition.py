import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, NO_OFFSET, Acks, Batch, EpochEnd
from tidelog_broker.core.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from unit.broker.fake_log import (
    FakeLog,
    epoch_of,
    leader,
    new_partition,
    notes,
    sent,
    stamped,
    state,
)

RUNNING = {1: epoch_of(1), 2: epoch_of(2), 3: epoch_of(3)}


def at(offset: int, *, epoch: int = 5, last_epoch: int = 5) -> FetchPosition:
    return FetchPosition(
        leader=NO_LEADER,
        leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch if offset else -1,
        flushed_offset=0,
        log_start_offset=0,
    )


def fetch(
    partition: Partition,
    follower: int,
    offset: int,
    *,
    epoch: int = 5,
    last_epoch: int = 5,
    incarnation: int | None = None,
    now_ms: int = 1000,
) -> EpochEnd | None:
    return partition.replica_fetch(
        follower,
        incarnation if incarnation is not None else epoch_of(follower),
        at(offset, epoch=epoch, last_epoch=last_epoch),
        now_ms,
    )


def code_of(call: object) -> ErrorCode:
    with pytest.raises(TidelogError) as raised:
        call()  # type: ignore[operator]
    return raised.value.code


def propose(partition: Partition, now_ms: int = 1000) -> LeaderAndIsr | None:
    return partition.propose_isr(RUNNING, now_ms=now_ms, lag_time_max_ms=500)


# -- producing and committing ----------------------------------------------------------


@pytest.mark.rule("hw-is-smallest-isr-offset")
def test_a_record_is_committed_once_every_isr_member_has_fetched_beyond_it() -> None:
    partition = leader(FakeLog())
    partition.append([sent()], Acks.ALL, 2000)
    fetch(partition, 2, 1)
    assert partition.high_watermark == 0
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1
    assert notes(partition) == ["grew to 1", "committed 1"]


@pytest.mark.rule("acks-all-needs-min-isr")
def test_acks_all_below_min_isr_is_rejected_before_the_append() -> None:
    log = FakeLog()
    partition = leader(log, state(isr=(1,), eligible=(2,)))
    rejection = code_of(lambda: partition.append([sent()], Acks.ALL, 2000))
    assert (rejection, log.batches) == (ErrorCode.NOT_ENOUGH_REPLICAS, [])


@pytest.mark.rule("acks-all-needs-min-isr")
def test_acks_1_below_min_isr_appends_and_commits_nothing() -> None:
    partition = leader(FakeLog(), state(isr=(1,), eligible=(2,)))
    partition.append([sent()], Acks.LEADER, 2000)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)


def test_a_single_replica_commits_at_once() -> None:
    partition = leader(FakeLog(), state(isr=(1,), replicas=(1,), min_isr=1))
    assert partition.append([sent(), sent()], Acks.ALL, 2000).next_offset == 2
    assert partition.high_watermark == 2


@pytest.mark.rule("leader-stops-fetching")
def test_batches_carry_the_epoch_and_the_offsets_that_the_leader_assigned() -> None:
    log = FakeLog([3, 3])
    leader(log).append([sent()], Acks.ALL, 2000)
    header = log.batches[-1].header
    assert (header.base_offset, header.leader_epoch, header.append_time_ms) == (2, 5, 2000)


def test_no_replica_appends_without_leading() -> None:
    partition = new_partition(FakeLog())
    assert code_of(lambda: partition.append([sent()], Acks.ALL, 1)) is (
        ErrorCode.LEADER_NOT_AVAILABLE
    )
    partition.take(state(leader=2), 10, broker_epoch=epoch_of(1), now_ms=1)
    assert code_of(lambda: partition.append([sent()], Acks.ALL, 1)) is ErrorCode.NOT_LEADER


# -- fetches of followers at the leader ------------------------------------------------


@pytest.mark.rule("hw-advances-in-leader-epoch")
@pytest.mark.rule("fetches-fenced-by-epoch")
@pytest.mark.rule("epochs-separate-concurrent-leaders")
def test_a_fetch_of_an_older_epoch_is_fenced_and_does_not_count() -> None:
    partition = leader(FakeLog([5]))
    assert code_of(lambda: fetch(partition, 2, 1, epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    fetch(partition, 3, 1)
    assert partition.high_watermark == 0


@pytest.mark.rule("fetches-fenced-by-epoch")
def test_a_fetch_of_a_newer_epoch_is_not_answered() -> None:
    partition = leader(FakeLog([5]))
    assert code_of(lambda: fetch(partition, 2, 1, epoch=6)) is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.rule("logs-reconciled-before-batches", "fetch-counts-in-current-epoch")
def test_a_fetch_that_does_not_agree_with_the_log_does_not_count() -> None:
    """It comes from a deposed leader whose own log is longer."""
    partition = leader(FakeLog([1, 5]))
    assert fetch(partition, 2, 9, last_epoch=4) == EpochEnd(1, 1)
    fetch(partition, 3, 2)
    assert partition.high_watermark == 0


@pytest.mark.rule("fetch-counts-in-current-epoch")
def test_a_fetch_of_a_previous_incarnation_is_rejected() -> None:
    partition = leader(FakeLog([5]))
    fetch(partition, 2, 0, incarnation=epoch_of(2) + 1)
    assert code_of(lambda: fetch(partition, 2, 1)) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.rule("fetch-counts-in-current-epoch")
def test_a_new_incarnation_of_a_follower_starts_from_its_first_fetch() -> None:
    partition = leader(FakeLog([5, 5]), state(isr=(1, 2)))
    fetch(partition, 2, 2)
    fetch(partition, 2, 0, incarnation=epoch_of(2) + 1)
    partition.append([sent()], Acks.ALL, 1)
    assert partition.high_watermark == 2


def test_a_broker_without_a_replica_may_not_fetch_as_a_follower() -> None:
    partition = leader(FakeLog([5]))
    assert code_of(lambda: fetch(partition, 9, 1)) is ErrorCode.INVALID_REQUEST


def test_an_offset_beyond_the_leaders_log_is_out_of_range() -> None:
    partition = leader(FakeLog([5]))
    empty_log_there = at(7)._replace(last_fetched_epoch=-1)
    rejection = code_of(lambda: partition.replica_fetch(2, epoch_of(2), empty_log_there, 1))
    assert rejection is ErrorCode.OFFSET_OUT_OF_RANGE


# -- the ISR ------------------------------------------------------------------------------


@pytest.mark.rule("maximal-isr-bounds-hw")
def test_a_joiner_holds_the_high_watermark_from_its_proposal_on() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0)
    proposed = propose(partition)
    assert proposed is not None
    assert proposed.isr_ids == {1, 2, 3}
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    assert partition.high_watermark == 0


@pytest.mark.rule("maximal-isr-bounds-hw", "deposed-leader-commits-nothing")
def test_a_leaver_holds_the_high_watermark_until_the_store_has_applied_its_removal() -> None:
    partition = leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1, now_ms=1400)
    proposed = propose(partition, now_ms=1600)
    assert proposed is not None
    assert proposed.isr_ids == {1, 2}
    fetch(partition, 2, 1, now_ms=1700)
    assert partition.high_watermark == 0
    partition.isr_written(proposed, 11)
    assert partition.high_watermark == 1
    assert partition.revision == 11


@pytest.mark.rule("quiet-partition-reports-its-end", "new-leader-opens-at-once")
def test_a_new_leader_grants_its_followers_a_full_lag_time() -> None:
    partition = leader(FakeLog())
    assert propose(partition, now_ms=1500) is None
    shrunk = propose(partition, now_ms=1501)
    assert shrunk is not None
    assert shrunk.isr_ids == {1}


def test_followers_are_granted_a_full_lag_time_after_the_leader_was_stalled() -> None:
    partition = leader(FakeLog())
    partition.grant_followers(9000)
    assert propose(partition, now_ms=9400) is None
    assert propose(partition, now_ms=9600) is not None


def test_a_follower_that_has_left_is_granted_nothing() -> None:
    """It would join again without a fetch."""
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0)
    partition.grant_followers(9000)
    assert propose(partition, now_ms=9100) is None


def test_one_change_is_in_flight_at_a_time() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0)
    assert propose(partition) is not None
    assert propose(partition, now_ms=9000) is None


@pytest.mark.rule("unanswered-isr-change-is-pending")
def test_a_change_without_an_answer_stays_until_the_key_has_moved() -> None:
    """Rule `unanswered-isr-change-is-pending`: only a newer revision ends it."""
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0)
    proposed = propose(partition)
    assert proposed is not None
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    partition.observed(state(isr=(1, 2)), 10, 1000)
    assert partition.high_watermark == 0
    partition.observed(proposed, 12, 1000)
    assert partition.state == proposed
    fetch(partition, 3, 1)
    assert partition.high_watermark == 1


def test_a_rejected_change_is_forgotten_and_releases_the_high_watermark() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0)
    proposed = propose(partition)
    assert proposed is not None
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    partition.isr_rejected(proposed)
    assert partition.high_watermark == 1


def test_an_isr_that_the_controller_shrank_is_adopted_within_the_epoch() -> None:
    partition = leader(FakeLog())
    partition.append([sent()], Acks.ALL, 1)
    fetch(partition, 2, 1)
    assert partition.take(state(isr=(1, 2)), 11, broker_epoch=epoch_of(1), now_ms=1)
    assert partition.high_watermark == 1
    assert "leadership ended" not in notes(partition)


def test_a_leader_that_reads_of_another_leader_stops_leading() -> None:
    partition = leader(FakeLog())
    partition.observed(state(leader=2, epoch=6), 11, 1000)
    assert partition.leading is None
    assert partition.leader_to_follow == NO_LEADER


@pytest.mark.rule("decisions-ordered-by-revision")
def test_a_state_that_a_broker_reads_itself_never_makes_it_leader() -> None:
    partition = new_partition(FakeLog())
    partition.observed(state(), 10, 1000)
    assert partition.leading is None


# -- roles --------------------------------------------------------------------------------


@pytest.mark.rule("commands-sent-in-parallel")
def test_a_decision_that_is_not_newer_has_no_effect() -> None:
    partition = leader(FakeLog())
    assert not partition.take(state(leader=2, epoch=6), 10, broker_epoch=101, now_ms=1)
    assert partition.leading is not None


@pytest.mark.rule("election-takes-new-leader-epoch", "losses-remembered-across-incarnations")
def test_a_decision_about_a_previous_incarnation_makes_no_replica_lead() -> None:
    partition = new_partition(FakeLog())
    partition.take(state(), 10, broker_epoch=epoch_of(1) + 50, now_ms=1)
    assert partition.leading is None


@pytest.mark.rule("joiner-at-hw-and-epoch-start", "quiet-partition-reports-its-end")
def test_a_reelection_is_a_new_epoch_without_progress_of_the_followers() -> None:
    partition = leader(FakeLog([5, 5]))
    fetch(partition, 2, 1)
    fetch(partition, 3, 2)
    partition.take(state(epoch=6), 11, broker_epoch=epoch_of(1), now_ms=1)
    fetch(partition, 2, 2, epoch=6)
    assert partition.high_watermark == 1
    assert "leadership ended" in notes(partition)


@pytest.mark.rule("quiet-partition-reports-its-end", "new-leader-keeps-its-hw")
def test_a_new_leader_keeps_its_high_watermark_and_never_takes_its_log_end() -> None:
    partition = leader(FakeLog([1, 1, 1]), high_watermark=2)
    assert partition.high_watermark == 2


@pytest.mark.rule("end-reported-after-epoch-start")
def test_the_committed_end_is_not_returned_before_it_reaches_the_epochs_start() -> None:
    partition = leader(FakeLog([1, 1, 1]), high_watermark=2)
    assert code_of(lambda: partition.committed_end(5)) is ErrorCode.OFFSET_NOT_AVAILABLE
    for offset in (0, 2, 3):
        assert partition.read_for_consumer(offset, 5, 1000).high_watermark == NO_OFFSET
    fetch(partition, 2, 3, last_epoch=1)
    fetch(partition, 3, 3, last_epoch=1)
    assert partition.committed_end(5) == 3
    for offset in (0, 2, 3):
        assert partition.read_for_consumer(offset, 5, 1000).high_watermark == 3


def test_followers_still_receive_the_high_watermark() -> None:
    partition = leader(FakeLog([1, 1, 1]), high_watermark=2)
    position = FetchPosition(1, 5, 3, 1, 3, 0)
    assert partition.read_for_follower(position, 1000).high_watermark == 2


# -- consumers ----------------------------------------------------------------------------


@pytest.mark.rule("read-above-hw-is-empty")
def test_a_consumer_sees_nothing_between_high_watermark_and_log_end() -> None:
    partition = leader(FakeLog([1, 1, 1]), high_watermark=2)
    answer = partition.read_for_consumer(0, -1, 1000)
    assert [b.header.base_offset for b in answer.batches] == [0, 1]
    assert partition.read_for_consumer(2, -1, 1000).batches == ()
    assert partition.read_for_consumer(3, -1, 1000).batches == ()


@pytest.mark.rule("read-above-hw-is-empty")
def test_a_consumer_beyond_the_log_end_is_out_of_range() -> None:
    partition = leader(FakeLog([1, 1, 1]), high_watermark=2)
    assert code_of(lambda: partition.read_for_consumer(4, -1, 1000)) is (
        ErrorCode.OFFSET_OUT_OF_RANGE
    )


@pytest.mark.rule("zombie-resets-no-client")
def test_a_consumer_that_knows_a_newer_epoch_is_not_served_by_a_zombie() -> None:
    """Rule `zombie-resets-no-client`."""
    partition = leader(FakeLog([1]))
    assert code_of(lambda: partition.read_for_consumer(9, 6, 1000)) is (
        ErrorCode.UNKNOWN_LEADER_EPOCH
    )


# -- following ----------------------------------------------------------------------------


def follower(log: FakeLog, high_watermark: int = 0) -> Partition:
    partition = new_partition(log, broker_id=2, high_watermark=high_watermark)
    partition.take(state(), 10, broker_epoch=epoch_of(2), now_ms=1)
    return partition


@pytest.mark.rule("hw-is-smallest-isr-offset")
def test_a_follower_appends_and_advances_its_high_watermark() -> None:
    partition = follower(FakeLog([5]))
    asked = partition.fetch_position()
    assert partition.follow(asked, FetchAnswer(9, 0, 5, [stamped(1, 5)]))
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)


@pytest.mark.rule("truncations-fenced-by-epoch", "answer-needs-current-request")
def test_an_answer_counts_only_while_its_request_is_current() -> None:
    """Rule `answer-needs-current-request`: the replica followed another leader and was cut before
    the answer came."""
    log = FakeLog([5, 5])
    partition = follower(log)
    asked = partition.fetch_position()
    partition.take(state(leader=3, epoch=6), 11, broker_epoch=epoch_of(2), now_ms=1)
    assert not partition.follow(asked, FetchAnswer(9, 0, 5, [stamped(2, 5)]))
    assert log.log_end_offset == 2


@pytest.mark.rule("answer-needs-current-request")
def test_a_repeated_answer_does_not_cut_records_appended_after_the_cut() -> None:
    """Leader, epoch and offset are the same, but another record is there by now."""
    log = FakeLog([4])
    partition = follower(log)
    asked = partition.fetch_position()
    cut = FetchAnswer(0, 0, 5, (), EpochEnd(3, 0))
    assert partition.follow(asked, cut)
    assert partition.follow(partition.fetch_position(), FetchAnswer(1, 0, 5, [stamped(0, 5)]))
    assert not partition.follow(asked, cut)
    assert log.log_end_offset == 1


@pytest.mark.rule("second-crc-covers-broker-fields")
@pytest.mark.parametrize(
    "damaged",
    [
        stamped(0, 5)._replace(records=b"x"),
        # The leader's own fields (rule `second-crc-covers-broker-fields`).
        stamped(0, 5)._replace(header=stamped(0, 5).header._replace(append_time_ms=7)),
    ],
    ids=["records", "header"],
)
def test_a_batch_damaged_in_transit_is_not_appended(damaged: Batch) -> None:
    log = FakeLog()
    partition = follower(log)
    answer = FetchAnswer(1, 0, 5, [damaged])
    assert code_of(lambda: partition.follow(partition.fetch_position(), answer)) is (
        ErrorCode.CORRUPT_BATCH
    )
    assert log.batches == []


@pytest.mark.rule("logs-reconciled-by-epoch", "follower-truncates-by-epoch")
def test_a_follower_cuts_where_its_log_diverges_from_the_leaders() -> None:
    log = FakeLog([1, 1, 2, 2])
    partition = follower(log, high_watermark=1)
    asked = partition.fetch_position()
    partition.follow(asked, FetchAnswer(9, 0, 5, (), EpochEnd(1, 5)))
    assert log.epochs == [1, 1]
    assert partition.high_watermark == 1


def test_a_follower_that_is_too_far_behind_resets_to_the_leaders_start() -> None:
    log = FakeLog([1])
    partition = follower(log)
    assert partition.restart_at(partition.fetch_position(), 40)
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (40, 40, 40)


def test_a_follower_resets_in_one_step_to_the_start_of_a_log_without_older_epochs() -> None:
    """A member of the ISR still holds everything committed, as far as it is retained."""
    log = FakeLog([1, 1, 1])
    partition = follower(log, high_watermark=3)
    partition.follow(partition.fetch_position(), FetchAnswer(3, 3, 5, (), EpochEnd(-1, 3)))
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (3, 3, 3)


def test_isr_members_have_the_incarnation_in_which_they_fetched() -> None:
    partition = leader(FakeLog(), state(isr=(1, 2)))
    fetch(partition, 3, 0, incarnation=203)
    proposed = partition.propose_isr({**RUNNING, 3: 203}, now_ms=1000, lag_time_max_ms=500)
    assert proposed is not None
    assert Member(3, 203) in proposed.isr
