"""Writes plans of operations into the metadata store, and removes those that never began.

A plan's chunks are written first, then the operation's key, which is the commit point. Chunks
without that key are orphans. A transaction whose answer was lost may still be applied after the
same id was requested again with another plan. So every change of a chunk compares its revision. A
plan writes all its chunks again, the first one before the others. The commit compares the revision
of the first. A plan that has written the first chunk, or the removal of an orphan, thus invalidates
every other commit of that id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import (
    KeysRemoval,
    Mutation,
    OperationCommit,
    PlanChunkWrite,
)
from tidelog_controller.state.operation_registry import Operations, PlanChunk
from tidelog_runtime.metadata.keys import OperationKey, OperationPlanKey
from tidelog_runtime.metadata.operations import MOVES_PER_CHUNK, OperationMove

MAX_CHUNKS_IN_FLIGHT = 4
# The bound on a transaction's changes; an operation's chunks and its key fit into one.
MAX_KEYS_REMOVED = 110

_ABSENT = PlanChunk((), 0)
_WRITING = (PlanChunkWrite, OperationCommit)


@dataclass(slots=True)
class PlanWriting:
    """The writing of one plan.

    - `since`: by chunk, the revision under its id before the plan. A chunk of that revision was
      written by another attempt, whatever its content.
    - `written`: by chunk, the revision at which the plan's own chunk was found.
    """

    operation_id: str
    chunks: Sequence[tuple[OperationMove, ...]]
    since: dict[int, int]
    written: dict[int, int] = field(default_factory=dict)

    def missing(self, operations: Operations) -> list[PlanChunkWrite]:
        """The chunks that are still missing and may be written now."""
        held = operations.chunks.get(self.operation_id, {})
        missing: list[PlanChunkWrite] = []
        for number, moves in enumerate(self.chunks):
            known = held.get(number, _ABSENT)
            if known.revision == self.written.get(number):
                continue
            if known.revision > self.since.get(number, 0) and known.moves == moves:
                self.written[number] = known.revision
                continue
            missing.append(PlanChunkWrite(self.operation_id, number, moves, known.revision))
        return missing[:1] if missing and missing[0].chunk == 0 else missing


def plan_writing(
    operations: Operations, operation_id: str, moves: tuple[OperationMove, ...]
) -> PlanWriting:
    starts = range(0, len(moves), MOVES_PER_CHUNK)
    chunks = [moves[start : start + MOVES_PER_CHUNK] for start in starts]
    known = operations.chunks.get(operation_id, {})
    since = {number: chunk.revision for number, chunk in known.items()}
    return PlanWriting(operation_id, chunks, since)


def plan_revision(operations: Operations, operation_id: str) -> int:
    """The revision that a commit compares; 0: the plan has no chunks."""
    return operations.chunks.get(operation_id, {}).get(0, _ABSENT).revision


def unreadable_key(context: Context, operation_id: str) -> str | None:
    """A key of the operation or its plan that cannot be read and so must not be written."""
    for key in sorted(context.malformed):
        match context.keys.parse(key):
            case OperationKey(named) | OperationPlanKey(named, _) if named == operation_id:
                return key
    return None


def superfluous_keys(
    context: Context, begun: Collection[str], in_flight: Iterable[Mutation]
) -> list[KeysRemoval]:
    """Returns removals of the oldest ended operations, and of plans that never began.

    `begun`: operations that requests are beginning now.
    """
    keys, operations = context.keys, context.operations
    removals: list[KeysRemoval] = []
    for operation_id in operations.superfluous():
        key = (keys.operation(operation_id), operations.held[operation_id].revision)
        chunks = _chunk_keys(context, operation_id)
        removals.append(KeysRemoval((key,), tuple(chunk for chunk, _ in chunks)))
    orphans = operations.orphans()
    if not orphans:
        return removals
    busy = {*begun, *(p.operation_id for p in in_flight if isinstance(p, _WRITING))}
    for operation_id in orphans:
        absent = keys.operation(operation_id)
        chunks = _chunk_keys(context, operation_id)
        readable = tuple(chunk for chunk in chunks if chunk[0] not in context.malformed)
        if readable and operation_id not in busy and absent not in context.malformed:
            removals.append(KeysRemoval(readable, absent=(absent,)))
    return removals


def _chunk_keys(context: Context, operation_id: str) -> list[tuple[str, int]]:
    """The keys of the operation's chunks, with their revisions."""
    chunks = context.operations.chunks.get(operation_id, {})
    numbers = sorted(chunks)[:MAX_KEYS_REMOVED]
    return [(context.keys.operation_plan(operation_id, n), chunks[n].revision) for n in numbers]
