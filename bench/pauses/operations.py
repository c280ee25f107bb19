"""The largest requests that change a cluster.

Topics are created, changed, moved, recovered and deleted, and operations run until they are
cancelled. All services may be affected, so each step is measured at all of them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import grpc.aio

from bench.pauses.reports import Longest, Reports, reports_of
from bench.pauses.requests import Case
from bench.pauses.run import ALL_ROUNDS, REJECTED, Bounds, Pause, addresses_of, answer_of
from tidelog.rpc.channels import open_channel
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1.admin_pb2_grpc import AdminServiceStub
from tidelog_runtime.local.cluster import LocalCluster

_ADMIN = "/tidelog.v1.AdminService"
MOST_ASSIGNED = 1_000
REQUEST_TIMEOUT_MS = 60_000
# A request has effects after its answer: brokers create logs, and leaderships are transferred.
SETTLED_S = 1.0
LEADERS_TIMEOUT_MS = 1_000
OPERATION_END_S = 120.0
_POLL_S = 0.1
_RESTORE = "ReverseOperation: of the removal"
_ENDED = (pb.OPERATION_STATE_DONE, pb.OPERATION_STATE_CANCELLED, pb.OPERATION_STATE_FAILED)
PLANNED_PARTITIONS = 80_000
# Slow by design: leaderships are transferred one after the other.
_CONTINUES = "ERROR_CODE_REQUEST_TIMED_OUT"
# An operation that copies nothing may be done before it is cancelled.
_ENDED_BEFORE = "ERROR_CODE_OPERATION_ENDED"


class Step(NamedTuple):
    """A request that changes the cluster.

    - `ends`: the operation whose end is awaited afterwards, unmeasured.
    - `allowed`: the error that means that the operation continues, or has ended.
    """

    name: str
    rpc: str
    request: Any
    ends: str = ""
    allowed: str = ""

    @property
    def case(self) -> Case:
        return Case(self.name, f"{_ADMIN}/{self.rpc}", self.request)

    def verdict(self, answer: str) -> str:
        is_allowed = self.allowed and answer.startswith(f"{REJECTED}{self.allowed}")
        return f"OK, {self.allowed}" if is_allowed else answer


def steps(round_number: int, partitions: int, by_hand: int = MOST_ASSIGNED) -> Iterator[Step]:
    """Yields the steps in order.

    - `partitions`: the number of partitions of the widest topic.
    - `by_hand`: the number of partitions that are placed on broker 1 and moved to broker 2.
    """
    wide, hand, both = (f"pauses-{kind}-{round_number}" for kind in ("most", "hand", "both"))
    yield from _creations(wide, hand, both, partitions, by_hand)
    yield from _leaders(both, by_hand)
    yield from _throttles()
    yield from _operations(hand, both, round_number, by_hand)
    for topic in (hand, both):
        yield _deletion(topic)
    yield Step(
        f"RemovePartitions: {partitions:,}, all but one",
        "RemovePartitions",
        pb.RemovePartitionsRequest(
            topic=wide, partitions=1, confirm_topic=wide, timeout_ms=REQUEST_TIMEOUT_MS
        ),
    )
    yield Step(
        f"AddPartitions: {partitions:,}",
        "AddPartitions",
        pb.AddPartitionsRequest(
            topic=wide, partitions=partitions + 1, timeout_ms=REQUEST_TIMEOUT_MS
        ),
    )
    yield _deletion(wide)


def _creations(wide: str, hand: str, both: str, partitions: int, by_hand: int) -> Iterator[Step]:
    on_first = [pb.ReplicaAssignment(replicas=[1])] * by_hand
    on_two = [pb.ReplicaAssignment(replicas=[2, 1])] * by_hand
    created = {
        f"{partitions:,} partitions": pb.CreateTopicRequest(
            topic=wide, partitions=partitions, replication_factor=1, timeout_ms=REQUEST_TIMEOUT_MS
        ),
        f"{by_hand:,} partitions by hand": pb.CreateTopicRequest(
            topic=hand, assignment=on_first, timeout_ms=REQUEST_TIMEOUT_MS
        ),
        f"{by_hand:,} partitions of two replicas": pb.CreateTopicRequest(
            topic=both, assignment=on_two, timeout_ms=REQUEST_TIMEOUT_MS
        ),
        f"{PLANNED_PARTITIONS:,} partitions, dry run": pb.CreateTopicRequest(
            topic=f"{wide}-planned",
            partitions=PLANNED_PARTITIONS,
            replication_factor=1,
            dry_run=True,
        ),
    }
    for what, request in created.items():
        yield Step(f"CreateTopic: {what}", "CreateTopic", request)
    changed = {"retention_ms": "1000000", "segment_bytes": str(64 << 20)}
    alteration = pb.AlterTopicConfigRequest(topic=wide, set=changed, timeout_ms=REQUEST_TIMEOUT_MS)
    yield Step(f"AlterTopicConfig: of {partitions:,} partitions", "AlterTopicConfig", alteration)
    description = pb.DescribeTopicsRequest(page_size=1_000)
    yield Step("DescribeTopics: all, with these", "DescribeTopics", description)
    restart = pb.CheckRestartRequest(broker_id=1, page_size=1_000)
    yield Step("CheckRestart: with these", "CheckRestart", restart)
    numbers = range(by_hand)
    recovery = pb.RecoverPartitionsRequest(
        topic=wide, partitions=numbers, timeout_ms=LEADERS_TIMEOUT_MS
    )
    yield Step(f"RecoverPartitions: {by_hand:,}", "RecoverPartitions", recovery, allowed=_CONTINUES)


def _leaders(topic: str, partitions: int) -> Iterator[Step]:
    moves = [pb.LeaderMove(topic=topic, partition=n, leader=1) for n in range(partitions)]
    request = pb.MoveLeadersRequest(moves=moves, timeout_ms=LEADERS_TIMEOUT_MS)
    yield Step(
        f"MoveLeaders: {partitions:,} to broker 1", "MoveLeaders", request, allowed=_CONTINUES
    )
    election = pb.ElectPreferredLeadersRequest(timeout_ms=LEADERS_TIMEOUT_MS)
    yield Step("ElectPreferredLeaders: all", "ElectPreferredLeaders", election, allowed=_CONTINUES)
    for maintenance in (True, False):
        change = pb.SetMaintenanceRequest(
            broker_ids=[2], maintenance=maintenance, timeout_ms=LEADERS_TIMEOUT_MS
        )
        name = f"SetMaintenance: {'begin' if maintenance else 'end'}"
        yield Step(name, "SetMaintenance", change, allowed=_CONTINUES)


def _throttles() -> Iterator[Step]:
    for throttle in (pb.Throttle(bytes_per_second=1 << 30), pb.Throttle()):
        name = f"SetThrottle: {throttle.bytes_per_second or 'none'}"
        yield Step(name, "SetThrottle", pb.SetThrottleRequest(throttle=throttle))


def _operations(hand: str, both: str, number: int, partitions: int) -> Iterator[Step]:
    moves = [pb.Move(topic=hand, partition=n, target=[2]) for n in range(partitions)]
    begun: dict[str, tuple[str, Any]] = {
        f"Reassign: {partitions:,} moves": ("Reassign", pb.ReassignRequest(moves=moves)),
        "ReverseOperation: of these": (
            "ReverseOperation",
            pb.ReverseOperationRequest(reversed_operation_id=_id(number, "Reassign")),
        ),
        "Rebalance": ("Rebalance", pb.RebalanceRequest()),
        f"SetReplicationFactor: {partitions:,} partitions": (
            "SetReplicationFactor",
            pb.SetReplicationFactorRequest(topics=[both], replication_factor=1),
        ),
        "RemoveBrokers: one": ("RemoveBrokers", pb.RemoveBrokersRequest(broker_ids=[2])),
        # Otherwise a cancelled addition would leave the broker removed, and the next round would
        # fail.
        _RESTORE: (
            "ReverseOperation",
            pb.ReverseOperationRequest(reversed_operation_id=_id(number, "RemoveBrokers")),
        ),
        "AddBrokers: the same": ("AddBrokers", pb.AddBrokersRequest(broker_ids=[2])),
    }
    for name, (rpc, request) in begun.items():
        operation = _id(number, rpc if name != _RESTORE else "restore")
        request.operation_id = operation
        yield Step(name, rpc, request)
        description = pb.DescribeOperationRequest(operation_id=operation, page_size=1_000)
        if name == _RESTORE:
            yield Step(f"DescribeOperation: {name}", "DescribeOperation", description, operation)
            continue
        yield Step(f"DescribeOperation: of {rpc}", "DescribeOperation", description)
        cancellation = pb.CancelOperationRequest(operation_id=operation)
        yield Step(
            f"CancelOperation: of {rpc}",
            "CancelOperation",
            cancellation,
            ends=operation,
            allowed=_ENDED_BEFORE,
        )


def _id(number: int, rpc: str) -> str:
    return f"{rpc.lower()}-{number}"


def _deletion(topic: str) -> Step:
    request = pb.DeleteTopicRequest(topic=topic, timeout_ms=REQUEST_TIMEOUT_MS)
    return Step(f"DeleteTopic: {topic.split('-')[1]}", "DeleteTopic", request)


class Findings:
    """The measurements of all services during each step, round by round."""

    def __init__(self, reports: Mapping[str, Reports], settled_s: float) -> None:
        self._reports = reports
        self._settled_s = settled_s
        # The longest pauses of each round.
        self._seconds: dict[tuple[str, str], list[Longest]] = defaultdict(list)
        self._answers: dict[str, str] = {}

    async def measure(self, name: str, answering: Awaitable[str]) -> None:
        began = time.monotonic()
        answer = await answering
        await asyncio.sleep(self._settled_s)
        for service, reports in self._reports.items():
            self._seconds[service, name].append(await reports.longest_s(began))
        # A rejection counts in any round.
        if not self._answers.get(name, "").startswith(REJECTED):
            self._answers[name] = answer

    def are_within(self, bounds: Bounds) -> bool:
        return all(map(bounds.contain, self.pauses()))

    def pauses(self) -> Iterator[Pause]:
        for (service, name), seconds in self._seconds.items():
            longest, own, alone = zip(*seconds, strict=True)
            case = f"{name}, carried out"
            yield Pause(service, case, longest, self._answers[name], own, alone)


@asynccontextmanager
async def measuring(
    cluster: LocalCluster, settled_s: float
) -> AsyncIterator[tuple[grpc.aio.Channel, Findings]]:
    """Yields a channel to the active controller, and the measurements."""
    _, controller = await addresses_of(cluster)
    active = await cluster.active_controller()
    assert active is not None
    measured = {
        "broker": cluster.broker_process(1),
        "controller": cluster.controller_process(active),
    }
    if cluster.gateway_address:
        measured["gateway"] = cluster.gateway_process
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(open_channel(controller))
        reports = {
            service: await stack.enter_async_context(reports_of(process))
            for service, process in measured.items()
        }
        yield channel, Findings(reports, settled_s)


async def of_operations(
    cluster: LocalCluster,
    rounds: int,
    partitions: int,
    by_hand: int = MOST_ASSIGNED,
    settled_s: float = SETTLED_S,
    bounds: Bounds = ALL_ROUNDS,
) -> AsyncIterator[Pause]:
    """Measures a cluster that can lose broker 2. Yields a pause for each step and service. A round
    in which all pauses are within the bounds is the last."""
    async with measuring(cluster, settled_s) as (channel, findings):
        for number in range(rounds):
            for step in steps(number, partitions, by_hand):
                await findings.measure(step.name, _answer(channel, step))
                if step.ends:
                    await operation_ended(channel, step.ends)
            if findings.are_within(bounds):
                break
    for pause in findings.pauses():
        yield pause


async def _answer(channel: grpc.aio.Channel, step: Step) -> str:
    return step.verdict(await answer_of(channel, step.case))


async def operation_ended(channel: grpc.aio.Channel, operation_id: str) -> None:
    stub: Any = AdminServiceStub(channel)
    request = pb.DescribeOperationRequest(operation_id=operation_id)
    async with asyncio.timeout(OPERATION_END_S):
        while True:
            answer = await stub.DescribeOperation(request)
            if answer.HasField("error") or answer.operation.state in _ENDED:
                return
            await asyncio.sleep(_POLL_S)
