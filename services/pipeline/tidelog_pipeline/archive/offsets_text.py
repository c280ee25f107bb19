"""Partitions and their offsets in the form of the data source's options. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tidelog_pipeline.archive.spans import LogId


def assigned(logs: Iterable[LogId]) -> str:
    found: dict[str, list[int]] = {}
    for log in logs:
        found.setdefault(log.topic, []).append(log.partition)
    return json.dumps(found)


def by_partition(offsets: Mapping[LogId, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for log, offset in offsets.items():
        found.setdefault(log.topic, {})[str(log.partition)] = offset
    return json.dumps(found)
