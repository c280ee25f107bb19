"""Where administrators' requests come in: each goes to whom it concerns."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.internal_topics import InternalTopic
from tidelog_controller.requests.partition_admin import PartitionAdmin
from tidelog_controller.requests.recovery_admin import RecoveryAdmin
from tidelog_controller.requests.topic_admin import TopicAdmin
from tidelog_controller.requests.topic_config_admin import TopicConfigAdmin
from tidelog_controller.state.admin_requests import (
    AddPartitions,
    AlterTopicConfig,
    RemovePartitions,
)
from tidelog_controller.state.commands import Command
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

    def take(self, request: AdminRequest, now_ms: int) -> list[Command]:
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

    def advance(self, now_ms: int) -> list[Command]:
        """What the waiting requests and the standing intents now need."""
        return [
            *self.topics.advance(now_ms),
            *self._partitions.advance(now_ms),
            *self._configs.advance(now_ms),
            *self._recoveries.advance(now_ms),
        ]

    def wake_at_ms(self) -> int | None:
        desks = (self.topics, self._partitions, self._configs, self._recoveries)
        times = [desk.wake_at_ms() for desk in desks]
        return min((time for time in times if time is not None), default=None)
