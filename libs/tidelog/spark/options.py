"""The options of readers and writers. No I/O.

Names are those of Spark's source for Kafka, if it has the option.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from tidelog.model import Codec, TopicPartition
from tidelog.spark.columns import COLUMNS, Column, chosen_columns
from tidelog.spark.option_values import OptionError, OptionTexts, rejected
from tidelog.spark.stream_offsets import Split, StreamOffsets

BOOTSTRAP = "bootstrap.servers"
DEFAULT_BUFFER_BYTES = 16 << 20

_TOPICS = ("subscribe", "subscribePattern", "assign")
_STARTING_BY_TIME = ("startingTimestamp", "startingOffsetsByTimestamp")
_STARTING = (*_STARTING_BY_TIME, "startingOffsets")
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
READ_OPTIONS = (
    BOOTSTRAP,
    *_TOPICS,
    *_STARTING,
    *_ENDING,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "onDamage",
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "bufferBytes",
)
WRITE_OPTIONS = (BOOTSTRAP, "topic", "compression")
# Options that Spark passes together with the user's.
SPARK_OPTIONS = ("checkpointLocation", "queryName", "outputMode")
_BY_PARTITION = (
    'JSON such as {"sea": {"0": 23, "1": -2}}: topics, their partitions, and the offset of each '
    "(-2: the earliest, -1: the latest)"
)
_TIMES = (
    'JSON such as {"sea": {"0": 1700000000000}}: topics, their partitions, and for each a time in '
    "milliseconds since 1970 (UTC)"
)


class PointKind(enum.Enum):
    EARLIEST = enum.auto()
    LATEST = enum.auto()
    OFFSET = enum.auto()
    # The first record at or after a time.
    TIME = enum.auto()


class Point(NamedTuple):
    """A place in a log. `number`: an offset, or milliseconds since 1970 (UTC)."""

    kind: PointKind
    number: int = 0


EARLIEST = Point(PointKind.EARLIEST)
LATEST = Point(PointKind.LATEST)
_NAMED = {"earliest": EARLIEST, "latest": LATEST}
_NUMBERED = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where reading begins, or ends, in each partition.

    - `option`: the name of the option, for messages.
    - `by_partition`: if set, it must name every partition, and `everywhere` is not used.
    """

    option: str
    everywhere: Point = EARLIEST
    by_partition: Mapping[TopicPartition, Point] | None = None

    def of(self, partition: TopicPartition) -> Point:
        """Raises `OptionError` if `by_partition` does not name the partition."""
        if self.by_partition is None:
            return self.everywhere
        if partition not in self.by_partition:
            raise OptionError(
                f"option {self.option} does not name {partition}; name every partition that is "
                "read, with -2 for the earliest and -1 for the latest offset"
            )
        return self.by_partition[partition]

    def check_named(self, partitions: Sequence[TopicPartition]) -> None:
        """Raises `OptionError` if `by_partition` names a partition that is not read."""
        unread = sorted(set(self.by_partition or ()) - set(partitions))
        if unread:
            raise OptionError(
                f"option {self.option} names {unread[0]}, which is not read; there are "
                f"{', '.join(map(str, partitions)) or 'no partitions'}"
            )


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics to read; one of the three is set. `pattern` must match a whole name."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """Topics that must exist."""
        return self.names or tuple(self.assigned or ())

    def matches(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.named

    def still_read(self, read: StreamOffsets) -> StreamOffsets:
        """Returns `read` without what the options of a continued query no longer name."""
        return {
            topic: of_topic
            if self.assigned is None
            else of_topic._replace(
                partitions={
                    partition: at
                    for partition, at in of_topic.partitions.items()
                    if partition in self.assigned[topic]
                }
            )
            for topic, of_topic in read.items()
            if self.matches(topic)
        }

    def partitions(self, topic: str, count: int) -> list[int]:
        """Returns the partitions to read of a topic that has `count` partitions."""
        if self.assigned is None:
            return list(range(count))
        return [partition for partition in self.assigned[topic] if partition < count]

    def check_assigned(self, topic: str, count: int, read: Collection[int] = ()) -> None:
        """Raises `OptionError` for an assigned partition that neither exists nor is in `read`."""
        for partition in () if self.assigned is None else self.assigned[topic]:
            if partition >= count and partition not in read:
                raise OptionError(
                    f"option assign names partition {partition} of topic {topic!r}, which has "
                    f"{count} (0 to {count - 1})"
                )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader.

    - `fail_on_data_loss`: fail if records were lost before they were read; otherwise log a warning.
    - `skip_damaged`: leave out records that were damaged on the last disk that held them;
      otherwise they are an error.
    - `latest_if_none`: begin at the end if all records are earlier than the starting time;
      otherwise that is an error.
    - `buffer_bytes`: bytes that a task fetches ahead.
    """

    bootstrap: str
    topics: TopicChoice
    starting: Boundary
    ending: Boundary
    columns: tuple[Column, ...]
    fail_on_data_loss: bool
    skip_damaged: bool
    latest_if_none: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    buffer_bytes: int

    @property
    def split(self) -> Split:
        return Split(self.min_partitions, self.max_records_per_partition)

    @classmethod
    def of_batch(cls, given: Mapping[str, str]) -> Self:
        """Raises `OptionError`, as the other constructors do."""
        options = cls.of_either(given, EARLIEST)
        if options.starting.everywhere is LATEST and options.starting.by_partition is None:
            raise rejected(
                options.starting.option,
                "latest",
                "earliest, offsets or a time: a batch ends at the latest offset as of its start",
            )
        if options.max_offsets_per_trigger is not None:
            raise OptionError(
                "option maxOffsetsPerTrigger is for spark.readStream; bound a batch by its "
                "endingOffsets"
            )
        return options

    @classmethod
    def of_stream(cls, given: Mapping[str, str]) -> Self:
        options = cls.of_either(given, LATEST)
        if ending := OptionTexts(given, READ_OPTIONS).given(*_ENDING):
            raise OptionError(
                f"option {ending[0]} is for spark.read; a stream has no end: omit it, or use "
                "trigger(availableNow=True)"
            )
        return options

    @classmethod
    def of_either(cls, given: Mapping[str, str], starting: Point = EARLIEST) -> Self:
        """Parses options before it is known whether a batch or a stream reads. `starting` is the
        default start."""
        texts = OptionTexts(given, READ_OPTIONS)
        begins = _boundary(texts, _STARTING, Boundary("startingOffsets", starting))
        return cls(
            texts.required(BOOTSTRAP, "127.0.0.1:7500"),
            _topic_choice(texts),
            begins,
            _boundary(texts, _ENDING, Boundary("endingOffsets", LATEST)),
            _columns(texts),
            texts.truth("failOnDataLoss", True),
            _skip_damaged(texts),
            _latest_if_none(texts, begins),
            texts.count("minPartitions"),
            texts.count("maxRecordsPerPartition"),
            texts.count("maxOffsetsPerTrigger"),
            texts.count("bufferBytes") or DEFAULT_BUFFER_BYTES,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer. `topic`: the topic of all rows, or None if each row names its
    own."""

    bootstrap: str
    topic: str | None
    codec: Codec

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Raises `OptionError`."""
        texts = OptionTexts(given, WRITE_OPTIONS, SPARK_OPTIONS)
        return cls(
            texts.required(BOOTSTRAP, "127.0.0.1:7500"),
            texts.text("topic"),
            _codec(texts),
        )


def _topic_choice(texts: OptionTexts) -> TopicChoice:
    given = texts.given(*_TOPICS)
    if len(given) != 1:
        raise OptionError(
            f"{' and '.join(given) or 'no topics'} given; give one of the options subscribe "
            '("sea,land"), subscribePattern ("sea-.*") and assign (\'{"sea": [0, 1]}\')'
        )
    return TopicChoice(
        texts.names("subscribe") or (),
        texts.pattern("subscribePattern"),
        texts.partitions_by_topic("assign"),
    )


def _boundary(texts: OptionTexts, names: tuple[str, str, str], default: Boundary) -> Boundary:
    """Returns the first of the three options that is given, as Spark's source for Kafka does."""
    time, times, offsets = names
    if (time_ms := texts.time_ms(time)) is not None:
        return Boundary(time, Point(PointKind.TIME, time_ms))
    if (numbers := texts.numbers_by_partition(times, 0, _TIMES)) is not None:
        points = {TopicPartition(*p): Point(PointKind.TIME, ms) for p, ms in numbers.items()}
        return Boundary(times, by_partition=points)
    text = texts.text(offsets)
    if text is None:
        return default
    if text.strip().lower() in _NAMED:
        point = _NAMED[text.strip().lower()]
        if point is EARLIEST and offsets == "endingOffsets":
            raise rejected(offsets, text, f"latest, or {_BY_PARTITION}")
        return Boundary(offsets, point)
    expected = f"earliest, latest, or {_BY_PARTITION}"
    numbers = texts.numbers_by_partition(offsets, -2, expected)
    assert numbers is not None, "the option has a text"
    return Boundary(
        offsets,
        by_partition={
            TopicPartition(*partition): _NUMBERED.get(number, Point(PointKind.OFFSET, number))
            for partition, number in numbers.items()
        },
    )


def _columns(texts: OptionTexts) -> tuple[Column, ...]:
    headers = texts.truth("includeHeaders", False)
    names = texts.names("columns")
    if names is None:
        return tuple(c for c in COLUMNS if headers or c.name != "headers")
    unknown = sorted(set(names) - {column.name for column in COLUMNS})
    if unknown:
        expected = f"of {', '.join(column.name for column in COLUMNS)}"
        raise rejected("columns", ",".join(names), f"{expected}; {unknown[0]} is none of them")
    if headers and "headers" not in names:
        raise rejected("includeHeaders", "true", "omitted, or columns must include headers")
    return chosen_columns(names)


def _skip_damaged(texts: OptionTexts) -> bool:
    text = texts.text("onDamage") or "fail"
    if text.strip().lower() not in ("fail", "skip"):
        raise rejected("onDamage", text, "fail or skip")
    return text.strip().lower() == "skip"


def _latest_if_none(texts: OptionTexts, starting: Boundary) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = texts.text(name)
    if text is None:
        return False
    if text.strip().lower() not in ("error", "latest"):
        raise rejected(name, text, "error or latest")
    if starting.option not in _STARTING_BY_TIME:
        raise rejected(
            name, text, f"omitted, or set together with {' or '.join(_STARTING_BY_TIME)}"
        )
    return text.strip().lower() == "latest"


def _codec(texts: OptionTexts) -> Codec:
    text = (texts.text("compression") or "none").strip().upper()
    if text not in Codec.__members__:
        raise rejected(
            "compression", text.lower(), f"one of {', '.join(c.name.lower() for c in Codec)}"
        )
    return Codec[text]
