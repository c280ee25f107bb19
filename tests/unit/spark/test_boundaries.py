"""The start and end of a read."""

from __future__ import annotations

import pytest

from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.spark.boundaries import check_order, ends, requested_times, starts
from tidelog.spark.data_loss import PartitionNow, TopicNow
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import ReadOptions

SEA = TopicPartition("sea", 0)
NOW = {"sea": TopicNow("id", 1, {0: PartitionNow(10, 20, 1)})}


def options(**given: str) -> ReadOptions:
    return ReadOptions.of_batch({"bootstrap.servers": "h:1", "subscribe": "sea", **given})


def at(offset: int) -> str:
    return f'{{"sea": {{"0": {offset}}}}}'


def test_all_records_are_read_by_default() -> None:
    assert (starts(options(), NOW, {}), ends(options(), NOW, {})) == ({SEA: 10}, {SEA: 20})


@pytest.mark.parametrize(("given", "offset"), [(-2, 10), (-1, 20), (10, 10), (15, 15), (20, 20)])
def test_offsets_are_taken_as_they_are(given: int, offset: int) -> None:
    assert starts(options(startingOffsets=at(given)), NOW, {}) == {SEA: offset}
    assert ends(options(endingOffsets=at(given)), NOW, {}) == {SEA: offset}


@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_out_of_range_is_reported_with_the_valid_range(offset: int) -> None:
    with pytest.raises(OptionError, match=f"startingOffsets: offset {offset} .* must be 10 to 20"):
        starts(options(startingOffsets=at(offset)), NOW, {})
    with pytest.raises(OptionError, match=f"endingOffsets: offset {offset} .* must be 10 to 20"):
        ends(options(endingOffsets=at(offset)), NOW, {})


def test_deleted_offsets_may_be_skipped() -> None:
    lenient = options(startingOffsets=at(9), failOnDataLoss="false")
    assert starts(lenient, NOW, {}) == {SEA: 10}


def test_a_time_is_resolved_to_an_offset() -> None:
    timed = options(startingTimestamp="5", endingTimestamp="9")
    assert requested_times(timed.starting, [SEA]) == {5: [SEA]}
    assert starts(timed, NOW, {SEA: 13}) == {SEA: 13}
    assert ends(timed, NOW, {SEA: 17}) == {SEA: 17}


def test_an_end_time_after_all_records_is_the_log_end() -> None:
    assert ends(options(endingTimestamp="9"), NOW, {SEA: NO_OFFSET}) == {SEA: 20}


def test_a_start_time_after_all_records_is_an_error_unless_allowed() -> None:
    with pytest.raises(OptionError, match="sea/0 has no record of time 5 or later; give"):
        starts(options(startingTimestamp="5"), NOW, {SEA: NO_OFFSET})
    lenient = options(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert starts(lenient, NOW, {SEA: NO_OFFSET}) == {SEA: 20}


def test_an_end_before_the_start_is_reported() -> None:
    crossed = options(startingOffsets=at(15), endingOffsets=at(12))
    with pytest.raises(OptionError, match=r"read from offset 15 .startingOffsets. to 12"):
        check_order(crossed, starts(crossed, NOW, {}), ends(crossed, NOW, {}))


def test_an_end_time_before_the_start_time_reads_nothing() -> None:
    crossed = options(startingTimestamp="9", endingTimestamp="5")
    check_order(crossed, {SEA: 15}, {SEA: 12})
