"""Groups the stages of one change, which have the same id. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.state_changes.event import Kind, StateChange

TOPIC_KINDS = (Kind.TOPIC_CREATION, Kind.TOPIC_DELETION)

_Key = tuple[object, ...]


def group_by_change(events: Iterable[StateChange]) -> list[list[StateChange]]:
    """Returns groups of stages, none of them empty. An event without an id is a fact, and a group
    of its own."""
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
    """Returns an empty key if the event has no id. A topic is created and deleted once, by one
    controller or by its successor, which does not know the id."""
    if change.kind in TOPIC_KINDS and change.topic_id:
        return (change.kind, change.topic_id)
    if change.change_id:
        return (change.change_id, change.topic, change.partition)
    return ()
