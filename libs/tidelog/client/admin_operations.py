"""Admin requests that start, describe and end operations, and limit their bandwidth.

All tries of a request have the same operation id, which the caller or this module chooses. So
they start one operation, whichever try reaches the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.message import Message

from tidelog.admin_messages import (
    AcceptedOperation,
    FeatureLevel,
    Move,
    MoveProgress,
    Operation,
    Plan,
    Throttle,
)
from tidelog.change_warnings import of_replication_factor
from tidelog.client.arguments import checks_arguments, instance, several
from tidelog.client.controller_calls import ControllerCalls
from tidelog.client.request_fields import built, built_from
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.message_codec import from_wire, words_of
from tidelog.v1 import admin_pb2 as pb

_Begun = TypeVar(
    "_Begun",
    pb.ReassignResponse,
    pb.RebalanceResponse,
    pb.AddBrokersResponse,
    pb.RemoveBrokersResponse,
    pb.SetReplicationFactorResponse,
    pb.ReverseOperationResponse,
)

# The number of operations that the controller keeps, or the size of a plan, bounds each list.
PAGE_SIZE = 1_000
MAX_PAGES = 1_000


@checks_arguments(moves=several(instance(Move)))
class OperationRequests:
    """Operation requests of `Admin`.

    `expected_plan`: digest of a dry run's plan. The controller rejects the request with
    REVISION_CONFLICT if its plan has changed since."""

    _controllers: ControllerCalls

    def new_operation_id(self) -> str:
        """Returns an id for a request that the caller may have to repeat. The same request with
        the same id is the same operation."""
        return self._controllers.new_operation_id()

    async def reassign(
        self,
        moves: Sequence[Move],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        """Reassigns partitions to the given replicas. Moves from the plan of a dry run are made
        exactly as planned, or rejected if something has changed."""
        return await self._begin(
            pb.ReassignRequest,
            pb.ReassignResponse,
            moves=[built_from(move, pb.Move) for move in moves],
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )

    async def rebalance(
        self, *, operation_id: str = "", dry_run: bool = False, expected_plan: str = ""
    ) -> AcceptedOperation:
        """Balances replicas and leaders over the participating brokers with the fewest moves."""
        return await self._begin(
            pb.RebalanceRequest,
            pb.RebalanceResponse,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )

    async def add_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        """Moves a fair share of the existing replicas to newly registered brokers."""
        return await self._begin(
            pb.AddBrokersRequest,
            pb.AddBrokersResponse,
            broker_ids=broker_ids,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )

    async def remove_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        """Moves all replicas off brokers, which may be dead. The brokers can be stopped permanently
        when the operation is done."""
        return await self._begin(
            pb.RemoveBrokersRequest,
            pb.RemoveBrokersResponse,
            broker_ids=broker_ids,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )

    async def set_replication_factor(
        self,
        topics: Sequence[str],
        replication_factor: int,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        """Changes the number of replicas of all partitions of topics."""
        accepted = await self._begin(
            pb.SetReplicationFactorRequest,
            pb.SetReplicationFactorResponse,
            topics=topics,
            replication_factor=replication_factor,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        plan = accepted.plan
        warnings = (*plan.warnings, *of_replication_factor(topics, replication_factor))
        return replace(accepted, plan=replace(plan, warnings=warnings))

    async def reverse_operation(
        self,
        reversed_operation_id: str,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        """Reverses the moves of an operation."""
        return await self._begin(
            pb.ReverseOperationRequest,
            pb.ReverseOperationResponse,
            reversed_operation_id=reversed_operation_id,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )

    async def cancel_operation(self, operation_id: str, *, expected_revision: int = 0) -> Operation:
        """Cancels an operation; its active moves return to the original replicas. Can be
        repeated."""
        request = built(
            pb.CancelOperationRequest,
            operation_id=operation_id,
            expected_revision=expected_revision,
        )
        answer = await self._controllers.ask(request, pb.CancelOperationResponse)
        return from_wire(answer.operation, Operation)

    async def plan_cancellation(self, operation_id: str, *, expected_revision: int = 0) -> Plan:
        """Returns the moves that a cancellation would reverse."""
        request = built(
            pb.CancelOperationRequest,
            operation_id=operation_id,
            expected_revision=expected_revision,
            dry_run=True,
        )
        answer = await self._controllers.ask(request, pb.CancelOperationResponse)
        return from_wire(answer.plan, Plan)

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]:
        """Returns running operations and the last ones that have ended, newest first. `states`,
        `kinds`: only these, in the words of `Operation`; empty: all."""
        found: list[Operation] = []
        token = ""
        for _ in range(MAX_PAGES):
            request = built(
                pb.ListOperationsRequest,
                # Each enum has few members, however often the caller names them.
                states=dict.fromkeys(_number(word, pb.OperationState) for word in states),
                kinds=dict.fromkeys(_number(word, pb.OperationKind) for word in kinds),
                page_size=PAGE_SIZE,
                page_token=token,
            )
            answer = await self._controllers.ask(request, pb.ListOperationsResponse)
            found += [from_wire(operation, Operation) for operation in answer.operations]
            token = answer.next_page_token
            if not token:
                break
        return found

    async def describe_operation(self, operation_id: str) -> Operation:
        """Returns the state of an operation. Raises UNKNOWN_OPERATION."""
        request = built(pb.DescribeOperationRequest, operation_id=operation_id, page_size=1)
        answer = await self._controllers.ask(request, pb.DescribeOperationResponse)
        return from_wire(answer.operation, Operation)

    async def operation_moves(self, operation_id: str) -> list[MoveProgress]:
        """Returns the progress of all moves of an operation."""
        found: list[MoveProgress] = []
        token = ""
        for _ in range(MAX_PAGES):
            moves, token = await self.operation_moves_page(operation_id, PAGE_SIZE, token)
            found += moves
            if not token:
                break
        return found

    async def operation_moves_page(
        self, operation_id: str, page_size: int, page_token: str = ""
    ) -> tuple[list[MoveProgress], str]:
        """Returns one page of moves, ordered by topic and partition, and the token of the next
        page; empty: this is the last page."""
        request = built(
            pb.DescribeOperationRequest,
            operation_id=operation_id,
            page_size=page_size,
            page_token=page_token,
        )
        answer = await self._controllers.ask(request, pb.DescribeOperationResponse)
        moves = [from_wire(progress, MoveProgress) for progress in answer.moves]
        return moves, answer.next_page_token

    async def set_throttle(
        self,
        bytes_per_second: int | None,
        *,
        expected_revision: int = 0,
        dry_run: bool = False,
    ) -> Throttle:
        """Limits the bandwidth of moves, including those in progress; None: no limit. A dry run
        returns the revision of the current limit."""
        request = built(
            pb.SetThrottleRequest,
            throttle=built(pb.Throttle, bytes_per_second=bytes_per_second),
            expected_revision=expected_revision,
            dry_run=dry_run,
        )
        answer = await self._controllers.ask(request, pb.SetThrottleResponse)
        return Throttle(bytes_per_second, answer.revision)

    async def describe_throttle(self) -> Throttle:
        """Returns the limit on the bandwidth of moves."""
        request = pb.DescribeThrottleRequest()
        answer = await self._controllers.ask(request, pb.DescribeThrottleResponse)
        bound = answer.throttle
        is_bound = bound.HasField("bytes_per_second")
        return Throttle(bound.bytes_per_second if is_bound else None, answer.revision)

    async def raise_feature_level(
        self, level: int, *, expected_revision: int = 0, dry_run: bool = False
    ) -> int:
        """Raises the feature level of the cluster; returns the level before. A level is never
        lowered. Raises UNSUPPORTED_VERSION, which names them, while registered processes do not
        support the level."""
        request = built(
            pb.RaiseFeatureLevelRequest,
            level=level,
            expected_revision=expected_revision,
            dry_run=dry_run,
        )
        return (await self._controllers.ask(request, pb.RaiseFeatureLevelResponse)).before

    async def describe_feature_level(self) -> FeatureLevel:
        """Returns the feature level of the cluster, and which levels its processes support."""
        request = pb.DescribeFeatureLevelRequest()
        answer = await self._controllers.ask(request, pb.DescribeFeatureLevelResponse)
        return from_wire(answer, FeatureLevel)

    async def _begin(
        self,
        request_type: Callable[..., Message],
        response_type: type[_Begun],
        *,
        operation_id: str,
        dry_run: bool,
        **fields: object,
    ) -> AcceptedOperation:
        operation_id = operation_id or ("" if dry_run else self.new_operation_id())
        request = built(request_type, operation_id=operation_id, dry_run=dry_run, **fields)
        answer = await self._controllers.ask(request, response_type)
        operation = None if dry_run else from_wire(answer.operation, Operation)
        return from_wire(answer, AcceptedOperation, operation=operation)


def _number(word: str, enum_type: Any) -> Any:
    """Raises INVALID_REQUEST for an unknown word."""
    known = {word: number for number, word in words_of(enum_type.DESCRIPTOR).items() if number}
    if word not in known:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, f"{word!r} is none of {', '.join(known)}; choose of these"
        )
    return known[word]
