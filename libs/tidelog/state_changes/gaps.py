"""What is missing of changes: ends and acknowledgements that nobody told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.model import TopicPartition
from tidelog.state_changes.change_life import ENDED, ChangeLife, Gap, Part
from tidelog.state_changes.event import NO_BROKER, Kind, Stage, StateChange

# What a controller commands a replica to do, and is acknowledged.
_COMMANDED = frozenset(
    {Kind.CREATE, Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER, Kind.STOP, Kind.DELETE}
)


# How far back each service remembers what it told, wall clock; who is not named was not heard.
Memories = Mapping[str, int]


def with_gaps(lives: Sequence[ChangeLife], memories: Memories | None = None) -> list[ChangeLife]:
    """The same lives, each with what is missing of it. `memories`: None where all that was ever
    told is there, as in log files."""
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
    """One, or those of a topic whose strays are told as one."""
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
        # Only the newest decision for a replica is ever on its way.
        later = [(r, change_id) for r, change_id in decisions if r > part.revision]
    overtaken_by = min(later)[1] if later else ""
    forgotten_by = "" if memories is None else _forgotten_by(part, missing, memories)
    return [Gap(part.kind, part.broker, missing, overtaken_by, forgotten_by)]


def _forgotten_by(part: Part, missing: Stage, memories: Memories) -> str:
    """Nothing is missed of what happened before the memory of those who would tell its end
    begins: what they told then is known by `__state_changes` alone, into which not all comes."""
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
    """Whether an end is to follow: whoever asks is answered, and a replica's broker tells
    what it made of a command. A controller that has received a broker's stopping does not
    tell that it is done."""
    if told.stage is Stage.RECEIVED:
        return told.service == f"broker-{told.broker}"
    return told.stage is Stage.REQUESTED


def _missing(part: Part) -> Stage | None:
    """An acknowledgement says that it was done, whoever has not told so. It is missed only
    where the one who would tell it told that it was requested."""
    if part.has(Stage.ACKNOWLEDGED):
        return None
    if not part.has(*ENDED) and any(_ends_it(told) for told in part.stages):
        return Stage.COMPLETED
    commanded = part.broker != NO_BROKER and part.kind in _COMMANDED
    if commanded and part.has(Stage.REQUESTED) and part.has(Stage.COMPLETED):
        return Stage.ACKNOWLEDGED
    return None
