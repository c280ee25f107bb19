"""Requests that begin, follow and end operations, and bound what they carry.

Every try of a request has one operation id, chosen here unless the caller did: whichever of
them the controller takes, it is one operation."""

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

# Each is bound by what the controller keeps, or by what a plan may have.
PAGE_SIZE = 1_000
MAX_PAGES = 1_000


class _Begun(Protocol):
    @property
    def operation(self) -> pb.Operation: ...

    @property
    def plan(self) -> pb.Plan: ...


@checks_arguments(moves=several(instance(Move)))
class OperationRequests:
    """`expected_plan`: the digest of the plan that a dry run gave. What would not be exactly that
    any more is refused with REVISION_CONFLICT."""

    _controllers: ControllerCalls

    def new_operation_id(self) -> str:
        """To be kept by who may have to ask again: the same request by the same id is the same
        operation."""
        return self._controllers.new_operation_id()

    async def reassign(
        self,
        moves: Sequence[Move],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation:
        """Moves partitions to the replicas that are named. The moves of a dry run's plan, given
        here, are made exactly, or refused where something has changed."""
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
        """Moves the least that balances replicas and leaders over the present brokers."""
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
        """Gives brokers that have registered their share of what there is."""
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
        """Moves everything off brokers, which may be dead; when the operation is done they may
        be stopped for good."""
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
        """Gives all partitions of topics another number of replicas."""
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
        """Moves back what an operation has moved."""
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
        """Stops an operation; what is under way goes back. Asking again is no fault."""
        request = built(
            pb.CancelOperationRequest,
            operation_id=operation_id,
            expected_revision=expected_revision,
        )
        answer = await self._controllers.ask(lambda api, ms: api.cancel_operation(request, ms))
        return operation_from_wire(answer.operation)

    async def plan_cancellation(self, operation_id: str, *, expected_revision: int = 0) -> Plan:
        """What a cancellation would move back."""
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
        """Those that run, and the last that have ended; the newest first. `states`, `kinds`: of
        these alone, as `Operation` names them."""
        found: list[Operation] = []
        token = ""
        for _ in range(MAX_PAGES):
            request = built(
                pb.ListOperationsRequest,
                # There are few of each, however often they are named.
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
        """Each of its moves, as it stands."""
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
        """Some of its moves by topic and partition, and the token of the next page; empty: these
        were the last."""
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
        """Bounds what moves carry, also while they run; None: no more. The revision of a dry
        run is that of the bound which stands."""
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
