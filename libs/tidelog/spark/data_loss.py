"""Decides whether a stream can continue where it ended, and what is lost if it cannot. Pure
functions.

Only certain losses are reported: an answer that may come from a broker that is behind is no
evidence (rule `zombie-resets-no-client`), and the request is repeated
(`behind`, `to_verify`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, OffsetOutOfRangeError
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.spark.stream_offsets import ReadTo, StreamOffsets, TopicOffsets


class PartitionNow(NamedTuple):
    """A partition as its leader of `leader_epoch` describes it.

    - `end`: the offset after the last committed record.
    - `create_revision`: greater if the partition was removed and added again.
    """

    start: int
    end: int
    leader_epoch: int
    create_revision: int = 0


class TopicNow(NamedTuple):
    """A topic now. `as_of`: the lowest metadata store revision on which the answer rests."""

    topic_id: str
    create_revision: int
    partitions: Mapping[int, PartitionNow]
    as_of: int = 0


# The state of each topic, by name.
ClusterNow = Mapping[str, TopicNow]


class Truncation(NamedTuple):
    """A log that was truncated below what was read.

    From some offset at or above `offset`, the log has other records than were read, or none.
    Records there are of a later leader epoch than the last one that was read.
    """

    offset: int
    leader_epoch: int
    # The leader epoch of the record before `offset`.
    epoch_before: int = NO_EPOCH


class DataLossError(OffsetOutOfRangeError):
    """A stream or batch cannot read all of its records. `losses`: one sentence for each loss."""

    def __init__(self, losses: Iterable[str]) -> None:
        self.losses = tuple(losses)
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            "; ".join(self.losses)
            + ". To continue with the remaining records, set failOnDataLoss to false; "
            "to read everything again, begin with a new checkpointLocation",
        )


class Continuation(NamedTuple):
    """Where a stream continues. `losses`: one sentence for each loss."""

    offsets: StreamOffsets
    losses: tuple[str, ...]


def behind(read: StreamOffsets, now: ClusterNow) -> list[str]:
    """Returns the topics for which a broker's answer is older than `read`: it describes a
    predecessor of the topic, or fewer partitions."""
    return [
        topic
        for topic, current in now.items()
        if topic in read
        and (current.create_revision, current.as_of)
        < (read[topic].create_revision, read[topic].as_of)
    ]


def to_verify(read: StreamOffsets, now: ClusterNow) -> dict[TopicPartition, ReadTo]:
    """Returns the partitions whose log a new leader may have truncated below what was read.

    No record is truncated within one leader epoch. A leader of an older epoch than the last
    record's is a zombie, and its answer is no evidence.
    """
    return {
        TopicPartition(topic, partition): at
        for topic, of_topic in read.items()
        if topic in now and now[topic].topic_id == of_topic.topic_id
        for partition, at in of_topic.partitions.items()
        if (current := now[topic].partitions.get(partition)) is not None
        and not _is_newer(current, of_topic)
        and at.leader_epoch != NO_EPOCH
        and current.leader_epoch > at.leader_epoch
        and current.start < at.offset
    }


def continuation(
    read: StreamOffsets, now: ClusterNow, truncated: Mapping[TopicPartition, Truncation]
) -> Continuation:
    """Returns where the stream continues. `truncated`: the truncations found among `to_verify`. New
    topics and partitions begin at their start."""
    offsets: dict[str, TopicOffsets] = {}
    losses: list[str] = []
    for topic, current in sorted(now.items()):
        known = read.get(topic)
        if known is not None and known.topic_id != current.topic_id:
            losses.append(_recreated(topic, known, current))
            known = None
        partitions = {}
        for partition, state in sorted(current.partitions.items()):
            name = TopicPartition(topic, partition)
            at = None if known is None else known.partitions.get(partition)
            is_newer = known is not None and _is_newer(state, known)
            if at is not None and is_newer:
                losses.append(_added_again(name, at))
                at = ReadTo(state.start)
            elif at is None:
                # No loss for a partition that existed before: it was not chosen then.
                if is_newer and state.start > 0:
                    losses.append(_expired(name, 0, state.start))
                at = ReadTo(state.start)
            elif name in truncated:
                losses.append(_truncated(name, at, truncated[name]))
                at = ReadTo(truncated[name].offset, truncated[name].epoch_before)
            elif at.offset < state.start:
                losses.append(_expired(name, at.offset, state.start))
                at = ReadTo(state.start)
            partitions[partition] = at
        losses += _removed(topic, known, current)
        offsets[topic] = TopicOffsets(
            current.topic_id, current.create_revision, partitions, current.as_of
        )
    losses += [_deleted(topic, read[topic]) for topic in sorted(set(read) - set(now))]
    return Continuation(offsets, tuple(losses))


def _is_newer(current: PartitionNow, known: TopicOffsets) -> bool:
    """Whether the partition was created after `known` was looked up."""
    return current.create_revision > known.as_of


def _recreated(topic: str, known: TopicOffsets, current: TopicNow) -> str:
    return (
        f"topic {topic!r} was deleted and created again (its id was {known.topic_id}, and is "
        f"{current.topic_id}): records of the previous topic from {_offsets_text(known)} "
        "on can no longer be read; the new topic is read from its start"
    )


def _deleted(topic: str, known: TopicOffsets) -> str:
    return (
        f"topic {topic!r} (id {known.topic_id}) was deleted: records from "
        f"{_offsets_text(known)} on can no longer be read"
    )


def _removed(topic: str, known: TopicOffsets | None, current: TopicNow) -> list[str]:
    partitions = {} if known is None else known.partitions
    return [
        f"{TopicPartition(topic, partition)} was removed: records from offset {at.offset} on can "
        "no longer be read"
        for partition, at in sorted(partitions.items())
        if partition not in current.partitions
    ]


def _added_again(name: TopicPartition, at: ReadTo) -> str:
    return (
        f"{name} was removed and added again: records of the previous partition from offset "
        f"{at.offset} on can no longer be read; the new partition is read from its start"
    )


def _expired(name: TopicPartition, first: int, start: int) -> str:
    return (
        f"offsets {first} to {start - 1} of {name} were deleted before they were read (by its "
        f"retention): its log starts at {start}"
    )


def _truncated(name: TopicPartition, at: ReadTo, found: Truncation) -> str:
    return (
        f"the log of {name} was truncated by an unclean election: at least the records that were "
        f"read at offsets {found.offset} to {at.offset - 1} (the last in leader epoch "
        f"{at.leader_epoch}) are not in the log of the leader of epoch {found.leader_epoch}, which "
        "has other records there, or none"
    )


def _offsets_text(known: TopicOffsets) -> str:
    return "offsets " + ", ".join(
        f"{partition}: {at.offset}" for partition, at in sorted(known.partitions.items())
    )
