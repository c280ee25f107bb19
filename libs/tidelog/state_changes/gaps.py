"""Missing stages of changes: ends and acknowledgements that no service reported. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.model import TopicPartition
from tidelog.state_changes.change_trace import ENDED, ChangeTrace, MissingStage, Part
from tidelog.state_changes.event import NO_BROKER, Kind, Stage, StateChange

# Kinds that a controller commands to a replica, and that the broker acknowledges.
_COMMANDED = frozenset(
    {Kind.CREATE, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER, Kind.STOP, Kind.DELETE}
)


# By service: wall clock time since which it keeps events. Other services did not answer.
Memories = Mapping[str, int]


def with_gaps(traces: Sequence[ChangeTrace], memories: Memories | None = None) -> list[ChangeTrace]:
    """Returns the changes, each with its gaps. `memories`: None: there are all events that were
    ever reported, as in log files."""
    newest: dict[tuple[TopicPartition, int], list[tuple[int, str]]] = {}
    for trace in traces:
        for part in trace.parts:
            if part.broker != NO_BROKER and part.kind in _COMMANDED:
                for name in _names(trace):
                    decided = (part.revision, trace.change_id)
                    newest.setdefault((name, part.broker), []).append(decided)
    complete: list[ChangeTrace] = []
    for trace in traces:
        gaps = tuple(gap for part in trace.parts for gap in _gaps(trace, part, newest, memories))
        complete.append(trace._replace(gaps=gaps))
    return complete


def _names(trace: ChangeTrace) -> list[TopicPartition]:
    """Returns the partition of a change, or those of a topic's strays that are one event."""
    if trace.name is not None:
        return [trace.name]
    event = trace.headline
    partitions = event.details.get("partitions") if event.topic else None
    if not isinstance(partitions, list):
        return []
    return [TopicPartition(event.topic, p) for p in partitions if isinstance(p, int)]


def _gaps(
    trace: ChangeTrace,
    part: Part,
    newest: dict[tuple[TopicPartition, int], list[tuple[int, str]]],
    memories: Memories | None,
) -> list[MissingStage]:
    missing = _missing(part)
    if missing is None:
        return []
    later: list[tuple[int, str]] = []
    if trace.name and part.kind in _COMMANDED:
        decisions = newest.get((trace.name, part.broker), [])
        # Only the newest decision for a replica is sent.
        later = [(r, change_id) for r, change_id in decisions if r > part.revision]
    overtaken_by = min(later)[1] if later else ""
    forgotten_by = "" if memories is None else _forgotten_by(part, missing, memories)
    return [MissingStage(part.kind, part.broker, missing, overtaken_by, forgotten_by)]


def _forgotten_by(part: Part, missing: Stage, memories: Memories) -> str:
    """Returns the service that no longer keeps events of that time; empty: a service that would
    report the end keeps them, so the end is missing. Older events are only in `__state_changes`,
    which does not have all of them."""
    awaited = [
        event
        for event in part.stages
        if (event.stage is Stage.REQUESTED or missing is Stage.COMPLETED) and _ends_it(event)
    ]
    for event in awaited:
        if event.service in memories and memories[event.service] <= event.time_ms:
            return ""
    return awaited[0].service


def _ends_it(event: StateChange) -> bool:
    """Returns whether an end must follow. A request gets an answer, and a replica's broker reports
    the result of a command. A controller that has received the stop of a broker does not report
    that it is done."""
    if event.stage is Stage.RECEIVED:
        return event.service == f"broker-{event.broker}"
    return event.stage is Stage.REQUESTED


def _missing(part: Part) -> Stage | None:
    """Returns the missing stage; None: none. An acknowledgement proves the end, even if no service
    reported it. It is only missing if the service that would report it reported the request."""
    if part.has(Stage.ACKNOWLEDGED):
        return None
    if not part.has(*ENDED) and any(_ends_it(event) for event in part.stages):
        return Stage.COMPLETED
    commanded = part.broker != NO_BROKER and part.kind in _COMMANDED
    if commanded and part.has(Stage.REQUESTED) and part.has(Stage.COMPLETED):
        return Stage.ACKNOWLEDGED
    return None
