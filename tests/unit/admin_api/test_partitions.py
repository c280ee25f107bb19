"""/v1/topics/{topic}/partitions."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tidelog.client.service_states import ReportedStates
from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import (
    BrokerState,
    FollowerProgress,
    FollowerState,
    LeaderState,
    ReplicaState,
    ServiceState,
    StateRequest,
    StoreHealth,
)
from tidelog_admin_api.replica_views import partition_with_replicas
from unit.admin_api.fakes import FakeAdmin, FakeCluster, partition, topic


def reported_by(broker_id: int, **fields: Any) -> ServiceState:
    defaults: dict[str, Any] = {"role": "follower", "leader_epoch": 4, "revision": 9} | fields
    replica = ReplicaState("sea", "id", 0, **defaults)
    broker = BrokerState(1, "running", True, 3, replicas=(replica,))
    return ServiceState("broker", broker_id, "", "", 0, 0, StoreHealth(), broker=broker)


LEADER = reported_by(
    1,
    role="leader",
    log_end_offset=20,
    high_watermark=15,
    leader=LeaderState(
        followers=(
            FollowerProgress(2, lag_records=0, lag_bytes=0, lag_ms=0),
            FollowerProgress(3, log_end_offset=15, lag_records=5, lag_bytes=50, lag_ms=700),
        )
    ),
)


async def test_partitions_are_listed_by_number(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.topics = [topic("sea", partition(0, leader=-1), partition(1))]
    body = (await gateway.get("/v1/topics/sea/partitions")).json()["items"]
    assert [(p["partition"], p["leader"], p["health"]) for p in body] == [
        (0, None, "no leader"),
        (1, 1, "ok"),
    ]
    assert body[0]["log"] is None


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"unwell": True}, [1]),
        ({"leader": 2}, [2]),
        ({"broker": 7}, [2]),
        ({"moving": True}, [3]),
        ({"leader": 2, "unwell": True}, []),
    ],
)
async def test_partitions_are_filtered(
    gateway: httpx.AsyncClient, admin: FakeAdmin, filters: dict[str, Any], found: list[int]
) -> None:
    admin.topics = [
        topic(
            "sea",
            partition(0),
            partition(1, isr=(1,)),
            partition(2, leader=2, replicas=(2, 7), isr=(2, 7)),
            partition(3, moving_operation="op", original_replicas=(1, 2, 3)),
        )
    ]
    answer = await gateway.get("/v1/topics/sea/partitions", params=filters)
    assert [p["partition"] for p in answer.json()["items"]] == found


async def test_log_ends_are_included_on_request(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.states.reported = ReportedStates((LEADER,), ())
    answer = await gateway.get("/v1/topics/sea/partitions", params={"logs": True})
    log = answer.json()["items"][0]["log"]
    assert (log["high_watermark"], log["log_end_offset"]) == (15, 20)
    assert (log["max_lag_records"], log["max_lag_ms"]) == (5, 700)
    assert fake_cluster.states.requests == [StateRequest("sea")]


async def test_an_unknown_partition_is_answered_with_the_existing_ones(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.get("/v1/topics/sea/partitions/9")
    assert answer.status_code == 404
    assert "its partitions are 0 to 0" in answer.json()["detail"]


async def test_a_partition_lists_every_replica(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.states.reported = ReportedStates((LEADER,), ())
    body = (await gateway.get("/v1/topics/sea/partitions/0")).json()
    assert [replica["broker_id"] for replica in body["details"]] == [1, 2, 3]
    assert fake_cluster.states.requests == [StateRequest("sea", 0)]


def test_the_lag_of_a_replica_is_reported_by_its_leader() -> None:
    described = partition_with_replicas(
        "sea", partition(), ReportedStates((LEADER, reported_by(3)), ())
    )
    leader, unheard, lagging = described.details
    assert (leader.role, leader.lag_records) == ("leader", 0)
    assert (unheard.role, unheard.lag_records, unheard.log_end_offset) == ("unknown", 0, None)
    assert (lagging.role, lagging.lag_records, lagging.lag_ms) == ("follower", 5, 700)


def test_a_silent_broker_has_the_position_known_to_its_leader_and_a_reason() -> None:
    silent = SilentService("a:3", Listening.REFUSES, "gave no answer", "broker", 3)
    described = partition_with_replicas("sea", partition(), ReportedStates((LEADER,), (silent,)))
    assert described.details[2].log_end_offset == 15
    assert described.details[2].problem == "broker-3 at a:3 gave no answer"


def test_without_an_answer_of_the_leader_lag_is_unknown() -> None:
    described = partition_with_replicas("sea", partition(), ReportedStates((reported_by(2),), ()))
    assert described.log is None
    assert described.details[1].lag_records is None


def test_a_leader_of_an_older_epoch_is_ignored() -> None:
    deposed = reported_by(2, role="leader", leader_epoch=3, log_end_offset=99, leader=LeaderState())
    described = partition_with_replicas("sea", partition(), ReportedStates((deposed, LEADER), ()))
    assert described.log is not None
    assert described.log.log_end_offset == 20


def test_a_follower_that_cannot_fetch_has_a_reason() -> None:
    lost = reported_by(2, follower=FollowerState(1, problem="broker 1 refuses connections"))
    described = partition_with_replicas("sea", partition(), ReportedStates((lost,), ()))
    assert described.details[1].problem == "broker 1 refuses connections"


def test_added_and_removed_replicas_are_marked_and_the_target_is_preferred() -> None:
    moving = partition(
        replicas=(1, 2, 3),
        moving_operation="op",
        original_replicas=(1, 2),
        target_replicas=(3, 2),
    )
    described = partition_with_replicas("sea", moving, ReportedStates((), ()))
    assert [replica.moving for replica in described.details] == ["leaving", "", "adding"]
    assert [replica.preferred for replica in described.details] == [False, False, True]
