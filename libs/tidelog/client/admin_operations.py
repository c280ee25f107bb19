"""Admin requests that start, describe and end operations, and limit their bandwidth.

All tries of a request have the same operation id, which the caller or this module chooses. So
they start one operation, whichever try reaches the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.client.arguments import checks_arguments, instance, several
from tidelog.client.controller_calls import ControllerCalls
from tidelog.client.operations import (
    BegunOperation,
    Move,
    MoveProgress,
    Operation,
    Plan,
    Throttle,
    kind_to_wire,
    move_to_wire,
    moves_from_wire,
    operation_from_wire,
    plan_from_wire,
    state_to_wire,
)
from tidelog.client.request_fields import built
from tidelog.v1 import admin_pb2 as pb

# The number of operations that the controller keeps, or the size of a plan, bounds each list.
PAGE_SIZE = 1_000
MAX_PAGES = 1_000


class _Begun(Protocol):
    @property
    def operation(self) -> pb.Operation: ...

    @property
    def plan(self) -> pb.Plan: ...


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
    ) -> BegunOperation:
        """Reassigns partitions to the given replicas. Moves from the plan of a dry run are made
        exactly as planned, or rejected if something has changed."""
        request = built(
            pb.ReassignRequest,
            moves=[move_to_wire(move) for move in moves],
            operation_id=self._id(operation_id, dry_run=dry_run),
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(lambda api, ms: api.reassign(request, ms))
        return _begun(answer, dry_run=dry_run)

    async def rebalance(
        self, *, operation_id: str = "", dry_run: bool = False, expected_plan: str = ""
    ) -> BegunOperation:
        """Balances replicas and leaders over the participating brokers with the fewest moves."""
        operation_id = self._id(operation_id, dry_run=dry_run)
        request = built(
            pb.RebalanceRequest,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(lambda api, ms: api.rebalance(request, ms))
        return _begun(answer, dry_run=dry_run)

    async def add_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation:
        """Moves a fair share of the existing replicas to newly registered brokers."""
        operation_id = self._id(operation_id, dry_run=dry_run)
        request = built(
            pb.AddBrokersRequest,
            broker_ids=broker_ids,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(lambda api, ms: api.add_brokers(request, ms))
        return _begun(answer, dry_run=dry_run)

    async def remove_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation:
        """Moves all replicas off brokers, which may be dead. The brokers can be stopped permanently
        when the operation is done."""
        operation_id = self._id(operation_id, dry_run=dry_run)
        request = built(
            pb.RemoveBrokersRequest,
            broker_ids=broker_ids,
            operation_id=operation_id,
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(lambda api, ms: api.remove_brokers(request, ms))
        return _begun(answer, dry_run=dry_run)

    async def set_replication_factor(
        self,
        topics: Sequence[str],
        replication_factor: int,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation:
        """Changes the number of replicas of all partitions of topics."""
        request = built(
            pb.SetReplicationFactorRequest,
            topics=topics,
            replication_factor=replication_factor,
            operation_id=self._id(operation_id, dry_run=dry_run),
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(
            lambda api, ms: api.set_replication_factor(request, ms)
        )
        return _begun(answer, dry_run=dry_run)

    async def reverse_operation(
        self,
        reversed_operation_id: str,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation:
        """Reverses the moves of an operation."""
        request = built(
            pb.ReverseOperationRequest,
            reversed_operation_id=reversed_operation_id,
            operation_id=self._id(operation_id, dry_run=dry_run),
            dry_run=dry_run,
            expected_plan=expected_plan,
        )
        answer = await self._controllers.ask(lambda api, ms: api.reverse_operation(request, ms))
        return _begun(answer, dry_run=dry_run)

    async def cancel_operation(self, operation_id: str, *, expected_revision: int = 0) -> Operation:
        """Cancels an operation; its active moves return to the original replicas. Can be
        repeated."""
        request = built(
            pb.CancelOperationRequest,
            operation_id=operation_id,
            expected_revision=expected_revision,
        )
        answer = await self._controllers.ask(lambda api, ms: api.cancel_operation(request, ms))
        return operation_from_wire(answer.operation)

    async def plan_cancellation(self, operation_id: str, *, expected_revision: int = 0) -> Plan:
        """Returns the moves that a cancellation would reverse."""
        request = built(
            pb.CancelOperationRequest,
            operation_id=operation_id,
            expected_revision=expected_revision,
            dry_run=True,
        )
        answer = await self._controllers.ask(lambda api, ms: api.cancel_operation(request, ms))
        return plan_from_wire(answer.plan)

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
                states=dict.fromkeys(map(state_to_wire, states)),
                kinds=dict.fromkeys(map(kind_to_wire, kinds)),
                page_size=PAGE_SIZE,
                page_token=token,
            )
            answer = await self._listed(request)
            found += [operation_from_wire(operation) for operation in answer.operations]
            token = answer.next_page_token
            if not token:
                break
        return found

    async def _listed(self, request: pb.ListOperationsRequest) -> pb.ListOperationsResponse:
        return await self._controllers.ask(lambda api, ms: api.list_operations(request, ms))

    async def describe_operation(self, operation_id: str) -> Operation:
        request = built(pb.DescribeOperationRequest, operation_id=operation_id, page_size=1)
        return operation_from_wire((await self._described(request)).operation)

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
        answer = await self._described(request)
        return moves_from_wire(answer.moves), answer.next_page_token

    async def _described(
        self, request: pb.DescribeOperationRequest
    ) -> pb.DescribeOperationResponse:
        return await self._controllers.ask(lambda api, ms: api.describe_operation(request, ms))

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
        answer = await self._controllers.ask(lambda api, ms: api.set_throttle(request, ms))
        return Throttle(bytes_per_second, answer.revision)

    async def describe_throttle(self) -> Throttle:
        request = pb.DescribeThrottleRequest()
        answer = await self._controllers.ask(lambda api, ms: api.describe_throttle(request, ms))
        bound = answer.throttle
        is_bound = bound.HasField("bytes_per_second")
        return Throttle(bound.bytes_per_second if is_bound else None, answer.revision)

    def _id(self, chosen: str, *, dry_run: bool) -> str:
        return chosen if chosen or dry_run else self.new_operation_id()


def _begun(answer: _Begun, *, dry_run: bool) -> BegunOperation:
    operation = None if dry_run else operation_from_wire(answer.operation)
    return BegunOperation(operation, plan_from_wire(answer.plan))
