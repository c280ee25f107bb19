import pytest

from tidelog.model import NO_OFFSET
from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.isr import FollowerProgress, IsrChange, SessionTime
from tidelog_runtime.metadata.schema import Member
from unit.broker.fake_log import epoch_of, state

RUNNING = {1: epoch_of(1), 2: epoch_of(2), 3: epoch_of(3)}


def progress(end: int, *, caught_up_ms: int = 1000, broker_id: int = 3) -> FollowerProgress:
    return FollowerProgress(epoch_of(broker_id), end, caught_up_ms, caught_up_ms, end)


def evaluate(
    followers: dict[int, FollowerProgress],
    *,
    of: tuple[int, ...] = (1, 2),
    high_watermark: int = 10,
    epoch_start: int = 8,
    running: dict[int, int] | None = None,
    now_ms: int = 1000,
) -> IsrChange | None:
    return isr.evaluate_isr(
        state(isr=of),
        followers,
        RUNNING if running is None else running,
        high_watermark=high_watermark,
        epoch_start=epoch_start,
        now_ms=now_ms,
        lag_time_max_ms=500,
    )


def test_a_follower_with_everything_committed_joins() -> None:
    assert evaluate({3: progress(10)}) == IsrChange((Member(3, epoch_of(3)),), frozenset())


@pytest.mark.rule("joiner-at-hw-and-epoch-start")
def test_a_follower_below_the_high_watermark_does_not_join() -> None:
    assert evaluate({3: progress(9)}) is None


@pytest.mark.rule("joiner-at-hw-and-epoch-start", "joiner-at-epoch-start")
def test_a_follower_below_the_start_of_the_epoch_does_not_join() -> None:
    assert evaluate({3: progress(10)}, epoch_start=11) is None


def test_a_follower_that_has_not_fetched_in_this_epoch_does_not_join() -> None:
    assert evaluate({3: isr.granted(1000)}, high_watermark=0, epoch_start=0) is None


def test_a_follower_whose_broker_is_gone_does_not_join() -> None:
    assert evaluate({3: progress(10)}, running={1: epoch_of(1)}) is None


@pytest.mark.rule("isr-members-have-broker-epochs")
def test_a_follower_does_not_join_in_another_incarnation_than_it_fetched_in() -> None:
    assert evaluate({3: progress(10)}, running={**RUNNING, 3: epoch_of(3) + 1}) is None


@pytest.mark.rule("isr-changes-by-conditional-write")
def test_a_member_that_has_not_caught_up_for_too_long_leaves() -> None:
    assert evaluate({2: progress(9, broker_id=2)}, now_ms=1501) == IsrChange((), frozenset({2}))


@pytest.mark.rule("new-leader-opens-at-once")
def test_a_member_stays_for_the_full_lag_time() -> None:
    assert evaluate({2: progress(9, broker_id=2)}, now_ms=1500) is None


def test_a_lagging_follower_does_not_join_only_to_leave_again() -> None:
    assert evaluate({3: progress(10)}, now_ms=1501) is None


@pytest.mark.parametrize("high_watermark", [5, 9])
def test_a_follower_that_rejects_what_its_leader_sends_leaves_and_stays_out(
    high_watermark: int,
) -> None:
    """It requests the same records again and again. The rule also holds when the high watermark
    cannot pass its end because the ISR would fall below min ISR without it.
    """
    rejected_from = 5
    members: tuple[int, ...] = (1, 2)
    follower = isr.granted(0)
    changes = []
    for now_ms in range(10, 5_000, 10):
        follower = isr.fetched(
            follower,
            broker_epoch=epoch_of(2),
            fetch_offset=rejected_from,
            leader_end=9,
            now_ms=now_ms,
        )
        change = evaluate(
            {2: follower},
            of=members,
            high_watermark=high_watermark,
            epoch_start=0,
            now_ms=now_ms,
        )
        if change is not None:
            changes.append(change)
            members = (1,)
    assert changes == [IsrChange((), frozenset({2}))]


def test_a_follower_that_requests_the_leaders_end_is_caught_up_now() -> None:
    after = isr.fetched(
        isr.granted(0), broker_epoch=103, fetch_offset=10, leader_end=10, now_ms=700
    )
    assert after.last_caught_up_ms == 700


def test_a_follower_that_reaches_the_end_of_its_previous_fetch_was_caught_up_then() -> None:
    first = isr.fetched(isr.granted(0), broker_epoch=103, fetch_offset=5, leader_end=10, now_ms=100)
    assert first.last_caught_up_ms == 0
    second = isr.fetched(first, broker_epoch=103, fetch_offset=10, leader_end=20, now_ms=200)
    assert second.last_caught_up_ms == 100


@pytest.mark.rule("fetch-counts-in-current-epoch")
def test_another_incarnation_of_the_follower_inherits_nothing() -> None:
    previous = FollowerProgress(103, 10, 400, 500, leader_end_at_last_fetch=10)
    after = isr.fetched(previous, broker_epoch=104, fetch_offset=10, leader_end=20, now_ms=600)
    assert (after.broker_epoch, after.last_caught_up_ms) == (104, 400)


def test_the_maximal_isr_holds_joiners_once_proposed_and_leavers_until_removed() -> None:
    assert isr.maximal(state(isr=(1, 2)), state(isr=(1, 3))) == {1, 2, 3}


def test_a_replica_that_leaves_an_isr_that_becomes_too_small_stays_eligible() -> None:
    after = isr.changed(state(isr=(1, 2)), IsrChange((), frozenset({2})))
    assert after.isr == (Member(1, 101),)
    assert after.eligible == (Member(2, 102),)


def test_a_replica_that_leaves_an_isr_that_stays_large_enough_is_not_eligible() -> None:
    after = isr.changed(state(isr=(1, 2, 3)), IsrChange((), frozenset({3})))
    assert after.eligible == ()


def test_an_isr_that_is_large_enough_again_has_no_eligible_replicas() -> None:
    small = state(isr=(1,), eligible=(2,))
    after = isr.changed(small, IsrChange((Member(3, 103),), frozenset()))
    assert after.isr_ids == {1, 3}
    assert after.eligible == ()


@pytest.mark.rule("new-leader-opens-at-once")
def test_granted_progress_has_no_offset() -> None:
    assert isr.granted(7) == FollowerProgress(0, NO_OFFSET, 7, 7, NO_OFFSET)


# -- lag in bytes ------------------------------------------------------------------------


def evaluate_far_behind(followers: dict[int, FollowerProgress], *far: int) -> IsrChange | None:
    return isr.evaluate_isr(
        state(isr=(1, 2)),
        followers,
        RUNNING,
        high_watermark=10,
        epoch_start=8,
        now_ms=1000,
        lag_time_max_ms=500,
        too_far_behind=far,
    )


@pytest.mark.rule("isr-bounds-lag-in-bytes")
def test_a_member_that_lags_by_too_many_bytes_leaves_though_it_just_caught_up() -> None:
    assert evaluate_far_behind({2: progress(9, broker_id=2)}, 2) == IsrChange(
        (), frozenset({2}), by_bytes=frozenset({2})
    )


def test_a_follower_that_lags_by_too_many_bytes_does_not_join() -> None:
    assert evaluate_far_behind({3: progress(10)}, 3) is None


def test_a_follower_that_has_not_fetched_yet_has_no_lag_in_bytes() -> None:
    followers = {2: isr.granted(1000), 3: progress(7)}
    assert isr.lags_in_bytes(followers, lambda offset: 100 * (10 - offset)) == {3: 300}


# -- partitions that a fetch session leaves out ------------------------------------------


def in_session(end: int, asked_last_ms: int) -> FollowerProgress:
    """Progress recorded at 100 ms, when the leader's log ended at 10."""
    return FollowerProgress(103, end, 100, 100, 10, SessionTime(asked_last_ms))


def test_a_follower_at_the_leaders_end_is_caught_up_while_its_session_fetches() -> None:
    after = isr.apply_session_heartbeat(in_session(10, 700), leader_end=10)
    assert (after.last_caught_up_ms, after.last_fetch_ms) == (700, 700)


@pytest.mark.rule("fetch-session-bound-to-incarnations")
def test_a_follower_behind_the_leaders_end_is_not_caught_up_by_its_session() -> None:
    assert isr.apply_session_heartbeat(in_session(9, 700), leader_end=10).last_caught_up_ms == 100


def test_a_grant_outlives_the_end_of_a_session() -> None:
    granted = in_session(10, 150)._replace(last_caught_up_ms=900)
    assert isr.apply_session_heartbeat(granted, leader_end=10).last_caught_up_ms == 900


def test_a_partition_that_leaves_its_session_was_caught_up_until_then() -> None:
    progress = in_session(10, 700)
    assert progress.session is not None
    after = isr.detach_session(progress, progress.session, leader_end=10)
    assert (after.last_caught_up_ms, after.session) == (700, None)


def test_a_previous_session_does_not_remove_progress_of_a_newer_one() -> None:
    progress = in_session(10, 700)
    assert isr.detach_session(progress, SessionTime(500), leader_end=10) is progress
