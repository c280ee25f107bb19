import json

import pytest

from tidelog.errors import TidelogError
from tidelog.spark.stream_offsets import (
    ReadTo,
    Split,
    StreamOffsets,
    TopicOffsets,
    to_value,
    with_begins,
)
from tidelog_pipeline.archive.core.planned_offsets import (
    Planned,
    ends_of,
    offsets_of,
    planned_ranges,
)
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.core.staged_files import StagedRows, read_ranges


def offsets(
    *ends: int, topic_id: str = "id-1", begun: dict[int, int] | None = None
) -> StreamOffsets:
    """`begun`: the start of the micro-batch in partitions that the previous one does not have."""
    positions = {n: ReadTo(end, 2) for n, end in enumerate(ends)}
    begins = {n: ReadTo(first) for n, first in (begun or {}).items()}
    return {"sea": TopicOffsets(topic_id, 7, positions, 9, begins)}


def log(partition: int, topic_id: str = "id-1") -> LogId:
    return LogId("sea", topic_id, partition)


def test_offsets_written_by_spark_are_read() -> None:
    written = offsets(10, 20, begun={1: 5})
    value = to_value(written, Split(None, 1_000))
    text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(value)}'
    assert offsets_of(text.encode(), "offsets/3") == written


@pytest.mark.parametrize("text", [b"", b"v2\n{}\n{}", b"v1\n{}\n{}\n{}"])
def test_offsets_of_another_form_are_reported(text: bytes) -> None:
    with pytest.raises(TidelogError, match="offsets/3 is no list of offsets"):
        offsets_of(text, "offsets/3")


@pytest.mark.rule("archive-plans-taken-from-checkpoint")
def test_a_micro_batch_begins_where_the_previous_one_ended() -> None:
    assert planned_ranges(offsets(10, 20), offsets(15, 20), {}) == {log(0): Planned(10, 15)}


def test_the_first_micro_batch_begins_where_the_query_began() -> None:
    began = {log(0): 3}
    assert planned_ranges(None, offsets(10, 20), began) == {
        log(0): Planned(3, 10),
        log(1): Planned(None, 20),
    }


def test_the_first_micro_batch_reads_a_new_log_from_its_recorded_start() -> None:
    assert planned_ranges(None, offsets(10, 20, begun={1: 4}), {log(0): 3}) == {
        log(0): Planned(3, 10),
        log(1): Planned(4, 20),
    }


def test_a_repeated_first_micro_batch_of_a_log_with_a_later_start_begins_at_its_rows() -> None:
    assert planned_ranges(None, offsets(10), {log(0): 12}) == {log(0): Planned(None, 10)}


@pytest.mark.rule("archive-plans-taken-from-checkpoint")
def test_a_new_log_is_read_from_the_start_recorded_by_its_micro_batch() -> None:
    assert planned_ranges(offsets(10), offsets(10, 5, begun={1: 0}), {}) == {log(1): Planned(0, 5)}
    again = offsets(4, topic_id="id-2", begun={0: 1})
    assert planned_ranges(offsets(10), again, {log(0): 0}) == {log(0, "id-2"): Planned(1, 4)}


def test_an_empty_new_log_is_not_read() -> None:
    assert planned_ranges(offsets(10), offsets(10, 0), {}) == {}


def test_a_truncated_log_is_read_from_the_truncation() -> None:
    assert planned_ranges(offsets(10), offsets(8, begun={0: 6}), {}) == {log(0): Planned(6, 8)}
    assert planned_ranges(offsets(10), offsets(8, begun={0: 8}), {}) == {}


def test_a_log_without_its_beginning_is_read_from_its_start() -> None:
    assert planned_ranges(offsets(10), offsets(30, begun={0: 15}), {}) == {log(0): Planned(15, 30)}


@pytest.mark.rule("archive-plans-taken-from-checkpoint")
def test_rows_read_again_after_a_truncation_imply_their_range() -> None:
    grown_again = StagedRows("f", log(0), 4, 10, 0, 40, 49)
    read = read_ranges([grown_again], ends_of(offsets(50, 20)))
    assert [(one.log, one.offsets) for one in read] == [(log(0), Span(40, 50))]


def test_a_micro_batch_is_planned_like_a_read_of_the_stream() -> None:
    """This is what the data source writes into a checkpoint for a partition added since."""
    read, positions = offsets(10), offsets(10, 2)
    end = with_begins(offsets(10, 5), read, positions)
    assert planned_ranges(read, end, {}) == {log(1): Planned(2, 5)}
