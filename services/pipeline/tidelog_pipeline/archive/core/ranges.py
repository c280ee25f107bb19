"""The range of a back-fill as options of the data source. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.core.spans import LogId

_RIGHT = (
    "a time as 2026-11-22T10:00 (UTC where it has no zone), {named}, or offsets as "
    '{{"sea": {{"0": 23}}}}'
)


def range_options(topics: Sequence[str], since: str, until: str) -> dict[str, str]:
    """Returns the options. Raises `OptionError`.

    If `since` has offsets, the partitions that it names are read.
    """
    assigned = _partitions(since)
    if assigned is None and not topics:
        raise OptionError("option --topics is missing; name topics, or partitions by --since")
    if assigned is not None and topics and set(topics) != set(assigned):
        raise OptionError(
            f"option --since names partitions of {', '.join(sorted(assigned))}, and --topics is "
            f"{','.join(topics)}; leave --topics out"
        )
    start = _starting(since)
    end = _boundary("--until", until, "ending", "latest")
    first, last = start.get("startingTimestamp"), end.get("endingTimestamp")
    if first is not None and last is not None and int(last) < int(first):
        raise OptionError(f"option --until is {until!r}, before --since, which is {since!r}")
    chosen = {"subscribe": ",".join(topics)}
    if assigned is not None:
        chosen = {"assign": json.dumps(assigned)}
    return {**chosen, **start, **end, "includeHeaders": "true"}


def _starting(since: str) -> dict[str, str]:
    start = _boundary("--since", since, "starting", "earliest")
    if "startingTimestamp" in start:
        # A partition without records of that time or later has none in the range.
        start["startingOffsetsByTimestampStrategy"] = "latest"
    return start


def _partitions(text: str) -> dict[str, list[int]] | None:
    """Returns None if the text is not JSON."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            return None
        return {topic: sorted(map(int, offsets)) for topic, offsets in value.items()}
    except (ValueError, TypeError):
        return None


def _boundary(flag: str, text: str, name: str, named: str) -> dict[str, str]:
    if text == named or text.lstrip().startswith("{"):
        return {f"{name}Offsets": text}
    right = _RIGHT.format(named=named)
    return {f"{name}Timestamp": str(time_ms(flag, text, right))}


def time_ms(flag: str, text: str, right: str = "a time as 2026-11-22T10:00 (UTC)") -> int:
    """Raises `OptionError`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"option {flag} is {text!r}; it must be {right}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    time_ms = int(time.timestamp() * 1000)
    if time_ms < 0:
        raise OptionError(f"option {flag} is {text!r}; it must be {right}, not before 1970")
    return time_ms


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
