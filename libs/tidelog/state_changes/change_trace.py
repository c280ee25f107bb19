"""One change of a partition, with the reported stages of its parts. Pure."""

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

STARTED = (Stage.REQUESTED, Stage.RECEIVED)
ENDED = (Stage.COMPLETED, Stage.FAILED, Stage.IGNORED)


class Part(NamedTuple):
    """One part of a change: of the partition's key (no `broker`), or of one replica.

    - `stages`: in causal order, at least one.
    - `is_late`: a full state delivered the part, to an incarnation of the broker for which the
      change was not made.
    """

    kind: Kind
    broker: int
    stages: tuple[StateChange, ...]
    is_late: bool = False

    def has(self, *stages: Stage) -> bool:
        return any(event.stage in stages for event in self.stages)

    @property
    def revision(self) -> int:
        return max(event.revision for event in self.stages)


class MissingStage(NamedTuple):
    """A missing stage of a part.

    - `overtaken_by`: id of a newer change of the replica, because of which this stage is not
      expected; empty: there is none.
    - `forgotten_by`: the service that would report the stage, and no longer keeps events of that
      time; empty: it keeps them.
    """

    kind: Kind
    broker: int
    missing: Stage
    overtaken_by: str = ""
    forgotten_by: str = ""


class ChangeTrace(NamedTuple):
    """One change of one partition, or one event of a broker, a controller or the store.

    - `headline`: the event that describes the change best.
    - `cause`: the cause of the request, not of a failure or of a replica's rejection.
    - `began_ms`: wall clock time of the request.
    - `revision`: store revision at which it was decided; 0: not known.
    """

    change_id: str
    headline: StateChange
    cause: Cause
    parts: tuple[Part, ...]
    began_ms: int
    revision: int
    gaps: tuple[MissingStage, ...] = ()

    @property
    def name(self) -> TopicPartition | None:
        return self.headline.name

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """Parts for which the change was made, without consequences and late parts; all parts if
        there are no others."""
        own = tuple(
            part
            for part in self.parts
            if not part.is_late and (part.broker == NO_BROKER or part.has(*STARTED))
        )
        return own or self.parts

    @property
    def took_ms(self) -> int:
        """Milliseconds until the parts for which the change was made were done."""
        return max(
            self.since_requested_ms(event) for part in self.own_parts for event in part.stages
        )

    @property
    def is_failed(self) -> bool:
        """Whether a part failed and was not completed afterwards."""
        return any(
            part.has(Stage.FAILED) and not part.has(Stage.COMPLETED, Stage.ACKNOWLEDGED)
            for part in self.parts
        )

    @property
    def unfinished(self) -> tuple[MissingStage, ...]:
        return tuple(gap for gap in self.gaps if not gap.overtaken_by and not gap.forgotten_by)

    def since_requested_ms(self, event: StateChange) -> int:
        if event.duration_ms != UNKNOWN_DURATION:
            return event.duration_ms
        return event.time_ms - self.began_ms
