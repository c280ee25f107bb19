"""Which offsets a micro-batch reads, out of the checkpoint of its query. Pure.

Spark writes them there before the micro-batch begins: a line with a version, one of its own, and
one of each source. Rows alone do not tell of which topic id they are, nor of offsets that no
record has; where a micro-batch begins in a partition that is new, or went on after a loss, stands
with its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.spark.stream_offsets import StreamOffsets, begins, from_value
from tidelog_pipeline.archive.spans import LogId

_VERSION = "v1"


def offsets_of(text: bytes, name: str) -> StreamOffsets:
    """Raises `TidelogError` for a file that is not of a query with tidelog as its one source."""
    lines = text.decode(errors="replace").splitlines()
    if len(lines) != 3 or lines[0] != _VERSION:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{name} is no list of offsets of one source as Spark writes it in version {_VERSION}: "
            "continue with the version of Spark that wrote it, or remove the directory of the "
            "checkpoint: the next run leaves out what is archived",
        )
    return from_value(json.loads(lines[2]))


class Planned(NamedTuple):
    """Before `end`. `first`: None where it is not known, and rows tell where they begin: in a
    partition that has come since the query was about to begin, or if its log now begins later."""

    first: int | None
    end: int


def ends_of(end: StreamOffsets) -> dict[LogId, Planned]:
    """Where something may be lost: what is read again may begin before where the micro-batch
    before it ended, also in a log that had nothing new."""
    return {
        LogId(topic, to.topic_id, partition): Planned(None, at.offset)
        for topic, to in end.items()
        for partition, at in to.partitions.items()
    }


def planned_ranges(
    before: StreamOffsets | None, end: StreamOffsets, began: Mapping[LogId, int]
) -> dict[LogId, Planned]:
    """`before`: where the micro-batch before it ended; `began`: where the query did."""
    planned = begins(before or {}, end)
    ranges: dict[LogId, Planned] = {}
    for topic, to in end.items():
        for partition, at in to.partitions.items():
            log = LogId(topic, to.topic_id, partition)
            first: int | None = planned[topic].partitions[partition].offset
            if before is None and partition not in to.begun:
                first = began.get(log)
            if first != at.offset:
                ranges[log] = Planned(None if first and first > at.offset else first, at.offset)
    return ranges
