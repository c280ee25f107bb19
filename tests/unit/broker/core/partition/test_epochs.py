from itertools import takewhile

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import NO_EPOCH, EpochEnd
from tidelog_broker.core.partition.epochs import divergence, fence, truncation_point
from unit.broker.fake_log import FakeLog


def reconcile(follower: FakeLog, leader: FakeLog) -> int:
    """Request and cut until the logs agree; returns the number of cuts."""
    cuts = 0
    while True:
        diverging = divergence(
            last_fetched_epoch=follower.latest_epoch,
            fetch_offset=follower.log_end_offset,
            log_start=leader.log_start_offset,
            epoch_end=leader.epoch_end,
        )
        if diverging is None:
            return cuts
        point = truncation_point(
            diverging,
            log_start=follower.log_start_offset,
            log_end=follower.log_end_offset,
            epoch_end=follower.epoch_end,
        )
        assert point < follower.log_end_offset, "a divergence must always cut something"
        if point < follower.log_start_offset:
            follower.reset_to(point)
        else:
            follower.truncate_to(point)
        cuts += 1


def test_an_older_epoch_is_fenced() -> None:
    assert fence(4, 5) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_newer_epoch_is_unknown() -> None:
    assert fence(6, 5) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_the_same_epoch_and_none_pass() -> None:
    assert fence(5, 5) is None
    assert fence(NO_EPOCH, 5) is None


def test_logs_that_agree_do_not_diverge() -> None:
    assert reconcile(FakeLog([0, 0, 1]), FakeLog([0, 0, 1, 1, 2])) == 0


def test_an_empty_log_agrees_with_every_other() -> None:
    assert reconcile(FakeLog(), FakeLog([3, 4])) == 0


@pytest.mark.rule("unanswered-writes-are-atomic")
def test_a_tail_that_the_leader_never_had_is_cut() -> None:
    follower = FakeLog([0, 0, 0, 0])
    reconcile(follower, FakeLog([0, 0, 1, 1]))
    assert follower.epochs == [0, 0]


def test_a_follower_keeps_what_lies_above_its_high_watermark_and_agrees() -> None:
    """KIP-101: a cut at the high watermark would lose a committed record."""
    follower = FakeLog([0, 0])
    assert reconcile(follower, FakeLog([0, 0])) == 0
    assert follower.epochs == [0, 0]


@pytest.mark.rule("reconciliation-repeats-until-epochs-agree")
def test_two_quick_failovers_take_two_rounds() -> None:
    """KIP-279: the leader does not know the follower's last epoch."""
    follower = FakeLog([0, 1, 1, 3])
    assert reconcile(follower, FakeLog([0, 2, 2])) == 2
    assert follower.epochs == [0]


def begin_alike(one: list[int], other: list[int]) -> bool:
    """One leader begins an epoch, so all logs with that epoch agree on what precedes it."""
    return all(
        one[: one.index(epoch)] == other[: other.index(epoch)] for epoch in {*one} & {*other}
    )


def shared(one: list[int], other: list[int]) -> list[int]:
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [epoch for epoch, _ in alike]


@pytest.mark.rule("logs-reconciled-before-batches")
def test_every_small_pair_of_logs_ends_in_agreement() -> None:
    """All pairs of histories over three epochs: the follower keeps exactly what both logs share."""
    counts = range(4)
    histories = [[0] * a + [1] * b + [2] * c for a in counts for b in counts for c in counts]
    pairs = [(one, other) for one in histories for other in histories if begin_alike(one, other)]
    assert len(pairs) > 400
    for leader_epochs, follower_epochs in pairs:
        follower = FakeLog(follower_epochs)
        reconcile(follower, FakeLog(leader_epochs))
        assert follower.epochs == shared(leader_epochs, follower_epochs)


def test_logs_without_a_shared_epoch_are_cut_below_the_followers_start() -> None:
    point = truncation_point(
        EpochEnd(2, 7), log_start=5, log_end=9, epoch_end=FakeLog([4, 4], start=5).epoch_end
    )
    assert point == 5


def test_a_leader_that_starts_later_returns_its_own_start() -> None:
    assert divergence(
        last_fetched_epoch=1,
        fetch_offset=4,
        log_start=3,
        epoch_end=FakeLog([5], start=3).epoch_end,
    ) == EpochEnd(NO_EPOCH, 3)
