"""Where a task of a micro-batch continues."""

from __future__ import annotations

import pytest

from tidelog.client import ProducerPosition
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.spark.sink_positions import SinkPosition, SinkTask, position_of

SEA = TopicPartition("sea", 0)
TASK = SinkTask("query", 7, 2)


def producer_position(epoch: int, last: int, start: int | None) -> ProducerPosition:
    return ProducerPosition(1 << 62, epoch, last, 1, start)


def test_each_task_of_a_query_is_a_separate_producer() -> None:
    assert TASK.producer_name == "spark.query.2"


def test_a_task_that_never_wrote_begins_at_0() -> None:
    assert position_of(SEA, None, TASK) == SinkPosition(0, 0)


def test_a_task_continues_after_the_previous_micro_batch() -> None:
    assert position_of(SEA, producer_position(6, 41, 30), TASK) == SinkPosition(42, 0)


def test_records_of_an_earlier_attempt_are_known() -> None:
    assert position_of(SEA, producer_position(7, 41, 30), TASK) == SinkPosition(42, 12)


def test_sequences_wrap_around() -> None:
    assert position_of(SEA, producer_position(7, 4, 2**31 - 5), TASK) == SinkPosition(5, 10)


def test_an_attempt_without_records_in_a_partition_has_only_fenced() -> None:
    assert position_of(SEA, producer_position(7, 41, 42), TASK) == SinkPosition(42, 0)
    assert position_of(SEA, producer_position(7, -1, 0), TASK) == SinkPosition(0, 0)


def test_an_attempt_is_fenced_where_a_later_micro_batch_has_written() -> None:
    with pytest.raises(
        TidelogError, match=r"a later batch than 7: .*\(batch 8 has written to sea/0"
    ) as no:
        position_of(SEA, producer_position(8, 41, 30), TASK)
    assert no.value.code is ErrorCode.FENCED_PRODUCER_EPOCH


def test_an_unknown_position_is_not_guessed() -> None:
    with pytest.raises(TidelogError, match="runs an older release and cannot report"):
        position_of(SEA, producer_position(7, 41, None), TASK)
