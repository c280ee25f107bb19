"""Operations of administrators: values of the store ("Operations" in docs/internals/protocol.md).

An operation's plan is written first, in chunks; the operation's own key is the commit point.
The progress follows from the partitions' keys, so any controller can continue the operation.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from tidelog.model import TopicPartition

# At about 100 bytes a move, a chunk is far below the store's limit on one value.
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
    """A broker's role in plans. A broker without a mark takes part once it holds replicas."""

    NOTHING = ""
    ADDED = "added"
    REMOVED = "removed"


class OperationMove(NamedTuple):
    """The move of one partition: its replicas before and after, the preferred leader first."""

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
    """Value of `admin/operations/<id>`. Times are wall clock; no decision uses times or bytes.

    - `request`: the request as canonical JSON, by which a repeated request is recognized.
    - `marks_before`: the previous marks of the brokers that the operation marks.
    - `factors_before`: topics with their ids and previous replication factors. A cancellation
      restores both.
    - `moves_done` and the fields after it: set when the operation ends.
    - `moves_unmeasured`: moves whose bytes were never known; `bytes_copied` excludes them.
    """

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
    """Value of three keys, each with its own meaning.

    - `admin/brokers_remove/<id>`: the broker receives no new replicas.
    - `admin/brokers_add/<id>`: the broker takes part in plans, whatever it holds.
    - `admin/maintenance/<id>`: the broker leads only partitions that no other replica can lead.
    """

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
