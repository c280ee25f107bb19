"""The offsets of a stream, and their form in Spark's checkpoint. No I/O.

An offset alone does not identify the log that was read. Therefore the topic's id is stored with
it, which a topic created again does not have, and the leader epoch of the record before it: two
logs that have a record of the same epoch at the same offset are equal up to there (rule
`stream-offsets-detect-losses`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_EPOCH

VERSION = 1


class ReadTo(NamedTuple):
    """The next offset, and the leader epoch of the record before it. NO_EPOCH if there is no such
    record, or its epoch is unknown."""

    offset: int
    leader_epoch: int = NO_EPOCH


class TopicOffsets(NamedTuple):
    """The offsets in one topic.

    - `create_revision`: a later topic of the same name has a greater one.
    - `as_of`: the metadata store revision at which the partitions were looked up. Partitions that
      were created later were not known then.
    - `begun`: where the micro-batch that ends here begins, for partitions in which that is not the
      end of the preceding one: new partitions, and those that continued after a loss.
    """

    topic_id: str
    create_revision: int
    partitions: Mapping[int, ReadTo]
    as_of: int = 0
    begun: Mapping[int, ReadTo] = MappingProxyType({})


class Split(NamedTuple):
    """How a micro-batch is split into tasks (`planning.split`)."""

    min_partitions: int | None
    max_records: int | None


# The offsets in each topic, by name.
StreamOffsets = Mapping[str, TopicOffsets]


def to_value(offsets: StreamOffsets, split: Split | None = None) -> dict[str, Any]:
    """Returns a value for JSON. Equal offsets give equal texts, since Spark compares texts.
    `split`: that of the micro-batch that ends here."""
    return {
        "version": VERSION,
        "topics": {
            topic: {
                "id": of_topic.topic_id,
                "revision": of_topic.create_revision,
                "as_of": of_topic.as_of,
                "partitions": _to_json(of_topic.partitions),
                **({"begun": _to_json(of_topic.begun)} if of_topic.begun else {}),
            }
            for topic, of_topic in sorted(offsets.items())
        },
        **({"split": {"min": split.min_partitions, "max": split.max_records}} if split else {}),
    }


def from_value(value: Any) -> StreamOffsets:
    """Raises `TidelogError` for a value that `to_value` of this version did not make."""
    if not isinstance(value, dict) or "version" not in value:
        raise _unreadable(value, "it has no version")
    if value["version"] != VERSION:
        raise _unreadable(value, f"it has version {value['version']!r}, this is {VERSION}")
    try:
        return {
            topic: TopicOffsets(
                of_topic["id"],
                of_topic["revision"],
                _from_json(of_topic["partitions"]),
                of_topic["as_of"],
                _from_json(of_topic.get("begun", {})),
            )
            for topic, of_topic in value["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(value, repr(error)) from error


def split_of(value: Any) -> Split | None:
    """Returns the split in a value that `from_value` accepts, or None."""
    split = value.get("split")
    return split and Split(split["min"], split["max"])


def begins(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Returns where a micro-batch begins, as planned, in each partition of its end."""
    found = {}
    for topic, to in end.items():
        before = start.get(topic)
        known = before.partitions if before and before.topic_id == to.topic_id else {}
        positions = {**to.partitions, **known, **to.begun}
        found[topic] = to._replace(
            partitions={partition: positions[partition] for partition in to.partitions}, begun={}
        )
    return found


def with_begins(end: StreamOffsets, start: StreamOffsets, begun: StreamOffsets) -> StreamOffsets:
    """Returns `end` with `begun` set where reading began elsewhere than planned from `start`.
    Returns `start` if nothing changes."""
    if all(
        topic in start and to._replace(begun=start[topic].begun) == start[topic]
        for topic, to in end.items()
    ) and len(start) == len(end):
        return start
    planned = begins(start, end)
    return {
        topic: to._replace(
            begun={
                partition: at
                for partition, at in begun[topic].partitions.items()
                if at != planned[topic].partitions[partition]
            }
        )
        for topic, to in end.items()
    }


def _to_json(partitions: Mapping[int, ReadTo]) -> dict[str, Any]:
    return {
        str(partition): {"offset": at.offset, "epoch": at.leader_epoch}
        for partition, at in sorted(partitions.items())
    }


def _from_json(value: Mapping[str, Any]) -> dict[int, ReadTo]:
    return {int(partition): ReadTo(at["offset"], at["epoch"]) for partition, at in value.items()}


def _unreadable(value: Any, why: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"the checkpoint has no offsets that this version of tidelog can read ({why}): "
        f"{json.dumps(value)[:200]}; continue with the version of tidelog that wrote it, or begin "
        "with a new checkpointLocation",
    )
