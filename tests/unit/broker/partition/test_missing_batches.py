"""A follower gets the batches that it cannot read from its leader, and keeps those behind them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelog.batch import is_damaged
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH, Batch
from tidelog_broker.log.log import Log
from tidelog_broker.partition.exchange import FetchAnswer
from tidelog_broker.partition.missing_batches import (
    MAX_PARTIAL_ANSWERS,
    Answer,
    MissingBatches,
    Range,
)
from tidelog_broker.partition.partition import Partition
from unit.broker.fake_log import NAME, TOPIC_ID, Notes, epoch_of, state
from unit.broker.log.builders import batch_at, batches_from, log_of, read_clean_logs
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.log.test_live_quarantine import CONFIG, FRAME, flip, seal, unreadable

COUNT = 5
LED = state(leader=2, replicas=(1, 2), isr=(2,), min_isr=1)


def damaged_log(*batches: int, epochs: Sequence[int] = (1,) * COUNT) -> Log:
    disk = MemoryDisk()
    log = log_of(disk, [batch_at(n, epoch=epoch) for n, epoch in enumerate(epochs)], CONFIG)
    for batch in batches:
        flip(disk, batch * FRAME + 10)
    seal(log)
    return log


class Follower:
    """Broker 1 follows broker 2 with a log in which some ranges are unreadable."""

    def __init__(self, log: Log, *ranges: Range) -> None:
        self.log = log
        self.answers: list[tuple[Range, Answer]] = []
        self.partition = Partition(NAME, TOPIC_ID, 1, log, high_watermark=0, listener=Notes())
        self.partition.take(LED, 1, broker_epoch=epoch_of(1), now_ms=0)
        self.partition.missing = MissingBatches(
            LED.leader_epoch, ranges, lambda found, answer: self.answers.append((found, answer))
        )

    @property
    def asks_for(self) -> tuple[int, int]:
        position = self.partition.fetch_position()
        return position.fetch_offset, position.last_fetched_epoch

    def gets(self, *batches: Batch, high_watermark: int = COUNT) -> bool:
        asked = self.partition.fetch_position()
        return self.partition.follow(
            asked, FetchAnswer(high_watermark, 0, LED.leader_epoch, batches)
        )


@pytest.mark.rule("damage-costs-only-its-batch")
def test_unreadable_ranges_are_requested_one_by_one_before_new_data() -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    assert follower.asks_for == (1, 1)
    follower.gets(batch_at(1), batch_at(2))
    assert follower.asks_for == (3, 1)
    follower.gets(batch_at(3))
    assert follower.asks_for == (COUNT, 1)
    assert follower.answers == [((1, 2), Answer.RESTORED), ((3, 4), Answer.RESTORED)]
    assert read_clean_logs(follower.log) == batches_from(0, COUNT)
    follower.gets(batch_at(COUNT))
    assert follower.log.log_end_offset == COUNT + 1


def test_one_answer_may_bring_all_ranges() -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    follower.gets(*batches_from(1, COUNT - 1))
    assert follower.asks_for == (COUNT, 1)
    assert read_clean_logs(follower.log) == batches_from(0, COUNT)


def test_a_range_of_several_batches_is_requested_until_it_is_complete() -> None:
    follower = Follower(damaged_log(1, 2), (1, 3))
    follower.gets(batch_at(1))
    assert follower.asks_for == (1, 1)
    follower.gets(batch_at(1), batch_at(2))
    assert read_clean_logs(follower.log) == batches_from(0, COUNT)


def test_where_the_leaders_log_ends_within_a_range_the_log_is_cut() -> None:
    """Nothing behind the previous range counts: the received batches are not in its log."""
    follower = Follower(damaged_log(3, 4), (3, 5))
    for _ in range(MAX_PARTIAL_ANSWERS):
        assert follower.asks_for == (3, 1)
        follower.gets(batch_at(3))
    assert (follower.log.log_end_offset, follower.asks_for) == (3, (3, 1))
    follower.gets(batch_at(3))
    assert follower.asks_for == (4, 1)


def test_a_range_that_the_leader_cannot_read_stays_unreadable_and_costs_nothing_else() -> None:
    follower = Follower(damaged_log(1), (1, 2))
    follower.gets(*read_clean_logs(damaged_log(1))[1:])
    assert follower.answers == [((1, 2), Answer.UNREADABLE)]
    assert follower.asks_for == (COUNT, 1)
    assert unreadable(follower.log) == [1]


def test_a_range_that_the_leader_cannot_read_and_this_follower_can_stays() -> None:
    follower = Follower(damaged_log(1), (1, 2))
    follower.gets(*read_clean_logs(damaged_log(3))[1:])
    assert read_clean_logs(follower.log) == batches_from(0, COUNT)


@pytest.mark.parametrize("other", [batch_at(1, epoch=2), batch_at(1, size=101)])
def test_where_the_leader_has_another_batch_the_log_is_cut(other: Batch) -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    follower.gets(other)
    assert follower.answers == [((1, 2), Answer.ANOTHER)]
    assert (follower.log.log_end_offset, follower.asks_for) == (1, (1, 1))
    follower.gets(other)
    assert follower.log.log_end_offset == 2


def test_only_data_known_to_agree_counts_as_committed() -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    follower.gets(batch_at(1))
    assert follower.partition.high_watermark == 1
    follower.gets(batch_at(3))
    follower.gets()
    assert follower.partition.high_watermark == COUNT


def test_a_range_at_the_first_batch_of_an_epoch_has_the_previous_epoch() -> None:
    log = damaged_log(2, epochs=(1, 1, 2, 2, 2))
    assert Follower(log, (2, 3)).asks_for == (2, 1)
    assert Follower(damaged_log(0), (0, 1)).asks_for == (0, NO_EPOCH)


def test_a_range_deleted_by_the_leader_is_not_requested_and_nothing_is_dropped() -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    asked = follower.partition.fetch_position()
    assert not follower.partition.restart_at(asked, 2)
    assert follower.asks_for == (3, 1)
    assert follower.log.log_start_offset == 0


def test_a_range_that_was_cut_is_not_requested() -> None:
    follower = Follower(damaged_log(1, 3), (1, 2), (3, 4))
    follower.log.truncate_to(1)
    assert follower.asks_for == (1, 1)
    follower.gets(batch_at(1))
    assert read_clean_logs(follower.log) == batches_from(0, 2)


def test_a_batch_damaged_in_transit_is_rejected() -> None:
    follower = Follower(damaged_log(1), (1, 2))
    with pytest.raises(TidelogError) as rejected:
        follower.gets(batch_at(1)._replace(records=bytes(100)))
    assert rejected.value.code is ErrorCode.CORRUPT_BATCH
    assert unreadable(follower.log) == [1]


def test_a_log_that_ends_within_an_unreadable_range_of_the_leader_keeps_its_data() -> None:
    log = log_of(MemoryDisk(), batches_from(0, 3), CONFIG)
    follower = Follower(log)
    (unreadable_here,) = [b for b in read_clean_logs(damaged_log(2, 3)) if is_damaged(b.header)]
    assert (unreadable_here.header.base_offset, unreadable_here.header.next_offset) == (2, 4)
    follower.gets(unreadable_here, batch_at(4))
    assert read_clean_logs(log)[:3] == batches_from(0, 3)
    assert (unreadable(log), log.log_end_offset) == ([3], 5)
