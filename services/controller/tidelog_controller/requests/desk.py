"""Where administrators' requests come in: each goes to whom it concerns."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.requests.operation_admin import OperationAdmin
from tidelog_controller.requests.operation_views import describe_operation, list_operations
from tidelog_controller.requests.partition_admin import PartitionAdmin
from tidelog_controller.requests.recovery_admin import RecoveryAdmin
from tidelog_controller.requests.throttle_admin import ThrottleAdmin
from tidelog_controller.requests.topic_admin import TopicAdmin
from tidelog_controller.requests.topic_config_admin import TopicConfigAdmin
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    BeginOperation,
    CancelOperation,
    DescribeOperation,
    DescribeThrottle,
    ListOperations,
    RemovePartitions,
    SetThrottle,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import (
    AdminRequest,
    CreateTopic,
    DeleteTopic,
    RecoverPartitions,
)
from tidelog_controller.state.transactions import Transactions


class AdminDesk:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        controls: Mapping[int, BrokerControl],
        rng: random.Random,
        internal_topics: Sequence[InternalTopic],
    ) -> None:
        self.topics = TopicAdmin(context, transactions, controls, rng, internal_topics)
        self._partitions = PartitionAdmin(context, transactions, controls)
        self._configs = TopicConfigAdmin(context, transactions, controls)
        self._recoveries = RecoveryAdmin(context, transactions)
        self._operations = OperationAdmin(context, transactions, rng)
        self._throttle = ThrottleAdmin(context, transactions)
        self._context = context

    def take(self, request: AdminRequest, now_ms: int, wall_ms: int) -> list[Command]:
        """Refuses what cannot be, or begins; `advance` does the rest."""
        match request:
            case CreateTopic():
                return self.topics.create(request, now_ms)
            case DeleteTopic():
                return self.topics.delete(request, now_ms)
            case AlterTopicConfig():
                return self._configs.alter(request, now_ms)
            case AddPartitions() | RemovePartitions():
                return self._partitions.resize(request, now_ms)
            case RecoverPartitions():
                return self._recoveries.recover(request, now_ms)
            case BeginOperation():
                return self._operations.begin(request, now_ms, wall_ms)
            case CancelOperation():
                return self._operations.cancel(request, now_ms)
            case SetThrottle():
                return self._throttle.set(request, now_ms)
            case DescribeThrottle():
                return self._throttle.describe(request)
            case ListOperations() | DescribeOperation():
                return [Reply(request.request_id, self._described(request, wall_ms))]

    def _described(self, request: ListOperations | DescribeOperation, wall_ms: int) -> AdminReply:
        try:
            if isinstance(request, ListOperations):
                return AdminReply(None, answer=list_operations(self._context, request, wall_ms))
            return AdminReply(None, answer=describe_operation(self._context, request, wall_ms))
        except TidelogError as error:
            return AdminReply(error)

    def advance(self, now_ms: int, wall_ms: int) -> list[Command]:
        """What the waiting requests and the standing intents now need."""
        return [
            *self.topics.advance(now_ms),
            *self._partitions.advance(now_ms),
            *self._configs.advance(now_ms),
            *self._recoveries.advance(now_ms),
            *self._operations.advance(now_ms, wall_ms),
            *self._throttle.advance(now_ms),
        ]

    def wake_at_ms(self) -> int | None:
        times = [
            self.topics.wake_at_ms(),
            self._partitions.wake_at_ms(),
            self._configs.wake_at_ms(),
            self._recoveries.wake_at_ms(),
            self._operations.wake_at_ms(),
            self._throttle.wake_at_ms(),
        ]
        return min((time for time in times if time is not None), default=None)
