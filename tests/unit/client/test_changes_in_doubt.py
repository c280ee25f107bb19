"""A change is repeated until it is answered. Its error says whether any try may have made it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client import Admin
from tidelog.client.admin_api import method_of
from tidelog.client.controller_calls import is_change
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from unit.client.fake_broker import FakeCluster
from unit.client.test_admin_requests import ScriptedController, admin_of

Call = Callable[[Admin], Awaitable[Any]]

METHODS = pb.DESCRIPTOR.services_by_name["AdminService"].methods_by_name

CHANGES: dict[str, Call] = {
    "CreateTopic": lambda a: a.create_topic("bay", 1, 1),
    "DeleteTopic": lambda a: a.delete_topic("sea"),
    "AlterTopicConfig": lambda a: a.alter_topic_config("sea", {"retention_ms": "1"}),
    "AddPartitions": lambda a: a.add_partitions("sea", 9),
    "RemovePartitions": lambda a: a.remove_partitions("sea", 1, confirm_topic="sea"),
    "RecoverPartitions": lambda a: a.recover_partitions("sea"),
    "Reassign": lambda a: a.reassign([]),
    "Rebalance": lambda a: a.rebalance(),
    "AddBrokers": lambda a: a.add_brokers([1]),
    "RemoveBrokers": lambda a: a.remove_brokers([1]),
    "SetReplicationFactor": lambda a: a.set_replication_factor(["sea"], 2),
    "ReverseOperation": lambda a: a.reverse_operation("op"),
    "CancelOperation": lambda a: a.cancel_operation("op"),
    "SetThrottle": lambda a: a.set_throttle(1 << 20),
    "RaiseFeatureLevel": lambda a: a.raise_feature_level(2),
    "ElectPreferredLeaders": lambda a: a.elect_preferred_leaders(),
    "MoveLeaders": lambda a: a.move_leaders({TopicPartition("sea", 0): 1}),
    "SetMaintenance": lambda a: a.set_maintenance([1]),
}
QUERIES: dict[str, Call] = {
    "DescribeTopics": lambda a: a.topic_details(["sea"]),
    "DescribeOperation": lambda a: a.describe_operation("op"),
    "DescribeThrottle": lambda a: a.describe_throttle(),
    "DescribeFeatureLevel": lambda a: a.describe_feature_level(),
    "DescribeBrokers": lambda a: a.describe_brokers(),
    "DescribeRecovery": lambda a: a.describe_recovery("sea"),
    "ListOperations": lambda a: a.list_operations(),
    "CheckRestart": lambda a: a.check_restart(1),
}

REJECTED = TidelogError(ErrorCode.REVISION_CONFLICT, "changed")
UNKNOWN = TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic")
# A first try that may have made the change,
DOUBTFUL: dict[str, Exception] = {
    "no answer": UnreachableError("a:1", "it died"),
    "deposed": TidelogError(ErrorCode.NOT_CONTROLLER, "deposed", outcome_unknown=True),
    "late": TidelogError(ErrorCode.REQUEST_TIMED_OUT, "late"),
}
# and one that has not.
HARMLESS: dict[str, Exception] = {
    "standby": TidelogError(ErrorCode.NOT_CONTROLLER, "standby"),
    "busy": TidelogError(ErrorCode.REQUEST_TIMED_OUT, "busy", outcome_unknown=False),
    "unresolved": UnreachableError("a:1", "no address", unresolved=True),
}


class FailingController(ScriptedController):
    """Answers each try with the next error; an UnreachableError is a missing answer."""

    async def call(self, request: Any, *_: object) -> Any:
        error = self.script.pop(0)
        self.calls.append(method_of(request))
        if not isinstance(error, TidelogError):
            raise error
        return METHODS_RESPONSES[method_of(request)](error=error_to_wire(error))


METHODS_RESPONSES = {name: getattr(pb, f"{name}Response") for name in METHODS}


async def failure(cluster: FakeCluster, call: Call, *errors: Exception) -> TidelogError | None:
    """Returns the error of a call whose tries end with these errors; None: it succeeds."""
    async with await admin_of(cluster, FailingController(*errors)) as admin:
        try:
            await call(admin)
        except TidelogError as error:
            return error
    return None


def test_each_method_is_a_change_or_a_query() -> None:
    assert CHANGES.keys() | QUERIES.keys() == set(METHODS.keys())
    requests = {name: getattr(pb, f"{name}Request") for name in METHODS}
    assert {name for name, request in requests.items() if is_change(request())} == CHANGES.keys()
    plans = [r for r in requests.values() if "dry_run" in r.DESCRIPTOR.fields_by_name]
    assert plans
    assert not any(is_change(request(dry_run=True)) for request in plans)


@pytest.mark.parametrize("first", DOUBTFUL)
async def test_an_error_after_a_try_in_doubt_has_an_unknown_outcome(
    cluster: FakeCluster, first: str
) -> None:
    for name, change in CHANGES.items():
        error = await failure(cluster, change, DOUBTFUL[first], REJECTED)
        assert error is not None, name
        assert (error.code, error.outcome_unknown) == (REJECTED.code, True), name
        assert "an earlier try of this request may have been carried out" in error.message


@pytest.mark.parametrize("first", HARMLESS)
async def test_an_error_after_tries_without_effect_has_a_known_outcome(
    cluster: FakeCluster, first: str
) -> None:
    for name, change in CHANGES.items():
        error = await failure(cluster, change, HARMLESS[first], REJECTED)
        assert error is not None, name
        assert (error.message, error.outcome_unknown) == (REJECTED.message, False), name


@pytest.mark.parametrize("first", DOUBTFUL)
async def test_a_query_has_no_unknown_outcome(cluster: FakeCluster, first: str) -> None:
    for name, query in QUERIES.items():
        error = await failure(cluster, query, DOUBTFUL[first], UNKNOWN)
        assert error is not None, name
        assert (error.message, error.outcome_unknown) == (UNKNOWN.message, False), name


@pytest.mark.parametrize("first", DOUBTFUL)
async def test_a_topic_that_this_call_deleted_or_created_is_no_error(
    cluster: FakeCluster, first: str
) -> None:
    doubt, there = DOUBTFUL[first], TidelogError(ErrorCode.TOPIC_ALREADY_EXISTS, "exists")
    other = TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, "created again")
    assert await failure(cluster, CHANGES["DeleteTopic"], doubt, UNKNOWN) is None
    assert (
        await failure(cluster, lambda a: a.delete_topic("sea", topic_id="x"), doubt, other) is None
    )
    cluster.create("bay", [0])
    assert await failure(cluster, CHANGES["CreateTopic"], doubt, there) is None


async def test_a_first_try_decides_for_itself(cluster: FakeCluster) -> None:
    for name, change in CHANGES.items():
        error = await failure(cluster, change, UNKNOWN)
        assert error is not None, name
        assert (error.message, error.outcome_unknown) == (UNKNOWN.message, False), name
