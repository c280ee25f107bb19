"""The methods of `tidelog.client.Admin` for operations, leaders and recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.admin_messages import (
    BegunOperation,
    LeaderChange,
    Move,
    MoveProgress,
    Operation,
    Plan,
    RecoveredPartition,
    Recovery,
    RecoveryChoice,
)
from tidelog.model import TopicPartition


class OperationsAdmin(Protocol):
    async def reassign(
        self,
        moves: Sequence[Move],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation: ...

    async def rebalance(
        self, *, operation_id: str = "", dry_run: bool = False, expected_plan: str = ""
    ) -> BegunOperation: ...

    async def reverse_operation(
        self,
        reversed_operation_id: str,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> BegunOperation: ...

    async def cancel_operation(
        self, operation_id: str, *, expected_revision: int = 0
    ) -> Operation: ...

    async def plan_cancellation(self, operation_id: str, *, expected_revision: int = 0) -> Plan: ...

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]: ...

    async def describe_operation(self, operation_id: str) -> Operation: ...

    async def operation_moves_page(
        self, operation_id: str, page_size: int, page_token: str = ""
    ) -> tuple[list[MoveProgress], str]: ...


class LeadersAdmin(Protocol):
    async def elect_preferred_leaders(
        self,
        partitions: Mapping[str, Sequence[int]] | None = None,
        timeout_ms: int = ...,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]: ...

    async def move_leaders(
        self,
        leaders: Mapping[TopicPartition, int],
        timeout_ms: int = ...,
        *,
        dry_run: bool = False,
    ) -> list[LeaderChange]: ...


class RecoveryAdmin(Protocol):
    async def describe_recovery(
        self,
        topic: str = "",
        partitions: Sequence[int] = (),
        timeout_ms: int = ...,
        *,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[Recovery]: ...

    async def recover_partitions(
        self,
        topic: str,
        partitions: Sequence[int] = (),
        timeout_ms: int = ...,
        *,
        from_live_replicas: bool = False,
        choices: Sequence[RecoveryChoice] = (),
    ) -> list[RecoveredPartition]: ...
