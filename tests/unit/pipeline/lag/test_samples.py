import json

import pytest

from tidelog.inspection.state_reports import (
    BrokerState,
    FollowerProgress,
    LeaderState,
    ReplicaState,
    ServiceState,
    StoreHealth,
)
from tidelog.model import TopicPartition
from tidelog_pipeline.lag.sampler import query_positions
from tidelog_pipeline.lag.samples import (
    SAMPLE_SCHEMA,
    QueryPosition,
    leaders_of,
    query_samples,
    replica_samples,
    silent_sample,
    to_value,
)

SEA = TopicPartition("sea", 0)


def state(
    broker: int, epoch: int, *followers: FollowerProgress, leads: bool = True
) -> ServiceState:
    replica = ReplicaState(
        "sea",
        "id",
        0,
        "leader" if leads else "follower",
        epoch,
        1,
        high_watermark=100 * epoch,
        leader=LeaderState(followers=followers) if leads else None,
    )
    reported = BrokerState(1, "running", True, 1, replicas=(replica,))
    return ServiceState("broker", broker, "a", "1", 0, 0, StoreHealth(), broker=reported)


def test_followers_are_reported_by_the_newest_leader() -> None:
    deposed = state(1, 4, FollowerProgress(2, lag_records=0))
    progress = FollowerProgress(3, in_isr=True, lag_records=7, lag_bytes=70, lag_ms=12)
    leaders = leaders_of([state(2, 5, progress), deposed, state(3, 6, leads=False)])
    (sample,) = replica_samples(1_000, leaders)
    assert json.loads(to_value(sample)) == {
        "at_ms": 1_000,
        "kind": "replica",
        "who": "3",
        "topic": "sea",
        "partition": 0,
        "lag_records": 7,
        "lag_bytes": 70,
        "lag_ms": 12,
        "in_sync": True,
    }


def test_values_unknown_to_the_leader_are_omitted() -> None:
    (sample,) = replica_samples(1_000, leaders_of([state(2, 5, FollowerProgress(3))]))
    assert (sample.lag_records, sample.lag_ms, sample.in_sync) == (None, None, False)


@pytest.mark.rule("lag-measured-to-present-end")
def test_the_lag_of_a_query_is_relative_to_the_current_log_end() -> None:
    leaders = leaders_of([state(2, 5)])
    positions = [
        QueryPosition("copy", SEA, 480),
        QueryPosition("copy", TopicPartition("sea", 9), 1),
    ]
    assert [s.lag_records for s in query_samples(1_000, positions, leaders)] == [20, None]


def test_a_missing_answer_is_a_sample_too() -> None:
    assert json.loads(to_value(silent_sample(5, "broker 2", "refused"))) == {
        "at_ms": 5,
        "kind": "silent",
        "who": "broker 2",
        "problem": "refused",
    }


def test_all_fields_of_a_sample_are_in_the_schema() -> None:
    assert SAMPLE_SCHEMA.fieldNames() == list(silent_sample(5, "x", "y").__dataclass_fields__)


METRICS = """\
# HELP tidelog_spark_next_offset Offset of the record that a query will read next.
# TYPE tidelog_spark_next_offset gauge
tidelog_spark_next_offset{partition="0",query="copy",query_id="a-1",topic="sea"} 480.0
tidelog_spark_next_offset{partition="1",query="",query_id="b-2",topic="sea"} 7.0
# TYPE tidelog_spark_lag_records gauge
tidelog_spark_lag_records{partition="0",query="copy",query_id="a-1",topic="sea"} 3.0
"""


def test_query_positions_are_read_from_driver_metrics() -> None:
    assert query_positions(METRICS) == [
        QueryPosition("copy", SEA, 480),
        QueryPosition("b-2", TopicPartition("sea", 1), 7),
    ]


def test_malformed_metrics_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="no label"):
        query_positions('tidelog_spark_next_offset{topic="sea"} 1\n# EOF\n')
