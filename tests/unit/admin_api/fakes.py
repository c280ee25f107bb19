"""An in-memory cluster for the gateway, with settable answers and recorded requests."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from fastapi import FastAPI

from tidelog.admin_messages import (
    AcceptedOperation,
    AlteredConfig,
    BrokerDetails,
    ConfigChange,
    ConfigEntry,
    CreatedTopic,
    FeatureLevel,
    LeaderChange,
    Move,
    Operation,
    Plan,
    ProcessVersion,
    Progress,
    ResizedTopic,
    RestartCheck,
    Throttle,
    TopicDetails,
)
from tidelog.client import Admin
from tidelog.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ControllerDescription,
    ControllerProcessDescription,
    PartitionDescription,
    TopicDescription,
)
from tidelog.client.service_states import ReportedStates
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.scrub_progress import ScrubProgress
from tidelog.inspection.state_reports import Explanation, Scope, ServiceState, StateRequest
from tidelog.rpc.trace_context import Metadata, carried
from tidelog_admin_api.app import create_app
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.dependencies import Dependencies
from unit.admin_api.fake_operations import (
    FakeConsumer,
    FakeEvents,
    FakeOperations,
    FakeProducer,
    FakePublished,
    how_begun,
)

CLUSTER = ClusterDescription(
    "cluster-id",
    ControllerDescription(1, "127.0.0.1:7401", 3),
    (BrokerDescription(1, "127.0.0.1:7501", "a", 17, "running"),),
    (ControllerProcessDescription(1, "127.0.0.1:7401", 1_000),),
)


def partition(number: int = 0, **fields: Any) -> PartitionDescription:
    defaults: dict[str, Any] = {
        "leader": 1,
        "leader_epoch": 4,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "eligible_leader_replicas": (),
        "offline_replicas": (),
        "unclean_leader_epoch": -1,
        "min_isr": 2,
    }
    return PartitionDescription(number, **(defaults | fields))


def topic(name: str = "sea", *partitions: PartitionDescription) -> TopicDescription:
    described = partitions or (partition(),)
    return TopicDescription(name, f"id-of-{name}", 3, {}, described, len(described))


def broker(broker_id: int = 1, **fields: Any) -> BrokerDetails:
    defaults: dict[str, Any] = {
        "status": "running",
        "address": f"127.0.0.1:750{broker_id}",
        "rack": "a",
        "broker_epoch": 17,
        "maintenance": False,
        "removed": False,
        "replicas": 6,
        "leaders": 2,
        "preferred_leaders": 2,
        "out_of_sync": 0,
        "moves_in": 0,
        "moves_out": 0,
        "gone_at_ms": 0,
    }
    return BrokerDetails(broker_id, **(defaults | fields))


NO_PASS = ScrubProgress(
    enabled=True,
    running=False,
    full_rate=False,
    total_bytes=1_000,
    pass_began_ms=0,
    pass_bytes=0,
    passes=1,
    last_pass_began_ms=1_700_000_000_000,
    last_pass_ended_ms=1_700_000_060_000,
    last_pass_bytes=900,
    bytes_checked=900,
    damage_found=0,
    diverged_ranges=0,
)
PLAN = Plan((Move("sea", 0, (4, 2), (1, 2), "id-of-sea"),), 1, 1, 1, 1, ())


def operation(**fields: Any) -> Operation:
    defaults: dict[str, Any] = {
        "operation_id": "op-1",
        "kind": "rebalance",
        "state": "running",
        "reason": "",
        "request": "{}",
        "requested_by": "ada",
        "requested_from": "10.1.2.3",
        "requested_at_ms": 1,
        "ended_at_ms": 0,
        "trace_id": "",
        "progress": Progress(3, 1, 1, 0, 3, 1, 0),
        "revision": 55,
    }
    return Operation(**(defaults | fields))


def details(**fields: Any) -> TopicDetails:
    defaults: dict[str, Any] = {
        "topic": "sea",
        "topic_id": "id-of-sea",
        "partition_count": 6,
        "replication_factor": 3,
        "config": (ConfigEntry("retention_ms", "5", True, "9", "Older segments go."),),
        "revision": 55,
        "deleting": False,
        "partitions_being_removed": 0,
        "internal": False,
        "partitions": (),
    }
    return TopicDetails(**(defaults | fields))


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms


class FakeAdmin(FakeOperations):
    """Fake admin client. `rejection`: raised by every call; `rejections`: raised by named calls.
    `calls`: each call's name and arguments; `metadata`: its gRPC metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.rejection: Exception | None = None
        self.rejections: dict[str, Exception] = {}
        self.calls: list[tuple[str, tuple[object, ...], dict[str, object]]] = []
        self.metadata: list[Metadata | None] = []
        self.cluster = CLUSTER
        self.topics = [topic()]
        self.brokers = [broker()]
        self.operations: list[Operation] = []
        self.throttle = Throttle(None, 0)
        self.operation = operation()
        self.details = details()
        self.restart_check = RestartCheck(True, 0, 0, 0, 0, ())
        self.leader_changes: list[LeaderChange] = []
        self.before_answer: Awaitable[object] | None = None
        process = ProcessVersion("broker", 1, "127.0.0.1:7501", "0.1.0", 1, 2)
        self.feature_level = FeatureLevel(1, 2, 44, (process,))

    def record(self, name: str, *arguments: object, **named: object) -> None:
        self.calls.append((name, arguments, named))
        self.metadata.append(carried())
        rejection = self.rejections.get(name, self.rejection)
        if rejection is not None:
            raise rejection

    async def describe_cluster(self) -> ClusterDescription:
        self.record("describe_cluster")
        if self.before_answer is not None:
            await self.before_answer
        return self.cluster

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        self.record("list_topics", internal=internal)
        return self.topics

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]:
        self.record("describe_brokers", broker_ids)
        return [b for b in self.brokers if not broker_ids or b.broker_id in broker_ids]

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]:
        self.record("list_operations", states, kinds)
        return [
            operation
            for operation in self.operations
            if (not states or operation.state in states) and (not kinds or operation.kind in kinds)
        ]

    async def describe_throttle(self) -> Throttle:
        self.record("describe_throttle")
        return self.throttle

    async def set_throttle(
        self, bytes_per_second: int | None, *, expected_revision: int = 0, dry_run: bool = False
    ) -> Throttle:
        self.record(
            "set_throttle",
            bytes_per_second,
            expected_revision=expected_revision,
            dry_run=dry_run,
        )
        return Throttle(bytes_per_second, self.throttle.revision + (not dry_run))

    async def describe_feature_level(self) -> FeatureLevel:
        self.record("describe_feature_level")
        return self.feature_level

    async def raise_feature_level(
        self, level: int, *, expected_revision: int = 0, dry_run: bool = False
    ) -> int:
        self.record(
            "raise_feature_level", level, expected_revision=expected_revision, dry_run=dry_run
        )
        return self.feature_level.level

    async def check_restart(self, broker_id: int) -> RestartCheck:
        self.record("check_restart", broker_id)
        return self.restart_check

    async def set_maintenance(
        self,
        broker_ids: Sequence[int],
        timeout_ms: int = 30_000,
        *,
        maintenance: bool = True,
        dry_run: bool = False,
    ) -> tuple[list[LeaderChange], int]:
        self.record(
            "set_maintenance", broker_ids, timeout_ms, maintenance=maintenance, dry_run=dry_run
        )
        return self.leader_changes, 1

    async def add_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        how = how_begun(operation_id, expected_plan, dry_run=dry_run)
        self.record("add_brokers", broker_ids, **how)
        return self.begun(dry_run)

    async def remove_brokers(
        self,
        broker_ids: Sequence[int],
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        how = how_begun(operation_id, expected_plan, dry_run=dry_run)
        self.record("remove_brokers", broker_ids, **how)
        return self.begun(dry_run)

    async def describe_topic(self, topic: str) -> TopicDescription:
        self.record("describe_topic", topic)
        for known in self.topics:
            if known.name == topic:
                return known
        raise TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {topic}")

    async def topic_details(
        self,
        topics: Sequence[str] = (),
        *,
        internal: bool = False,
        with_partitions: bool = True,
    ) -> list[TopicDetails]:
        self.record("topic_details", topics, internal=internal, with_partitions=with_partitions)
        return [self.details]

    async def default_replication_factor(self, topic: str, operation_id: str = "") -> int:
        rule = inspect.unwrap(Admin.default_replication_factor)
        factor: int = await rule(cast(Admin, self), topic, operation_id)
        return factor

    async def _describe(self, *_: object) -> ClusterDescription:
        return await self.describe_cluster()

    async def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
        **named: Any,
    ) -> CreatedTopic:
        self.record(
            "create_topic", topic, partitions, replication_factor, config, timeout_ms, **named
        )
        placed = ((1, 2),) if named["dry_run"] else ()
        topic_id = "" if named["dry_run"] else "new-id"
        return CreatedTopic(topic_id, (3,), "trace", placed, ("a warning",))

    async def plan_deletion(self, topic: str, *, expected_revision: int = 0) -> ResizedTopic:
        self.record("plan_deletion", topic, expected_revision=expected_revision)
        return ResizedTopic(6, 0, (), brokers=(1, 2))

    async def delete_topic(
        self,
        topic: str,
        timeout_ms: int = 30_000,
        *,
        topic_id: str = "",
        expected_revision: int = 0,
    ) -> tuple[int, ...]:
        named = {"topic_id": topic_id, "expected_revision": expected_revision}
        self.record("delete_topic", topic, timeout_ms, **named)
        return (3,)

    async def alter_topic_config(
        self,
        topic: str,
        changed: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        timeout_ms: int = 30_000,
        **named: Any,
    ) -> AlteredConfig:
        self.record("alter_topic_config", topic, changed, unset, timeout_ms, **named)
        return AlteredConfig((ConfigChange("retention_ms", "1", "2"),), 56, ())

    async def add_partitions(
        self, topic: str, partitions: int, timeout_ms: int = 30_000, **named: Any
    ) -> ResizedTopic:
        self.record("add_partitions", topic, partitions, timeout_ms, **named)
        return ResizedTopic(partitions - self.details.partition_count, 56, (3,), ((1, 2),))

    async def remove_partitions(
        self, topic: str, partitions: int, timeout_ms: int = 30_000, **named: Any
    ) -> ResizedTopic:
        self.record("remove_partitions", topic, partitions, timeout_ms, **named)
        return ResizedTopic(self.details.partition_count - partitions, 57, (), brokers=(1,))

    async def set_replication_factor(
        self,
        topics: Sequence[str],
        replication_factor: int,
        *,
        operation_id: str = "",
        dry_run: bool = False,
        expected_plan: str = "",
    ) -> AcceptedOperation:
        how = how_begun(operation_id, expected_plan, dry_run=dry_run)
        self.record("set_replication_factor", topics, replication_factor, **how)
        return self.begun(dry_run)

    def begun(self, dry_run: bool) -> AcceptedOperation:
        return AcceptedOperation(None if dry_run else self.operation, PLAN)


class FakeStates:
    """`reported`: the states of services."""

    def __init__(self) -> None:
        self.reported = ReportedStates((), ())
        self.asked_brokers: list[list[str]] = []
        self.was_sampled = asyncio.Event()
        self.requests: list[StateRequest] = []

    async def ask(self, request: StateRequest, timeout_ms: int = 0) -> ReportedStates:  # noqa: ARG002
        self.requests.append(request)
        return self.reported

    async def replicas(self, addresses: Sequence[str], timeout_ms: int) -> list[ServiceState]:  # noqa: ARG002
        self.asked_brokers.append(list(addresses))
        self.was_sampled.set()
        return [state for state in self.reported.states if state.broker is not None]


class FakeScrub:
    """`progress`, `rejections`: answers by address."""

    def __init__(self) -> None:
        self.progress: dict[str, ScrubProgress] = {}
        self.rejections: dict[str, Exception] = {}
        self.calls: list[tuple[str, bool, bool]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(
        self, address: str, *, begin: bool, full_rate: bool, timeout_seconds: float
    ) -> ScrubProgress:
        assert timeout_seconds > 0
        self.calls.append((address, begin, full_rate))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if (rejection := self.rejections.get(address)) is not None:
            raise rejection
        return self.progress.get(address, NO_PASS)


class FakeExplains:
    def __init__(self) -> None:
        self.explanation = Explanation()
        self.scopes: list[Scope] = []

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:  # noqa: ARG002
        self.scopes.append(scope)
        return self.explanation


class FakeCluster:
    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.explains = FakeExplains()
        self.states = FakeStates()
        self.clock = FakeClock()
        self.events = FakeEvents()
        self.producer = FakeProducer()
        self.consumer = FakeConsumer([])
        self.published = FakePublished()
        self.scrub = FakeScrub()

    def app(self, **settings: Any) -> FastAPI:
        dependencies = Dependencies(
            cast(Admin, self.admin),
            self.explains.explain,
            self.states,
            self.clock,
            random.Random(1),
            self.events,
            lambda _acks: self.producer,
            lambda _timeout_ms: self.consumer,
            self.published.read,
            self.scrub,
        )
        return create_app(dependencies, AdminApiConfig(**settings))


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the gateway whose background tasks run."""
    transport = httpx.ASGITransport(app, client=("10.1.2.3", 4711))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        yield client
