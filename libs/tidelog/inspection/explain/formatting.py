"""Formats times, counts and lists for findings."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.state_reports import InSyncMember, PartitionKeyState
from tidelog.model import TopicPartition

# Items of a list that are named.
MAX_NAMED = 5


def span(ms: int) -> str:
    """
    >>> span(430), span(4_300), span(75_000), span(7_500_000)
    ('430 ms', '4.3 s', '1 min 15 s', '2 h 5 min')
    """
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{ms / 1_000:.1f} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"


def clock_time(wall_ms: int) -> str:
    """
    >>> clock_time(1_700_000_000_123)
    '2023-11-14T22:13:20Z'
    """
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def since(wall_ms: int, now_ms: int) -> str:
    return f"since {clock_time(wall_ms)} ({span(max(0, now_ms - wall_ms))})"


def ago(wall_ms: int, now_ms: int) -> str:
    return f"at {clock_time(wall_ms)} ({span(max(0, now_ms - wall_ms))} ago)"


def listed(items: Iterable[object], limit: int = MAX_NAMED) -> str:
    """
    >>> listed([1, 2]), listed(range(9)), listed([])
    ('1, 2', '0, 1, 2, 3, 4 and 4 more', 'none')
    """
    words = [str(item) for item in items]
    if not words:
        return "none"
    if len(words) <= limit:
        return ", ".join(words)
    return f"{', '.join(words[:limit])} and {len(words) - limit} more"


def brokers(ids: Iterable[int]) -> str:
    """
    >>> brokers([2]), brokers([2, 3])
    ('broker 2', 'brokers 2, 3')
    """
    known = list(ids)
    return f"broker {listed(known)}" if len(known) == 1 else f"brokers {listed(known)}"


def gateway_name(gateway: AnnouncedGateway) -> str:
    return f"the gateway at {gateway.address} on {gateway.host}"


def name_of_key(key: PartitionKeyState) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)


def ids(members: Sequence[InSyncMember]) -> list[int]:
    return [member.broker_id for member in members]
