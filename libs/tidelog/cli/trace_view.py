"""Formats the changes of partitions: as stories with every stage, as one line each, or as JSON.
Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.phrases import plural
from tidelog.state_changes.change_trace import ChangeTrace, MissingStage, Part
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_PARTITION,
    NO_REVISION,
    Cause,
    Detail,
    Kind,
    Stage,
    StateChange,
)
from tidelog.state_changes.json_form import format_time, to_object
from tidelog.state_changes.tracing import is_creation

# Kinds that are about a broker and that a controller carries out.
_DONE_TO_BROKERS = (Kind.LEADER_UNREACHABLE, Kind.BROKER_FENCED)
# Partitions that a condensed line names; others are counted.
MAX_NAMED_PARTITIONS = 12
_ELAPSED_WIDTH = 11
_SERVICE_WIDTH = 13
_BEFORE = "_before"
_MISSING = {
    Stage.COMPLETED: "not completed",
    Stage.ACKNOWLEDGED: "completed, and not acknowledged",
}

_UNKNOWN = {
    Stage.COMPLETED: "whether it was completed is not known",
    Stage.ACKNOWLEDGED: "completed, and whether that was acknowledged is not known",
}


def partition_line(changes: Sequence[ChangeTrace], name: TopicPartition) -> str:
    """Returns what the changes of a partition led to: the line that its trace begins with."""
    own = [change for change in changes if change.name == name]
    of_key = [
        event
        for change in own
        for part in change.parts
        for event in part.stages
        if part.broker == NO_BROKER and event.stage is Stage.COMPLETED
    ]
    state: list[str] = []
    leaders = [event for event in of_key if "leader" in event.details]
    if leaders:
        last = leaders[-1]
        epoch = "" if last.leader_epoch == NO_EPOCH else f" in leader epoch {last.leader_epoch}"
        state.append(f"leader {_value('leader', last.details['leader'])}{epoch}")
    isr = next((e.details["isr"] for e in reversed(of_key) if "isr" in e.details), None)
    if isr is not None:
        state.append(f"ISR {_value('isr', isr)}")
    since = format_time(min(change.began_ms for change in own or changes))
    count = plural(len(own), "change")
    return f"{name}: {', '.join([*state, f'{count} since {since}'])}"


def story_lines(change: ChangeTrace) -> Iterator[str]:
    """Yields a headline, then each stage with its service and the time since the request."""
    yield headline(change)
    details = _details(change.headline.details)
    if details:
        yield f"    {details}"
    if len(change.parts) == 1 and len(change.parts[0].stages) == 1 and not change.is_failed:
        # The headline has everything except the service that reported it.
        yield f"    reported by {change.headline.service}"
    else:
        for part in change.parts:
            yield from _part_lines(change, part)
    for gap in change.gaps:
        yield f"    {gap_text(gap)}"


def headline(change: ChangeTrace) -> str:
    event = change.headline
    words = [format_time(change.began_ms), event.kind.value, *_about(event, change.cause)]
    if event.controller_epoch != NO_EPOCH:
        words.append(f"controller epoch {event.controller_epoch}")
    return "  ".join([*words, *_decided(event.leader_epoch, change.revision, change.change_id)])


def _about(event: StateChange, cause: Cause, subject: str = "") -> Iterator[str]:
    """Yields the subject (or all partitions of the change), the broker, and the cause."""
    if event.topic:
        yield subject or _subject(event)
    if event.broker != NO_BROKER:
        yield _broker(event)
    if cause is not Cause.NONE:
        yield f"because {cause.value}"


def _decided(leader_epoch: int, revision: int, change_id: str) -> Iterator[str]:
    """Yields the numbers by which the change can be found elsewhere."""
    if leader_epoch != NO_EPOCH:
        yield f"leader epoch {leader_epoch}"
    if revision != NO_REVISION:
        yield f"revision {revision}"
    if change_id:
        yield f"change {change_id}"


def _subject(event: StateChange) -> str:
    return event.topic if event.partition == NO_PARTITION else f"{event.topic}/{event.partition}"


def _broker(event: StateChange) -> str:
    epoch = f" (broker epoch {event.broker_epoch})" if event.broker_epoch != NO_REVISION else ""
    return f"broker {event.broker}{epoch}"


def _part_lines(change: ChangeTrace, part: Part) -> Iterator[str]:
    if (part.kind, part.broker) != (change.headline.kind, change.headline.broker):
        about = f" of {_broker(part.stages[0])}" if part.is_late else _of_broker(part.broker)
        yield f"    {'later, by a full state: ' if part.is_late else ''}{part.kind.value}{about}"
    for event in part.stages:
        yield _stage_line(change, event)


def _of_broker(broker: int) -> str:
    return f" of broker {broker}" if broker != NO_BROKER else ""


def _stage_line(change: ChangeTrace, event: StateChange) -> str:
    elapsed = elapsed_text(change.since_requested_ms(event)).rjust(_ELAPSED_WIDTH)
    line = f"{elapsed}  {event.service.ljust(_SERVICE_WIDTH)}  {event.stage.value}"
    if event.cause not in (Cause.NONE, change.cause):
        line += f", because {event.cause.value}"
    # Details of the headline are not repeated.
    shown = change.headline.details
    details = _details({k: v for k, v in event.details.items() if shown.get(k) != v})
    return f"{line}  {details}" if details else line


def gap_text(gap: MissingStage) -> str:
    part = gap.kind.value + _of_broker(gap.broker)
    if gap.overtaken_by:
        return f"- {part}: {_MISSING[gap.missing]}; overtaken by {gap.overtaken_by}"
    if gap.forgotten_by:
        return f"- {part}: {_UNKNOWN[gap.missing]}; {gap.forgotten_by} no longer keeps its events"
    return f"! {part}: {_MISSING[gap.missing]}, according to the services that answered"


def _details(details: Mapping[str, Detail]) -> str:
    """Formats details; a previous value is shown with the current one: leader 2 -> 3."""
    words: list[str] = []
    for name, value in details.items():
        if value == "" or name.removesuffix(_BEFORE) in details.keys() - {name}:
            continue
        before = details.get(name + _BEFORE)
        was = "" if before is None else f"{_value(name, before)} -> "
        words.append(f"{name} {was}{_value(name, value)}")
    return ", ".join(words)


def _value(name: str, value: Detail) -> str:
    if name == "leader" and value == NO_LEADER:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return str(value)


def elapsed_text(milliseconds: int) -> str:
    """
    >>> elapsed_text(7), elapsed_text(12_340), elapsed_text(7_500_000), elapsed_text(-2)
    ('+7 ms', '+12.3 s', '+2 h 5 min', '-2 ms')
    """
    if milliseconds < 0:
        # The clocks of two machines differ.
        return f"{milliseconds} ms"
    if milliseconds < 10_000:
        return f"+{milliseconds} ms"
    if milliseconds < 600_000:
        return f"+{milliseconds / 1000:.1f} s"
    minutes = milliseconds // 60_000
    return f"+{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"+{minutes} min"


def condensed_lines(changes: Sequence[ChangeTrace]) -> list[str]:
    """Returns one line for each change with all its partitions, in the order of `changes`."""
    groups: dict[tuple[object, ...], list[ChangeTrace]] = {}
    for number, change in enumerate(changes):
        event = change.headline
        key: tuple[object, ...] = (number,)
        if change.change_id:
            # One transaction may elect leaders for one partition and none for another.
            key = (change.change_id, event.topic, event.kind, change.cause)
        groups.setdefault(key, []).append(change)
    return [_condensed(group) for group in groups.values()]


def _condensed(group: Sequence[ChangeTrace]) -> str:
    first = group[0].headline
    began = format_time(min(change.began_ms for change in group))
    subjects = _subjects([change.headline for change in group])
    words = [began, first.kind.value, *_about(first, group[0].cause, subjects)]
    if len(group) == 1 and first.leader_epoch != NO_EPOCH:
        words.append(f"leader epoch {first.leader_epoch}")
    details = _details(first.details) if len(group) == 1 else ""
    if details:
        words.append(details)
    if group[0].change_id:
        words.append(f"change {group[0].change_id}")
    outcome = _outcome(group)
    return "  ".join([*words, outcome] if outcome else words)


def _subjects(heads: Sequence[StateChange]) -> str:
    if len(heads) == 1:
        return _subject(heads[0])
    numbers = sorted(event.partition for event in heads)
    named = ",".join(map(str, numbers[:MAX_NAMED_PARTITIONS]))
    more = len(numbers) - MAX_NAMED_PARTITIONS
    return f"{heads[0].topic}/{named}" + (f" and {more} more" if more > 0 else "")


def _outcome(group: Sequence[ChangeTrace]) -> str:
    failed = [change for change in group if change.is_failed]
    if failed:
        of_partitions = group[0].name is not None
        counted = f" ({plural(len(failed), 'partition')})" if of_partitions else ""
        return f"FAILED{counted}{_why_failed(failed)}"
    gaps = [gap for change in group for gap in change.unfinished]
    if gaps:
        doing = [
            gap for gap in gaps if gap.broker != NO_BROKER and gap.kind not in _DONE_TO_BROKERS
        ]
        brokers = sorted({gap.broker for gap in doing})
        by = f" by broker {','.join(map(str, brokers))}" if brokers else ""
        return f"NOT ACKNOWLEDGED{by}" if _only_acks(gaps) else f"NOT COMPLETED{by}"
    stages = sum(len(part.stages) for change in group for part in change.own_parts)
    took_ms = max(change.took_ms for change in group)
    return f"done {elapsed_text(took_ms)}" if stages > len(group) else ""


def _why_failed(failed: Sequence[ChangeTrace]) -> str:
    """Returns causes of the failure that differ from the cause of the request."""
    causes = {
        event.cause: None
        for change in failed
        for part in change.parts
        for event in part.stages
        if event.stage is Stage.FAILED and event.cause not in (Cause.NONE, change.cause)
    }
    return f" because {', '.join(cause.value for cause in causes)}" if causes else ""


def _only_acks(gaps: Sequence[MissingStage]) -> bool:
    return all(gap.missing is Stage.ACKNOWLEDGED for gap in gaps)


def event_line(event: StateChange) -> str:
    """Formats one stage by itself, as it arrives."""
    words = [format_time(event.time_ms), event.service.ljust(_SERVICE_WIDTH), event.kind.value]
    words.append(event.stage.value)
    if event.duration_ms >= 0:
        words.append(elapsed_text(event.duration_ms))
    words += [
        *_about(event, event.cause),
        *_decided(event.leader_epoch, event.revision, event.change_id),
    ]
    details = _details(event.details)
    return "  ".join([*words, details] if details else words)


def document(change: ChangeTrace) -> dict[str, Any]:
    """Returns one change as JSON: the fields of its headline, then all its stages."""
    return {
        "change_id": change.change_id,
        "began": format_time(change.began_ms),
        "revision": change.revision,
        **{
            name: value
            for name, value in to_object(change.headline._replace(cause=change.cause)).items()
            if name in ("kind", "cause", "topic", "topic_id", "partition", "broker")
        },
        "failed": change.is_failed,
        "stages": [to_object(event) for part in change.parts for event in part.stages],
        "missing": [
            {
                "kind": gap.kind.value,
                "broker": None if gap.broker == NO_BROKER else gap.broker,
                "stage": gap.missing.value,
                "overtaken_by": gap.overtaken_by or None,
                "forgotten_by": gap.forgotten_by or None,
            }
            for gap in change.gaps
        ],
    }


def includes_creation(changes: Sequence[ChangeTrace], since_ms: int) -> bool:
    """Whether the whole history is after `since_ms`: it includes the creation."""
    return any(is_creation(change) for change in changes if change.began_ms >= since_ms)


def reach_note(service: str, since_ms: int) -> str:
    """`service`: the service whose events begin last."""
    return (
        f"{service} keeps no events from before {format_time(since_ms)}: stages of older changes "
        "may be missing, and log files have more (--files)."
    )


def stories(changes: Iterable[ChangeTrace]) -> Iterator[str]:
    for number, change in enumerate(changes):
        if number:
            yield ""
        yield from story_lines(change)
