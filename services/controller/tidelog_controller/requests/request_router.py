"""The entry of admin requests: routes each to its handler."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial

from tidelog.errors import TidelogError
from tidelog.request_bounds import check_timeout
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.control.log_descriptions import Descriptions
from tidelog_controller.control.move_progress_probe import MoveProgressProbe
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.policies.leader_balance import LeaderBalancing
from tidelog_controller.requests.cluster_descriptions import (
    checked_restart,
    describe_brokers,
    describe_topics,
)
from tidelog_controller.requests.describe_operation import DescribeOperationHandler
from tidelog_controller.requests.describe_recovery import DescribeRecoveryHandler
from tidelog_controller.requests.leader_admin import LeaderAdmin
from tidelog_controller.requests.level_admin import LevelAdmin
from tidelog_controller.requests.operation_admin import OperationAdmin
from tidelog_controller.requests.operation_views import Now, list_operations
from tidelog_controller.requests.partition_admin import PartitionAdmin
from tidelog_controller.requests.placement_queue import PlacementQueue
from tidelog_controller.requests.recovery_admin import RecoveryAdmin
from tidelog_controller.requests.snapshot_reads import ClusterView, SnapshotReads
from tidelog_controller.requests.throttle_admin import ThrottleAdmin
from tidelog_controller.requests.topic_admin import TopicAdmin
from tidelog_controller.requests.topic_config_admin import TopicConfigAdmin
from tidelog_controller.state.admin_answers import Answer
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    BeginOperation,
    CancelOperation,
    CheckRestart,
    DescribeBrokers,
    DescribeFeatureLevel,
    DescribeOperation,
    DescribeRecovery,
    DescribeThrottle,
    DescribeTopics,
    ElectPreferredLeaders,
    ListOperations,
    MoveLeaders,
    RaiseFeatureLevel,
    RemovePartitions,
    SetMaintenance,
    SetThrottle,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import (
    AdminRequest,
    CreateTopic,
    DeleteTopic,
    PlacesFound,
    PlanMade,
    RecoverPartitions,
    SnapshotRead,
)
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import Departure

_OperationRequest = (
    BeginOperation
    | CancelOperation
    | SetThrottle
    | DescribeThrottle
    | RaiseFeatureLevel
    | DescribeFeatureLevel
    | ElectPreferredLeaders
    | MoveLeaders
    | SetMaintenance
    | DescribeRecovery
    | DescribeOperation
    | ListOperations
)
_Query = CheckRestart | DescribeBrokers | DescribeTopics


class AdminRequestRouter:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        controls: Mapping[int, BrokerControl],
        rng: random.Random,
        internal_topics: Sequence[InternalTopic],
        departed: Mapping[int, Departure],
        descriptions: Descriptions,
        move_progress: MoveProgressProbe,
        leader_balancing: LeaderBalancing | None,
    ) -> None:
        self._reads = SnapshotReads(context, departed)
        self.topics = TopicAdmin(context, transactions, controls, rng, internal_topics)
        self._partitions = PartitionAdmin(context, transactions, controls)
        self._placement_queue = PlacementQueue(context)
        self._configs = TopicConfigAdmin(context, transactions, controls, self._reads)
        self._recoveries = RecoveryAdmin(context, transactions)
        self._leaders = LeaderAdmin(context, transactions, leader_balancing, self._reads)
        self._operations = OperationAdmin(context, transactions, rng, self._leaders.elections_done)
        self._throttle = ThrottleAdmin(context, transactions)
        self._levels = LevelAdmin(context, transactions)
        self._describe_recovery = DescribeRecoveryHandler(context, descriptions, self._reads)
        self._describe_operation = DescribeOperationHandler(context, move_progress)
        self._context = context

    def handle(self, request: AdminRequest, now_ms: int, wall_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        try:
            timeout_ms = getattr(request, "timeout_ms", 0)
            if timeout_ms:
                check_timeout(timeout_ms)
            if isinstance(request, CreateTopic | AddPartitions) and self._placement_queue.take(
                request
            ):
                return []
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
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
            case moving_or_asking:
                return self._take_operation_or_query(moving_or_asking, now_ms, wall_ms)

    def _take_operation_or_query(
        self, request: _OperationRequest | _Query, now_ms: int, wall_ms: int
    ) -> list[Command]:
        match request:
            case BeginOperation():
                return self._operations.begin(request, Now(now_ms, wall_ms))
            case CancelOperation():
                return self._operations.cancel(request, Now(now_ms, wall_ms))
            case SetThrottle():
                return self._throttle.set(request, now_ms)
            case DescribeThrottle():
                return self._throttle.describe(request)
            case RaiseFeatureLevel() | DescribeFeatureLevel():
                return self._levels.handle(request, now_ms)
            case ElectPreferredLeaders():
                return self._leaders.elect(request, now_ms)
            case MoveLeaders():
                return self._leaders.move(request, now_ms)
            case DescribeRecovery():
                return self._describe_recovery.handle(request, now_ms)
            case DescribeOperation():
                return self._describe_operation.handle(request, now_ms)
            case SetMaintenance():
                return self._leaders.maintain(request, now_ms)
            case ListOperations():
                return self._listed(request, Now(now_ms, wall_ms))
            case query:
                return self._answer_from_snapshot(query)

    def _answer_from_snapshot(self, query: _Query) -> list[Command]:
        return self._reads.submit(
            query.request_id,
            partial(answer, query),
            lambda found: [Reply(query.request_id, AdminReply(None, answer=found))],
        )

    def _listed(self, request: ListOperations, now: Now) -> list[Command]:
        try:
            reply = AdminReply(None, answer=list_operations(self._context, request, now))
        except TidelogError as error:
            reply = AdminReply(error)
        return [Reply(request.request_id, reply)]

    def _placed(self, event: PlacesFound, now_ms: int) -> list[Command]:
        """Continues the request whose placement was computed."""
        request = self._placement_queue.found(event)
        if request is None:
            return []
        if event.error is not None:
            return [Reply(request.request_id, AdminReply(event.error))]
        if isinstance(request, CreateTopic):
            return self.topics.create(request, now_ms, event.places)
        return self._partitions.resize(request, now_ms, event.places)

    def handle_result(
        self, event: PlanMade | PlacesFound | SnapshotRead, now_ms: int, wall_ms: int
    ) -> list[Command]:
        """Takes a result that was computed outside the event loop."""
        match event:
            case PlacesFound():
                return self._placed(event, now_ms)
            case SnapshotRead():
                return self._reads.done(event)
            case PlanMade():
                return self._operations.planned(event, Now(now_ms, wall_ms))

    def advance(self, now_ms: int, wall_ms: int) -> list[Command]:
        """Returns the commands that waiting requests and stored intents need now."""
        return [
            *self._placement_queue.due(),
            *self._reads.due(),
            *self.topics.advance(now_ms),
            *self._partitions.advance(now_ms),
            *self._configs.advance(now_ms),
            *self._recoveries.advance(now_ms),
            # An operation ends once its leaders are elected.
            *self._leaders.advance(now_ms),
            *self._operations.advance(Now(now_ms, wall_ms)),
            *self._describe_operation.advance(Now(now_ms, wall_ms)),
            *self._throttle.advance(now_ms),
            *self._levels.advance(now_ms),
            *self._describe_recovery.advance(now_ms),
        ]

    @property
    def has_more(self) -> bool:
        """Whether requests need further steps at once: each does a bounded part of their work."""
        return self._describe_recovery.has_more or self._leaders.has_more or self._configs.has_more

    def wake_at_ms(self) -> int | None:
        times = [
            self.topics.wake_at_ms(),
            self._partitions.wake_at_ms(),
            self._configs.wake_at_ms(),
            self._recoveries.wake_at_ms(),
            self._operations.wake_at_ms(),
            self._throttle.wake_at_ms(),
            self._levels.wake_at_ms(),
            self._leaders.wake_at_ms(),
            self._describe_recovery.wake_at_ms(),
            self._describe_operation.wake_at_ms(),
        ]
        return min((time for time in times if time is not None), default=None)


def answer(query: _Query, view: ClusterView) -> Answer:
    """Computes the answer without changing anything. Raises the `TidelogError` of the reply."""
    match query:
        case CheckRestart():
            return checked_restart(view.context, query)
        case DescribeBrokers():
            return describe_brokers(view.context, query, view.departed)
        case DescribeTopics():
            return describe_topics(view.context, query)
