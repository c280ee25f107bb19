"""Missing stages of changes: ends and acknowledgements that no service reported. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.model import TopicPartition
from tidelog.state_changes.change_life import ENDED, ChangeLife, Gap, Part
from tidelog.state_changes.event import NO_BROKER, Kind, Stage, StateChange

# Kinds that a controller commands to a replica, and that the broker acknowledges.
_COMMANDED = frozenset(
    {Kind.CREATE, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER, Kind.STOP, Kind.DELETE}
)


# By service: wall clock time since which it keeps events. Other services did not answer.
Memories = Mapping[str, int]


def with_gaps(lives: Sequence[ChangeLife], memories: Memories | None = None) -> list[ChangeLife]:
    """Returns the changes, each with its gaps. `memories`: None: there are all events that were
    ever reported, as in log files."""
    newest: dict[tuple[TopicPartition, int], list[tuple[int, str]]] = {}
    for life in lives:
        for part in life.parts:
            if part.broker != NO_BROKER and part.kind in _COMMANDED:
                for name in _names(life):
                    decided = (part.revision, life.change_id)
                    newest.setdefault((name, part.broker), []).append(decided)
    complete: list[ChangeLife] = []
    for life in lives:
        gaps = tuple(gap for part in life.parts for gap in _gaps(life, part, newest, memories))
        complete.append(life._replace(gaps=gaps))
    return complete


def _names(life: ChangeLife) -> list[TopicPartition]:
    """Returns the partition of a change, or those of a topic's strays that are one event."""
    if life.name is not None:
        return [life.name]
    told = life.headline
    partitions = told.details.get("partitions") if told.topic else None
    if not isinstance(partitions, list):
        return []
    return [TopicPartition(told.topic, p) for p in partitions if isinstance(p, int)]


def _gaps(
    life: ChangeLife,
    part: Part,
    newest: dict[tuple[TopicPartition, int], list[tuple[int, str]]],
    memories: Memories | None,
) -> list[Gap]:
    missing = _missing(part)
    if missing is None:
        return []
    later: list[tuple[int, str]] = []
    if life.name and part.kind in _COMMANDED:
        decisions = newest.get((life.name, part.broker), [])
        # Only the newest decision for a replica is sent.
        later = [(r, change_id) for r, change_id in decisions if r > part.revision]
    overtaken_by = min(later)[1] if later else ""
    forgotten_by = "" if memories is None else _forgotten_by(part, missing, memories)
    return [Gap(part.kind, part.broker, missing, overtaken_by, forgotten_by)]


def _forgotten_by(part: Part, missing: Stage, memories: Memories) -> str:
    """Returns the service that no longer keeps events of that time; empty: a service that would
    report the end keeps them, so the end is missing. Older events are only in `__state_changes`,
    which does not have all of them."""
    awaited = [
        told
        for told in part.stages
        if (told.stage is Stage.REQUESTED or missing is Stage.COMPLETED) and _ends_it(told)
    ]
    for told in awaited:
        if told.service in memories and memories[told.service] <= told.time_ms:
            return ""
    return awaited[0].service


def _ends_it(told: StateChange) -> bool:
    """Returns whether an end must follow. A request gets an answer, and a replica's broker reports
    the result of a command. A controller that has received the stop of a broker does not report
    that it is done."""
    if told.stage is Stage.RECEIVED:
        return told.service == f"broker-{told.broker}"
    return told.stage is Stage.REQUESTED


def _missing(part: Part) -> Stage | None:
    """Returns the missing stage; None: none. An acknowledgement proves the end, even if no service
    reported it. It is only missing if the service that would report it reported the request."""
    if part.has(Stage.ACKNOWLEDGED):
        return None
    if not part.has(*ENDED) and any(_ends_it(told) for told in part.stages):
        return Stage.COMPLETED
    commanded = part.broker != NO_BROKER and part.kind in _COMMANDED
    if commanded and part.has(Stage.REQUESTED) and part.has(Stage.COMPLETED):
        return Stage.ACKNOWLEDGED
    return None
