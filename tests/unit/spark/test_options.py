"""Options of readers and writers: their meaning, and errors about invalid ones."""

from __future__ import annotations

import pytest

from tidelog.model import Codec, TopicPartition
from tidelog.spark.columns import COLUMNS
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import (
    EARLIEST,
    LATEST,
    READ_OPTIONS,
    Point,
    PointKind,
    ReadOptions,
    WriteOptions,
)

NEEDED = {"bootstrap.servers": "127.0.0.1:7500", "subscribe": "sea"}


def batch(**options: str) -> ReadOptions:
    return ReadOptions.of_batch({**NEEDED, **options})


def stream(**options: str) -> ReadOptions:
    return ReadOptions.of_stream({**NEEDED, **options})


def test_a_batch_reads_everything_by_default() -> None:
    options = batch()
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.skip_damaged


def test_a_stream_begins_at_the_end_by_default() -> None:
    assert stream().starting.everywhere == LATEST


def test_option_names_are_case_insensitive() -> None:
    options = ReadOptions.of_stream(
        {**NEEDED, "maxoffsetspertrigger": "9", "STARTINGOFFSETS": "Earliest"}
    )
    assert options.max_offsets_per_trigger == 9
    assert options.starting.everywhere == EARLIEST


def test_offsets_are_given_by_partition() -> None:
    starting = batch(startingOffsets='{"sea": {"0": 23, "1": -2, "2": -1}}').starting
    assert starting.of(TopicPartition("sea", 0)) == Point(PointKind.OFFSET, 23)
    assert starting.of(TopicPartition("sea", 1)) == EARLIEST
    assert starting.of(TopicPartition("sea", 2)) == LATEST


def test_offsets_must_name_every_partition_that_is_read() -> None:
    starting = batch(startingOffsets='{"sea": {"0": 23}}').starting
    with pytest.raises(OptionError, match="startingOffsets does not name sea/1; name every"):
        starting.of(TopicPartition("sea", 1))


def test_offsets_must_not_name_a_partition_that_is_not_read() -> None:
    starting = batch(startingOffsets='{"sea": {"0": 23, "7": 1}}').starting
    with pytest.raises(OptionError, match="names sea/7, which is not read; there are sea/0"):
        starting.check_named([TopicPartition("sea", 0)])


def test_a_common_time_overrides_times_per_partition_and_these_override_offsets() -> None:
    times = '{"sea": {"0": 1700000000000}}'
    options = batch(startingOffsets="earliest", startingOffsetsByTimestamp=times)
    assert options.starting.of(TopicPartition("sea", 0)) == Point(PointKind.TIME, 1700000000000)
    options = batch(startingTimestamp="5", startingOffsetsByTimestamp=times)
    assert options.starting.everywhere == Point(PointKind.TIME, 5)


def test_headers_are_omitted_by_default() -> None:
    assert [c.name for c in batch().columns] == [c.name for c in COLUMNS if c.name != "headers"]
    assert batch(includeHeaders="true").columns == COLUMNS


def test_columns_are_in_the_requested_order() -> None:
    assert [c.name for c in batch(columns="offset, headers,value").columns] == [
        "offset",
        "headers",
        "value",
    ]


def test_a_pattern_matches_whole_names() -> None:
    options = ReadOptions.of_batch({"bootstrap.servers": "h:1", "subscribePattern": "sea-.*"})
    assert options.topics.matches("sea-1")
    assert not options.topics.matches("red-sea-1")


def test_assigned_partitions_must_exist() -> None:
    options = ReadOptions.of_batch({"bootstrap.servers": "h:1", "assign": '{"sea": [2, 0, 2]}'})
    assert options.topics.partitions("sea", 3) == [0, 2]
    with pytest.raises(OptionError, match=r"partition 2 of topic 'sea', which has 2 \(0 to 1\)"):
        options.topics.check_assigned("sea", 2, {0})
    options.topics.check_assigned("sea", 2, {2})
    assert options.topics.partitions("sea", 2) == [0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"startingOffset": "earliest"},
            "startingOffset does not exist; did you mean startingOffsets",
        ),
        ({"kafka.bootstrap.servers": "h:1"}, "does not exist; use bootstrap.servers instead"),
        ({"zzz": "1"}, "zzz does not exist; there are assign, bootstrap.servers"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; it must be true or false"),
        ({"onDamage": "raise"}, "onDamage is 'raise'; it must be fail or skip"),
        ({"minPartitions": "0"}, "minPartitions is '0'; it must be a whole number, at least 1"),
        ({"maxOffsetsPerTrigger": "1e3"}, "maxOffsetsPerTrigger is '1e3'"),
        ({"bufferBytes": "²"}, "bufferBytes is '²'; it must be a whole number"),
        (
            {"startingOffsets": "first"},
            "startingOffsets is 'first'; it must be earliest, latest, or",
        ),
        (
            {"startingOffsets": "latest"},
            "startingOffsets is 'latest'; it must be earliest, offsets",
        ),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'; it must be latest, or JSON"),
        ({"startingOffsets": '{"sea": {"0": -3}}'}, "-2: the earliest, -1: the latest"),
        ({"startingOffsets": '{"sea": {"a": 1}}'}, "topics, their partitions, and the offset"),
        ({"startingOffsets": '{"sea": [1]}'}, "topics, their partitions, and the offset"),
        ({"startingOffsets": "{}"}, "topics, their partitions, and the offset"),
        ({"startingTimestamp": "-1"}, "a time in milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"sea": {"0": -1}}'}, "for each a time in milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "it must be error or latest"),
        (
            {"startingOffsetsByTimestampStrategy": "latest", "startingOffsets": "earliest"},
            "must be omitted, or set together with startingTimestamp or startingOffsetsByTimestamp",
        ),
        ({"startingOffsetsByTimestampStrategy": "error"}, "it must be omitted, or set together"),
        ({"columns": "value,price"}, "headers; price is none of them"),
        ({"columns": "value,value"}, "each name once; value occurs twice"),
        ({"columns": ","}, "it must be names, separated by commas"),
        ({"columns": "key,value", "includeHeaders": "true"}, "columns must include headers"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for spark.readStream; bound"),
        ({"subscribePattern": "a"}, "subscribe and subscribePattern given; give one"),
    ],
)
def test_an_invalid_option_is_answered_with_valid_values(
    wrong: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError) as raised:
        ReadOptions.of_batch({**NEEDED, **wrong})
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "sea"}, 'bootstrap.servers is missing; set it, as in .option("bootstrap'),
        ({"bootstrap.servers": "h:1"}, "no topics given; give one of the options subscribe"),
        ({"bootstrap.servers": "h:1", "subscribePattern": "("}, "a regular expression"),
        ({"bootstrap.servers": "h:1", "assign": '{"sea": []}'}, "each topic with its partitions"),
    ],
)
def test_a_missing_option_is_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        ReadOptions.of_batch(given)
    assert message in raised.value.message


def test_a_stream_rejects_an_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for spark"):
        stream(endingOffsets="latest")


def test_every_read_option_is_documented_once() -> None:
    assert len(set(READ_OPTIONS)) == len(READ_OPTIONS)


def test_a_writer_ignores_options_that_spark_adds() -> None:
    options = WriteOptions.of(
        {
            "bootstrap.servers": "h:1",
            "topic": "sea",
            "checkpointLocation": "/c",
            "compression": "ZSTD",
        }
    )
    assert (options.topic, options.codec) == ("sea", Codec.ZSTD)


def test_a_writer_rejects_invalid_options() -> None:
    with pytest.raises(OptionError, match="compression is 'brotli'; it must be one of none, gzip"):
        WriteOptions.of({"bootstrap.servers": "h:1", "compression": "brotli"})
    with pytest.raises(OptionError, match="subscribe does not exist"):
        WriteOptions.of({"bootstrap.servers": "h:1", "subscribe": "sea"})
