"""Which stages are of one change: those with the same id, and of those without one what one
service asked for and what came of it. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from tidelog.state_changes.event import NO_BROKER, Kind, Stage, StateChange

TOPIC_KINDS = (Kind.TOPIC_CREATION, Kind.TOPIC_DELETION)
BEGUN = (Stage.REQUESTED, Stage.RECEIVED)
ENDED = (Stage.COMPLETED, Stage.FAILED, Stage.IGNORED)
# Without an id an end belongs to a request that is no older than this; the longest of them, a
# broker's stopping, is given up long before.
MAX_JOIN_MS = 600_000
# So much earlier than the request another machine's clock may say that it ended.
MAX_CLOCK_SKEW_MS = 1_000

_Key = tuple[object, ...]


def of_one_change(events: Iterable[StateChange]) -> list[list[StateChange]]:
    """Groups of stages, none of them empty; a fact of one stage is a group by itself."""
    groups: dict[_Key, list[StateChange]] = {}
    unnamed: dict[_Key, list[StateChange]] = {}
    facts: list[list[StateChange]] = []
    for change in events:
        key = _key(change)
        if key:
            groups.setdefault(key, []).append(change)
        elif change.broker != NO_BROKER and not change.topic:
            unnamed.setdefault(_asked(change), []).append(change)
        else:
            facts.append([change])
    for of_key in unnamed.values():
        facts += _joined(of_key)
    return [*groups.values(), *facts]


def _key(change: StateChange) -> _Key:
    """Empty: it has none. A topic is made and deleted once, by one controller or by its
    successor, who does not know the id."""
    if change.kind in TOPIC_KINDS and change.topic_id:
        return (change.kind, change.topic_id)
    if change.change_id:
        return (change.change_id, change.topic, change.partition)
    return ()


def _asked(change: StateChange) -> _Key:
    """What was asked of whom, and by whom: a controller that acts on a follower's report
    names it."""
    follower = change.details.get("follower")
    asking = change.service if follower is None else f"broker-{follower}"
    return (change.kind, change.broker, change.broker_epoch, asking)


def _joined(events: list[StateChange]) -> list[list[StateChange]]:
    """Each request with what came of it, until the next; what ends nothing is a fact."""
    in_time = sorted(events, key=lambda event: event.time_ms)
    requested = [[event] for event in in_time if event.stage in BEGUN]
    times_ms = [group[0].time_ms for group in requested]
    facts: list[list[StateChange]] = []
    for end in in_time:
        if end.stage in BEGUN:
            continue
        newest = bisect.bisect_right(times_ms, end.time_ms + MAX_CLOCK_SKEW_MS) - 1
        # One service tells in order, by one clock.
        while newest >= 0 and requested[newest][0].service == end.service:
            if times_ms[newest] <= end.time_ms:
                break
            newest -= 1
        if newest >= 0 and end.time_ms - times_ms[newest] <= MAX_JOIN_MS:
            requested[newest].append(end)
        else:
            facts.append([end])
    return requested + facts
