"""What operators have asked for and what takes its time: values of the metadata store
(section 2 of docs/internals/protocol.md).

An operation's plan is written first, in chunks; its own key is the commit point. How far it has
come follows from the partitions' keys, so that any controller goes on with it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from tidelog.model import TopicPartition

# About 100 bytes each: a chunk is far below what the store takes as one value.
MOVES_PER_CHUNK = 1_000
MAX_CHUNKS = 100
MAX_MOVES = MOVES_PER_CHUNK * MAX_CHUNKS


class OperationKind(enum.Enum):
    REASSIGNMENT = "reassignment"
    REBALANCE = "rebalance"
    BROKERS_ADD = "brokers_add"
    BROKERS_REMOVE = "brokers_remove"
    SET_REPLICATION_FACTOR = "set_replication_factor"
    REVERSAL = "reversal"


class OperationState(enum.Enum):
    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self not in (OperationState.RUNNING, OperationState.CANCELLING)


class MarkedAs(enum.Enum):
    """What becomes of a broker in plans. One with neither mark takes part once it holds
    replicas."""

    NOTHING = ""
    ADDED = "added"
    REMOVED = "removed"


class OperationMove(NamedTuple):
    """`original`, `target`: replicas before and after, the first the preferred leader."""

    topic: str
    topic_id: str
    partition: int
    original: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(b for b in self.target if b not in self.original)


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """Value of `admin/operations/<id>`. `request`: what was asked, as JSON in one form, so that
    the same request is known again. `marks_before`: what the brokers that it marks were marked
    as before; `factors_before`: topics with their ids and the replication factors that they had:
    what a cancellation takes back. `moves_done` and all after it: at its end;
    `moves_unmeasured`: moves that `bytes_copied` leaves out, because nobody asked for theirs.
    Times are wall clock, and told alone, as bytes are."""

    kind: OperationKind
    request: str
    requested_by: str
    requested_from: str
    requested_at_ms: int
    trace_id: str
    state: OperationState
    reason: str
    ended_at_ms: int
    moves: int
    chunks: int
    replicas_to_add: int
    marks_before: tuple[tuple[int, str], ...] = ()
    factors_before: tuple[tuple[str, str, int], ...] = ()
    moves_done: int = 0
    moves_dropped: int = 0
    bytes_copied: int = 0
    moves_unmeasured: int = 0


@dataclass(frozen=True, slots=True)
class BrokerMark:
    """Value of `admin/brokers_remove/<id>`: the broker takes no new replicas; of
    `admin/brokers_add/<id>`: it takes part in plans whatever it holds; and of
    `admin/maintenance/<id>`: it leads only what nobody else can."""

    requested_by: str = ""
    operation_id: str = ""


def encode_operation(entry: OperationEntry) -> bytes:
    raw = {**asdict(entry), "kind": entry.kind.value, "state": entry.state.value}
    return _dump(raw)


def decode_operation(value: bytes) -> OperationEntry:
    raw = json.loads(value)
    kind, state = OperationKind(raw["kind"]), OperationState(raw["state"])
    lists = {
        name: tuple(tuple(item) for item in raw.get(name, ()))
        for name in ("marks_before", "factors_before")
    }
    return OperationEntry(**{**raw, **lists, "kind": kind, "state": state})


def encode_moves(moves: Iterable[OperationMove]) -> bytes:
    return _dump([list(move) for move in moves])


def decode_moves(value: bytes) -> tuple[OperationMove, ...]:
    return tuple(
        OperationMove(topic, topic_id, partition, tuple(original), tuple(target))
        for topic, topic_id, partition, original, target in json.loads(value)
    )


def encode_mark(mark: BrokerMark) -> bytes:
    return _dump(asdict(mark))


def decode_mark(value: bytes) -> BrokerMark:
    return BrokerMark(**json.loads(value))


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
