"""The log lines of services around the worst gap of all runs. Pure.

Lines of its partition, and lines of no particular partition. Lines of other partitions are left
out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tidelog.model import TopicPartition

# The time before the begin of the gap and after its end.
MARGIN_S = 0.5
MAX_LINES = 400
# How many of these lines, around the end of the gap, show why writes resumed.
END_LINES = MAX_LINES // 2
# The source of the lines that mark the begin and end of the gap.
CLIENTS = "clients"
# The fields that every line has, and those of little value.
_COMMON = frozenset({"time", "level", "service", "event", "kind"})


class LogEntry(NamedTuple):
    """`at_s`: wall clock, seconds since 1970."""

    at_s: float
    service: str
    what: str
    details: Mapping[str, Any]


def entries_between(
    logs: Mapping[str, Iterable[bytes]], begin_s: float, end_s: float, partition: TopicPartition
) -> tuple[list[LogEntry], int]:
    """The lines that concern the partition.

    The lines of all services in the order of their clocks, with the begin and end of the gap; and
    the number of omitted lines, which are the farthest from both."""
    found: list[LogEntry] = []
    for service, lines in logs.items():
        for line in lines:
            entry = _parse(service, line)
            if entry is None or not begin_s - MARGIN_S <= entry.at_s <= end_s + MARGIN_S:
                continue
            if _concerns(entry.details, partition):
                found.append(entry)
    begin = LogEntry(begin_s, CLIENTS, "last_write", {})
    end = LogEntry(end_s, CLIENTS, "writes_resume", {})
    kept = [begin, *_nearest(found, begin_s, end_s), end]
    return sorted(kept, key=lambda entry: entry.at_s), max(0, len(found) - MAX_LINES)


def _nearest(found: Sequence[LogEntry], begin_s: float, end_s: float) -> list[LogEntry]:
    """The lines nearest to the end first; the remaining room is for lines near the begin."""
    to_end = sorted(found, key=lambda entry: abs(entry.at_s - end_s))
    near_end, others = to_end[:END_LINES], to_end[END_LINES:]
    others.sort(key=lambda entry: abs(entry.at_s - begin_s))
    return [*near_end, *others[: MAX_LINES - len(near_end)]]


def _concerns(details: Mapping[str, Any], partition: TopicPartition) -> bool:
    """Whether the line concerns this partition, its topic, or no particular one."""
    if details.get("topic", partition.topic) != partition.topic:
        return False
    number = details.get("partition", partition.partition)
    # Most lines have the topic and the partition number apart, some have both in one word.
    return number in (partition.partition, str(partition))


def _parse(service: str, line: bytes) -> LogEntry | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    try:
        at_s = datetime.fromisoformat(str(fields.get("time"))).timestamp()
    except ValueError:
        return None
    what = str(fields.get("kind") or fields.get("event") or "")
    details = {name: value for name, value in fields.items() if name not in _COMMON}
    return LogEntry(at_s, service, what, details)
