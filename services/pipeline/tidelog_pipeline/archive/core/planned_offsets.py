"""The offsets that a micro-batch reads, from the checkpoint of its query. Pure.

Spark writes them before the micro-batch begins: a line with a version, one with Spark's own
metadata, and one for each source. They have what rows lack: topic ids and offsets without
records. The end of a micro-batch also has the start in a partition that is new, or that
continued after a loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.spark.stream_offsets import StreamOffsets, begins, from_value
from tidelog_pipeline.archive.core.spans import LogId

_VERSION = "v1"


def offsets_of(text: bytes, name: str) -> StreamOffsets:
    """Raises `TidelogError` for a file that is not of a query with tidelog as its only source."""
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
    """The offsets of a log that a micro-batch reads, before `end`.

    - `first`: None: unknown; the rows show it. That is so in a partition that was added after
      the query was planned, or if the log begins later by now.
    """

    first: int | None
    end: int


def ends_of(end: StreamOffsets) -> dict[LogId, Planned]:
    """Returns only the ends, for reads that may lose records.

    A repeated read may begin before the end of the previous micro-batch, even in a log without
    new records.
    """
    return {
        LogId(topic, to.topic_id, partition): Planned(None, at.offset)
        for topic, to in end.items()
        for partition, at in to.partitions.items()
    }


def planned_ranges(
    before: StreamOffsets | None, end: StreamOffsets, began: Mapping[LogId, int]
) -> dict[LogId, Planned]:
    """Returns the ranges that a micro-batch reads.

    - `before`: the end of the previous micro-batch.
    - `began`: the start of the query.
    """
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
