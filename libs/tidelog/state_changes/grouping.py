"""Which stages are of one change: those with the same id. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.state_changes.event import Kind, StateChange

TOPIC_KINDS = (Kind.TOPIC_CREATION, Kind.TOPIC_DELETION)

_Key = tuple[object, ...]


def of_one_change(events: Iterable[StateChange]) -> list[list[StateChange]]:
    """Groups of stages, none of them empty; what has no id is a fact, and a group by
    itself."""
    groups: dict[_Key, list[StateChange]] = {}
    facts: list[list[StateChange]] = []
    for change in events:
        key = _key(change)
        if key:
            groups.setdefault(key, []).append(change)
        else:
            facts.append([change])
    return [*groups.values(), *facts]


def _key(change: StateChange) -> _Key:
    """Empty: it has none. A topic is made and deleted once, by one controller or by its
    successor, who does not know the id."""
    if change.kind in TOPIC_KINDS and change.topic_id:
        return (change.kind, change.topic_id)
    if change.change_id:
        return (change.change_id, change.topic, change.partition)
    return ()
