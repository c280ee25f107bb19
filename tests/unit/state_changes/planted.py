"""A leader's death as three services log it, with unrelated events in between."""

from __future__ import annotations

from tidelog.state_changes.event import (
    NO_BROKER,
    NO_CHANGE,
    NO_PARTITION,
    Cause,
    Change,
    Kind,
    Stage,
    StateChange,
)

BEGAN_MS = 1_790_000_000_000
ELECTION = Change("c3-17", Cause.BROKER_CRASHED, BEGAN_MS + 10, "0af7651916cd43dd8448eb211c80319c")


def told(
    at_ms: int,
    service: str,
    kind: Kind,
    stage: Stage,
    *,
    change: Change = NO_CHANGE,
    cause: Cause | None = None,
    topic: str = "sea",
    partition: int = 0,
    broker: int = NO_BROKER,
    revision: int = 0,
    leader_epoch: int = -1,
    **details: str | int | list[int],
) -> StateChange:
    """`at_ms` counts from the start of the events."""
    now_ms = BEGAN_MS + at_ms
    return StateChange(
        now_ms,
        service,
        kind,
        stage,
        change.cause if cause is None else cause,
        change.id,
        topic,
        "id-of-" + topic if topic else "",
        partition,
        broker,
        40 + broker if not topic else 0,
        3,
        leader_epoch,
        revision,
        now_ms - change.requested_at_ms if change.id else -1,
        change.trace_id,
        dict(details),
    )


def of_broker(
    at_ms: int, kind: Kind, broker: int, *, revision: int = 0, cause: Cause = Cause.NONE
) -> StateChange:
    return told(
        at_ms,
        "controller-1",
        kind,
        Stage.COMPLETED,
        cause=cause,
        topic="",
        partition=NO_PARTITION,
        broker=broker,
        revision=revision,
    )


def replica(
    at_ms: int, service: str, broker: int, stage: Stage, *, kind: Kind = Kind.BECOME_FOLLOWER
) -> StateChange:
    """A replica's part in the election."""
    return told(
        at_ms,
        service,
        kind,
        stage,
        change=ELECTION,
        broker=broker,
        revision=1043,
        leader_epoch=6,
    )


def leader_death() -> list[StateChange]:
    """Broker 2 led sea/0 and dies; 3 leads, and 1 follows it. Events are grouped by service, as
    their answers arrive."""
    election = {"change": ELECTION, "leader_epoch": 6}
    controller = [
        of_broker(8, Kind.BROKER_FENCED, 2, cause=Cause.BROKER_CRASHED),
        of_broker(9, Kind.BROKER_LEFT, 2, revision=1042, cause=Cause.BROKER_CRASHED),
        told(
            10,
            "controller-1",
            Kind.ELECTION,
            Stage.REQUESTED,
            **election,  # type: ignore[arg-type]
            leader_before=2,
            leader=3,
        ),
        told(
            14,
            "controller-1",
            Kind.ELECTION,
            Stage.COMPLETED,
            **election,  # type: ignore[arg-type]
            revision=1043,
            leader_before=2,
            leader=3,
            isr_before=[1, 2, 3],
            isr=[1, 3],
        ),
        replica(15, "controller-1", 3, Stage.REQUESTED, kind=Kind.BECOME_LEADER),
        replica(15, "controller-1", 1, Stage.REQUESTED),
        replica(22, "controller-1", 3, Stage.ACKNOWLEDGED, kind=Kind.BECOME_LEADER),
        replica(30, "controller-1", 1, Stage.ACKNOWLEDGED),
    ]
    third = [
        replica(17, "broker-3", 3, Stage.RECEIVED, kind=Kind.BECOME_LEADER),
        replica(19, "broker-3", 3, Stage.COMPLETED, kind=Kind.BECOME_LEADER),
    ]
    # Its clock is 20 ms behind.
    first = [
        replica(-2, "broker-1", 1, Stage.RECEIVED),
        replica(1, "broker-1", 1, Stage.COMPLETED),
    ]
    return third + first + controller


def elsewhere() -> list[StateChange]:
    """Events that do not concern sea/0: another topic, another partition, a broker without any
    of its replicas."""
    return [
        told(11, "controller-1", Kind.ELECTION, Stage.COMPLETED, topic="ore", revision=1041),
        told(12, "broker-3", Kind.ISR_SHRINK, Stage.COMPLETED, partition=1, revision=1044),
        of_broker(13, Kind.BROKER_LEFT, 9, revision=1045),
    ]


def late_full_state() -> list[StateChange]:
    """Broker 2 has returned in another incarnation and learns of the election from its full
    state."""
    late = told(
        18_600, "broker-2", Kind.BECOME_FOLLOWER, Stage.RECEIVED,
        change=ELECTION._replace(cause=Cause.FULL_STATE, requested_at_ms=0), broker=2,
        revision=1043, leader_epoch=6,
    )._replace(broker_epoch=55, duration_ms=-1)  # fmt: skip
    return [late, late._replace(time_ms=BEGAN_MS + 18_602, stage=Stage.COMPLETED)]
