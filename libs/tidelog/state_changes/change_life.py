"""One change of a partition, and what is told of it: its shares and their stages. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import (
    NO_BROKER,
    UNKNOWN_DURATION,
    Cause,
    Kind,
    Stage,
    StateChange,
)

BEGUN = (Stage.REQUESTED, Stage.RECEIVED)
ENDED = (Stage.COMPLETED, Stage.FAILED, Stage.IGNORED)


class Part(NamedTuple):
    """One share of a change: of the partition's key (no `broker`), or of one replica.
    `stages` in the order in which they follow from each other, at least one. `is_late`: by a
    full state, in a life of the broker for which the change was not made."""

    kind: Kind
    broker: int
    stages: tuple[StateChange, ...]
    is_late: bool = False

    def has(self, *stages: Stage) -> bool:
        return any(told.stage in stages for told in self.stages)

    @property
    def revision(self) -> int:
        return max(told.revision for told in self.stages)


class Gap(NamedTuple):
    """What is missing of a part. `overtaken_by`: the id of a newer change of that replica,
    because of which this one is not waited for; empty: there is none. `forgotten_by`: the
    service that would tell it, and remembers nothing of that time; empty: it remembers."""

    kind: Kind
    broker: int
    missing: Stage
    overtaken_by: str = ""
    forgotten_by: str = ""


class ChangeLife(NamedTuple):
    """One change of one partition, or one event of a broker, a controller or the store.

    `headline`: the event that says best what it is. `cause`: for which it was requested, which
    is neither why it failed nor why one of its replicas refused it. `began_ms`: wall clock,
    when it was requested. `revision`: of the store, at which it was decided; 0: not known."""

    change_id: str
    headline: StateChange
    cause: Cause
    parts: tuple[Part, ...]
    began_ms: int
    revision: int
    gaps: tuple[Gap, ...] = ()

    @property
    def name(self) -> TopicPartition | None:
        return self.headline.name

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """Of those for whom it was made, without what followed from it or came late; all where
        there is nothing else."""
        own = tuple(
            part
            for part in self.parts
            if not part.is_late and (part.broker == NO_BROKER or part.has(*BEGUN))
        )
        return own or self.parts

    @property
    def took_ms(self) -> int:
        """Until those for whom it was made had done it."""
        return max(self.since_requested_ms(told) for part in self.own_parts for told in part.stages)

    @property
    def is_failed(self) -> bool:
        """Some part of it failed, and was not completed after all."""
        return any(
            part.has(Stage.FAILED) and not part.has(Stage.COMPLETED, Stage.ACKNOWLEDGED)
            for part in self.parts
        )

    @property
    def unfinished(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if not gap.overtaken_by and not gap.forgotten_by)

    def since_requested_ms(self, told: StateChange) -> int:
        if told.duration_ms != UNKNOWN_DURATION:
            return told.duration_ms
        return told.time_ms - self.began_ms
