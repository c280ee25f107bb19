"""Operations, leader changes and recovery of a fake controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelog.admin_messages import (
    AcceptedOperation,
    BrokerShare,
    LeaderChange,
    Move,
    MoveProgress,
    Operation,
    Plan,
    Progress,
    RecoveredPartition,
    Recovery,
    RecoveryChoice,
    Survivor,
)
from tidelog.client.delivery import Delivery
from tidelog.client.event_streams import Gathered, Silent
from tidelog.client.published_events import Published
from tidelog.errors import (
    ErrorCode,
    InvalidBatchError,
    RecordsDamagedError,
    TidelogError,
    unknown_topic,
)
from tidelog.model import Record, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import Kind, StateChange
from tidelog.state_changes.tracing import TraceScope

MOVE = Move("sea", 0, (4, 2, 3), (1, 2, 3), "id-of-sea")
PLAN = Plan((MOVE,), 1, 1, 1, None, (BrokerShare(4, 0, 1, 0, 1),))
PROGRESS = Progress(4, 1, 1, 0, 4, 1, 0)


def operation(operation_id: str = "op", **fields: Any) -> Operation:
    defaults: dict[str, Any] = {
        "kind": "reassignment",
        "state": "running",
        "reason": "",
        "request": "{}",
        "requested_by": "ann",
        "requested_from": "127.0.0.1:5",
        "requested_at_ms": 1_000,
        "ended_at_ms": 0,
        "trace_id": "",
        "progress": PROGRESS,
        "revision": 412,
    }
    return Operation(operation_id, **(defaults | fields))


def recovery(partition: int = 0, topic: str = "sea") -> Recovery:
    survivor = Survivor(3, True, "", 4, 0, 1_200, True, 0, 1_198)
    return Recovery(topic, f"id-of-{topic}", partition, 412, (1, 2), "broker 1 or 2", (survivor,))


def how_begun(operation_id: str, expected_plan: str, *, dry_run: bool) -> dict[str, object]:
    """Arguments of the request; `expected_plan` only where one is given."""
    expected = {"expected_plan": expected_plan} if expected_plan else {}
    return {"operation_id": operation_id, "dry_run": dry_run, **expected}


class FakeOperations:
    """Fakes operations. `ends`: operations end at once. `changes`, `recovered`: results of
    leader and recovery requests."""

    operations: list[Operation]

    def __init__(self) -> None:
        self.ends = False
        self.cancellation = PLAN
        self.moves = [MoveProgress(MOVE, "active", (4,))]
        self.changes: list[LeaderChange] = []
        self.recoveries = [recovery()]
        self.recovered = [RecoveredPartition(0, None)]

    def record(self, name: str, *arguments: object, **named: object) -> None:
        raise NotImplementedError

    def _begin(self, operation_id: str, *, dry_run: bool) -> AcceptedOperation:
        state = "done" if self.ends else "running"
        began = operation(operation_id or "given-one", state=state)
        return AcceptedOperation(None if dry_run else began, PLAN)

    async def reassign(
        self,
        moves: Sequence[Move],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        how = how_begun(operation_id, expected_plan, dry_run=dry_run)
        self.record("reassign", moves, **how)
        return self._begin(operation_id, dry_run=dry_run)

    async def rebalance(
        self, *, operation_id: str = "", dry_run: bool = False, expected_plan: str = ""
    ) -> AcceptedOperation:
        self.record("rebalance", **how_begun(operation_id, expected_plan, dry_run=dry_run))
        return self._begin(operation_id, dry_run=dry_run)

    async def reverse_operation(
        self,
        reversed_operation_id: str,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        how = how_begun(operation_id, expected_plan, dry_run=dry_run)
        self.record("reverse_operation", reversed_operation_id, **how)
        return self._begin(operation_id, dry_run=dry_run)

    async def cancel_operation(self, operation_id: str, *, expected_revision: int = 0) -> Operation:
        self.record("cancel_operation", operation_id, expected_revision=expected_revision)
        state = "cancelled" if self.ends else "cancelling"
        return replace(await self.describe_operation(operation_id), state=state)

    async def plan_cancellation(self, operation_id: str, *, expected_revision: int = 0) -> Plan:
        self.record("plan_cancellation", operation_id, expected_revision=expected_revision)
        return self.cancellation

    async def describe_operation(self, operation_id: str) -> Operation:
        self.record("describe_operation", operation_id)
        for known in self.operations:
            if known.operation_id == operation_id:
                return known
        raise TidelogError(ErrorCode.UNKNOWN_OPERATION, f"no operation {operation_id!r} is known")

    async def operation_moves_page(
        self, operation_id: str, page_size: int, page_token: str = ""
    ) -> tuple[list[MoveProgress], str]:
        self.record("operation_moves_page", operation_id, page_size, page_token)
        return self.moves, "next"

    async def elect_preferred_leaders(
        self,
        partitions: Mapping[str, Sequence[int]] | None = None,
        timeout_ms: int = 0,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]:
        self.record("elect_preferred_leaders", partitions, timeout_ms, dry_run=dry_run)
        return self.changes

    async def move_leaders(
        self,
        leaders: Mapping[TopicPartition, int],
        timeout_ms: int = 0,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]:
        self.record("move_leaders", leaders, timeout_ms, dry_run=dry_run)
        return self.changes

    async def describe_recovery(
        self,
        topic: str = "",
        partitions: Sequence[int] = (),
        timeout_ms: int = 0,
        *,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[Recovery]:
        self.record("describe_recovery", topic, partitions, timeout_ms, choices=choices)
        return [r for r in self.recoveries if not partitions or r.partition in partitions]

    async def recover_partitions(
        self,
        topic: str,
        partitions: Sequence[int] = (),
        timeout_ms: int = 0,
        *,
        from_live_replicas: bool = False,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[RecoveredPartition]:
        self.record(
            "recover_partitions",
            topic,
            partitions,
            timeout_ms,
            from_live_replicas=from_live_replicas,
            choices=choices,
        )
        return self.recovered


class FakeEvents:
    """Fakes event streams. `batches`: events that a follower gets; `remembered`: past events of
    services."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[StateChange | Silent] | Exception] = asyncio.Queue()
        self.remembered: list[StateChange] = []
        self.silent: tuple[Silent, ...] = ()
        self.is_silent = False
        self.followed: list[TraceScope] = []
        self.limits: list[int] = []
        self.topics = ["sea"]

    async def recent(self, scope: TraceScope) -> Gathered:
        if self.is_silent:
            raise UnreachableError("any service", "it is gone")
        reported = [change for change in self.remembered if change.time_ms >= scope.since_ms]
        return Gathered(reported, (), self.silent, {})

    async def newest(
        self, limit: int, *, kinds: Sequence[Kind] = (), since_ms: int = 0
    ) -> Gathered:
        gathered = await self.recent(TraceScope(since_ms=since_ms))
        reported = [change for change in gathered.events if not kinds or change.kind in kinds]
        self.limits.append(limit)
        return gathered._replace(events=sorted(reported, key=lambda c: c.time_ms)[-limit:])

    async def require_known(
        self,
        scope: TraceScope,
        changes: Sequence[StateChange],  # noqa: ARG002 - the protocol's name
    ) -> None:
        if scope.topic and scope.topic not in self.topics:
            raise unknown_topic(scope.topic)

    async def follow(self, scope: TraceScope) -> AsyncGenerator[list[StateChange | Silent]]:
        self.followed.append(scope)
        while True:
            batch = await self.batches.get()
            if isinstance(batch, Exception):
                raise batch
            yield batch


class FakePublished:
    """Fakes the topic of state changes. `result`: its events; `scopes`: scopes that were read."""

    def __init__(self) -> None:
        self.result = Published([], ())
        self.scopes: list[TraceScope] = []
        self.may_answer: asyncio.Event | None = None

    async def read(self, scope: TraceScope) -> Published:
        self.scopes.append(scope)
        if self.may_answer is not None:
            await self.may_answer.wait()
        return self.result


class FakeProducer:
    """Delivers every record at once, except values that name another outcome. Topics that begin
    with `sea` have one partition; no other topic exists."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None, dict[str, Any]]] = []
        self.lookups = 0
        self.is_closed = False
        # A lost record stays pending until the sender gives up.
        self.cannot_flush = False

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, **options: Any
    ) -> asyncio.Future[Delivery]:
        self.lookups += 1
        if not topic.startswith("sea") or (options["partition"] or 0) > 0:
            raise TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")
        if value == b"large":
            raise TidelogError(ErrorCode.BATCH_TOO_LARGE, "it is too large")
        if value == b"no room":
            await asyncio.Event().wait()
        self.sent.append((value, key, options))
        outcome: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        if value == b"rejected":
            outcome.set_exception(TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"))
        elif value != b"lost":
            outcome.set_result(Delivery(topic, 0, len(self.sent) - 1, 1_000, 3))
        return outcome

    async def close(self, *, flush: bool = True) -> None:
        if flush and self.cannot_flush:
            await asyncio.Event().wait()
        self.is_closed = True


class FakeConsumer:
    """Reads one partition and skips offsets without a record. `damaged`: ranges (first, next) of
    unreadable offsets."""

    def __init__(self, records: Sequence[Record], start: int = 0, end: int | None = None) -> None:
        self.records = list(records)
        self.start = start
        self.end = len(self.records) + start if end is None else end
        self.at = -1
        self.waited_ms: list[int] = []
        self.is_closed = False
        self.damaged: list[tuple[int, int]] = []
        # Offset of an unreadable batch.
        self.unreadable: int | None = None
        self.of = TopicPartition("", -1)

    async def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        (self.of,) = partitions
        if not self.of.topic.startswith("sea"):
            raise unknown_topic(self.of.topic)
        return {self.of: self.start}

    async def end_offsets(self, _: Any) -> dict[TopicPartition, int]:
        return {self.of: self.end}

    async def offsets_at_time(self, timestamp_ms: int, _: Any) -> dict[TopicPartition, int]:
        found = (r.offset for r in self.records if r.timestamp_ms >= timestamp_ms)
        return {self.of: next(found, self.end)}

    def assign(self, _: Any) -> None: ...

    async def seek(self, _: Any, offset: int) -> None:
        self.at = offset

    def position(self, _: Any) -> int:
        return self.at

    async def poll(self, timeout_ms: int = 0, max_records: int = 0) -> list[Record]:
        self.waited_ms.append(timeout_ms)
        came = [r for r in self.records if r.offset >= self.at][:max_records]
        for first, following in self.damaged:
            if first <= self.at < following:
                raise RecordsDamagedError(
                    ErrorCode.RECORDS_DAMAGED,
                    f"the records at offsets {first} to {following - 1} were damaged",
                    first_offset=first,
                    next_offset=following,
                )
            if self.at < first:
                came = [r for r in came if r.offset < first]
                self.at = first
                return came
        if self.unreadable is not None:
            if self.at >= self.unreadable:
                raise InvalidBatchError(ErrorCode.INVALID_BATCH, "cannot be opened")
            came = [r for r in came if r.offset < self.unreadable]
        self.at = came[-1].offset + 1 if came else self.end
        return came

    async def close(self) -> None:
        self.is_closed = True
