"""Operations, plans, leaders and brokers as administrators see them.

admin.proto documents the fields. Words of its enums are in lower case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.client.request_fields import built
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import admin_pb2 as pb

_KIND = "OPERATION_KIND_"
_STATE = "OPERATION_STATE_"


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition.

    - `target`: replicas after the move; the first is the preferred one.
    - `original`, `topic_id`: current values that the move expects; empty: not checked.
    """

    topic: str
    partition: int
    target: tuple[int, ...]
    original: tuple[int, ...] = ()
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """Share of a broker. `leaders_before`, `leaders_after`: partitions that prefer it as leader."""

    broker_id: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of an operation.

    - `moves`: all of them in a dry run, else none.
    - `minimum_replicas_added`: None: the caller chose the moves.
    - `warnings`: for people.
    - `digest`: of the moves; a request with it carries out this plan and no other.
    """

    moves: tuple[Move, ...]
    move_count: int
    replicas_added: int
    leaders_changed: int
    minimum_replicas_added: int | None
    brokers: tuple[BrokerShare, ...]
    warnings: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an operation.

    - `estimated_end_ms`: wall clock; 0: no estimate.
    - `moves_unmeasured`: moves that the sums of bytes leave out, because no leader has reported
      their bytes.
    """

    moves: int
    moves_done: int
    moves_active: int
    moves_dropped: int
    replicas_to_add: int
    replicas_added: int
    estimated_end_ms: int
    bytes_to_copy: int = 0
    bytes_copied: int = 0
    bytes_per_second: int = 0
    moves_unmeasured: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation.

    - `kind`: such as "rebalance".
    - `state`: running, cancelling, done, cancelled or failed.
    """

    operation_id: str
    kind: str
    state: str
    reason: str
    request: str
    requested_by: str
    requested_from: str
    requested_at_ms: int
    ended_at_ms: int
    trace_id: str
    progress: Progress
    revision: int

    @property
    def has_ended(self) -> bool:
        return self.state not in ("running", "cancelling")


@dataclass(frozen=True, slots=True)
class BegunOperation:
    """A started operation and its plan. `operation`: None in a dry run."""

    operation: Operation | None
    plan: Plan


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """Progress of one move.

    - `state`: waiting, active, done or dropped.
    - `bytes_to_copy`, `bytes_copied`: None: nothing is copied, or no leader has reported it.
    """

    move: Move
    state: str
    waits_for: tuple[int, ...]
    bytes_to_copy: int | None = None
    bytes_copied: int | None = None


@dataclass(frozen=True, slots=True)
class Throttle:
    """Bandwidth limit of moves. `bytes_per_second` None: unlimited. `revision` 0: never set."""

    bytes_per_second: int | None
    revision: int


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Change of one leader. `error`: None if `leader` leads, or in a dry run would."""

    topic: str
    partition: int
    leader_before: int
    leader: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class RestartFinding:
    """A partition that a restart affects. `effect`: unavailable, under_min_isr, last_replica or
    leader_moves."""

    topic: str
    partition: int
    effect: str
    reason: str


@dataclass(frozen=True, slots=True)
class RestartCheck:
    """Effects of a restart. `safe`: no partition becomes unavailable or falls below min ISR."""

    safe: bool
    unavailable: int
    under_min_isr: int
    last_replica: int
    leader_moves: int
    findings: tuple[RestartFinding, ...]


@dataclass(frozen=True, slots=True)
class BrokerDetails:
    """State of a broker.

    - `status`: running, stopping or gone.
    - `gone_at_ms`: 0: it is not gone, or the time is not known.
    - `not_added`: it is only registered.
    """

    broker_id: int
    status: str
    address: str
    rack: str
    broker_epoch: int
    maintenance: bool
    removed: bool
    replicas: int
    leaders: int
    preferred_leaders: int
    out_of_sync: int
    moves_in: int
    moves_out: int
    gone_at_ms: int
    not_added: bool = False


def state_to_wire(word: str) -> pb.OperationState.ValueType:
    """Raises INVALID_REQUEST for an unknown word."""
    return pb.OperationState.Value(_named(word, _STATE, pb.OperationState.keys()))


def kind_to_wire(word: str) -> pb.OperationKind.ValueType:
    """Raises INVALID_REQUEST for an unknown word."""
    return pb.OperationKind.Value(_named(word, _KIND, pb.OperationKind.keys()))


def move_to_wire(move: Move) -> pb.Move:
    return built(
        pb.Move,
        topic=move.topic,
        topic_id=move.topic_id,
        partition=move.partition,
        original=move.original,
        target=move.target,
    )


def move_from_wire(wire: pb.Move) -> Move:
    return Move(wire.topic, wire.partition, tuple(wire.target), tuple(wire.original), wire.topic_id)


def plan_from_wire(wire: pb.Plan) -> Plan:
    has_minimum = wire.HasField("minimum_replicas_added")
    return Plan(
        tuple(move_from_wire(move) for move in wire.moves),
        wire.move_count,
        wire.replicas_added,
        wire.leaders_changed,
        wire.minimum_replicas_added if has_minimum else None,
        tuple(
            BrokerShare(
                share.broker_id,
                share.replicas_before,
                share.replicas_after,
                share.leaders_before,
                share.leaders_after,
            )
            for share in wire.brokers
        ),
        tuple(wire.warnings),
        wire.digest,
    )


def operation_from_wire(wire: pb.Operation) -> Operation:
    progress = wire.progress
    return Operation(
        wire.operation_id,
        word_of(pb.OperationKind.Name(wire.kind), _KIND),
        word_of(pb.OperationState.Name(wire.state), _STATE),
        wire.reason,
        wire.request,
        wire.requested_by,
        wire.requested_from,
        wire.requested_at_ms,
        wire.ended_at_ms,
        wire.trace_id,
        Progress(
            progress.moves,
            progress.moves_done,
            progress.moves_active,
            progress.moves_dropped,
            progress.replicas_to_add,
            progress.replicas_added,
            progress.estimated_end_ms,
            progress.bytes_to_copy,
            progress.bytes_copied,
            progress.bytes_per_second,
            progress.moves_unmeasured,
        ),
        wire.revision,
    )


def moves_from_wire(wire: Iterable[pb.MoveProgress]) -> list[MoveProgress]:
    return [
        MoveProgress(
            move_from_wire(progress.move),
            word_of(pb.MoveState.Name(progress.state), "MOVE_STATE_"),
            tuple(progress.waits_for),
            progress.bytes_to_copy if progress.HasField("bytes_to_copy") else None,
            progress.bytes_copied if progress.HasField("bytes_copied") else None,
        )
        for progress in wire
    ]


def leaders_from_wire(wire: Iterable[pb.LeaderResult]) -> list[LeaderChange]:
    return [
        LeaderChange(
            result.topic,
            result.partition,
            result.leader_before,
            result.leader,
            error_from_wire(result.error) if result.HasField("error") else None,
        )
        for result in wire
    ]


def restart_from_wire(
    wire: pb.CheckRestartResponse, findings: Sequence[pb.RestartFinding]
) -> RestartCheck:
    """Converts the effects of a restart. `findings`: from all pages."""
    return RestartCheck(
        wire.safe,
        wire.unavailable,
        wire.under_min_isr,
        wire.last_replica,
        wire.leader_moves,
        tuple(
            RestartFinding(
                found.topic,
                found.partition,
                word_of(pb.RestartEffect.Name(found.effect), "RESTART_EFFECT_"),
                found.reason,
            )
            for found in findings
        ),
    )


def broker_from_wire(wire: pb.BrokerDetails) -> BrokerDetails:
    return BrokerDetails(
        wire.broker_id,
        word_of(pb.BrokerStatus.Name(wire.status), "BROKER_STATUS_"),
        wire.address,
        wire.rack,
        wire.broker_epoch,
        wire.maintenance,
        wire.removed,
        wire.replicas,
        wire.leaders,
        wire.preferred_leaders,
        wire.out_of_sync,
        wire.moves_in,
        wire.moves_out,
        wire.gone_at_ms,
        wire.not_added,
    )


def word_of(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def _named(word: str, prefix: str, names: Iterable[str]) -> str:
    known = [word_of(name, prefix) for name in names if not name.endswith("_UNSPECIFIED")]
    if word not in known:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, f"{word!r} is none of {', '.join(known)}; choose of these"
        )
    return f"{prefix}{word.upper()}"
