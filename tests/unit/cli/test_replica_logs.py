"""Log ends as reported by the brokers, or by the leader for silent brokers."""

from __future__ import annotations

from tidelog.cli.topics.logs import replica_logs
from tidelog.client.descriptions import PartitionDescription, TopicDescription
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.replica_reports import ReplicaLog
from tidelog.inspection.state_reports import (
    BrokerState,
    FollowerProgress,
    LeaderState,
    ReplicaState,
    ServiceState,
    StoreHealth,
)

PARTITION = PartitionDescription(
    0,
    leader=1,
    leader_epoch=4,
    replicas=(1, 2, 3),
    isr=(1,),
    eligible_leader_replicas=(),
    offline_replicas=(3,),
    unclean_leader_epoch=-1,
    min_isr=1,
)
SEA = TopicDescription("sea", "id", 3, {}, (PARTITION,), 1)
LEADING = LeaderState(
    followers=(
        FollowerProgress(2, log_end_offset=20, lag_records=0, lag_ms=0),
        FollowerProgress(3, log_end_offset=15, lag_records=5, lag_ms=700),
    )
)


def reported_by(broker_id: int, replica: ReplicaState) -> ServiceState:
    broker = BrokerState(1, "running", True, 3, replicas=(replica,))
    return ServiceState("broker", broker_id, "", "", 0, 0, StoreHealth(), broker=broker)


def test_a_silent_replica_has_the_position_known_to_its_leader() -> None:
    leads = ReplicaState(
        "sea",
        "id",
        0,
        "leader",
        4,
        9,
        3,
        20,
        15,
        size_bytes=900,
        leader=LEADING,
    )
    follows = ReplicaState("sea", "id", 0, "follower", 4, 9, 3, 20, 15, size_bytes=800)
    states = ReportedStates((reported_by(1, leads), reported_by(2, follows)), ())
    assert replica_logs(SEA, states) == [
        ReplicaLog(0, 1, "leader", 3, 15, 20, 900, 0, 0),
        ReplicaLog(0, 2, "follower", 3, 15, 20, 800, 0, 0),
        ReplicaLog(0, 3, "unknown", None, None, 15, None, 5, 700),
    ]


def test_without_answers_the_position_is_unknown() -> None:
    logs = replica_logs(SEA, ReportedStates((), ()))
    assert {(log.role, log.log_end_offset, log.lag_records) for log in logs} == {
        ("unknown", None, None)
    }
