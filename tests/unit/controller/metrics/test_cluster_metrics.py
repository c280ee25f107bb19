"""Metrics of the cluster from the view of its active controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.inspection.state_reports import BrokerBacklog
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.metrics.cluster_metrics import (
    ClusterMetrics,
    problems_of,
    set_cluster_metrics,
)
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Partition
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    LeaderAndIsr,
    Member,
    Moving,
    encode,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.telemetry.metrics.broker_catalogue import MAX_PEER_SERIES
from tidelog_runtime.telemetry.metrics.controller_catalogue import (
    CONTROLLER_METRICS,
    MAX_UNHEALTHY_SERIES,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from unit.controller.driver import Driver
from unit.controller.operated import by_hand, catch_up, with_topic

KEYS = Keys("test")
TO_4 = Moving("op", (1, 2, 3), (1, 2, 4))
MANY = 10_000


def key(
    leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), *, epoch: int = 4, unclean: int = -1
) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id="id",
        replicas=(1, 2, 3),
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=tuple(Member(broker, 100 + broker) for broker in isr),
        eligible=(),
        min_isr=2,
        unclean_leader_epoch=unclean,
    )


def collected(*keys: LeaderAndIsr) -> MetricsSnapshot:
    cluster_metrics, snapshot = ClusterMetrics(), MetricsSnapshot(CONTROLLER_METRICS)
    for number, state in enumerate(keys):
        cluster_metrics.add(TopicPartition("sea", number), Partition(state, 10))
    cluster_metrics.write_to(snapshot)
    return snapshot


def value(snapshot: MetricsSnapshot, name: str, *labels: str) -> float:
    return snapshot.values[f"tidelog_{name}"][labels]


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (key(), ()),
        (key(isr=(1, 2)), ("at_min_isr", "under_replicated")),
        (key(isr=(1,)), ("under_min_isr", "under_replicated")),
        (key(NO_LEADER, ()), ("offline", "under_min_isr", "under_replicated")),
        (key(unclean=4), ("unclean",)),
        (key(unclean=3), ()),
        # Replicas that a move adds are not missing before the switch; a copy counts as a copy.
        (replace(key(), replicas=(1, 2, 3, 4), moving=TO_4), ()),
        (replace(key(isr=(1, 2, 4)), replicas=(1, 2, 3, 4), moving=TO_4), ()),
        (
            replace(key(isr=(1, 2)), replicas=(1, 2, 3, 4), moving=TO_4),
            ("at_min_isr", "under_replicated"),
        ),
    ],
)
def test_the_problems_of_a_partition_follow_from_its_key(
    state: LeaderAndIsr, problems: tuple[str, ...]
) -> None:
    assert problems_of(state) == problems


def test_partitions_are_counted_by_problem() -> None:
    snapshot = collected(key(), key(2), key(isr=(1,)), key(NO_LEADER, ()), key(unclean=4))

    assert value(snapshot, "cluster_partitions") == 5
    assert value(snapshot, "cluster_offline_partitions") == 1
    assert value(snapshot, "cluster_under_min_isr_partitions") == 2
    assert value(snapshot, "cluster_under_replicated_partitions") == 2
    assert value(snapshot, "cluster_at_min_isr_partitions") == 0
    assert value(snapshot, "cluster_unclean_partitions") == 1
    assert value(snapshot, "cluster_not_preferred_leader_partitions") == 1


def test_a_healthy_cluster_has_no_series_for_one_partition() -> None:
    assert "tidelog_cluster_unwell_partition" not in collected(key(), key()).values


def test_the_worst_partitions_have_series_up_to_the_limit() -> None:
    keys = [key(isr=(1,)) for _ in range(MANY)] + [key(NO_LEADER, ())]

    snapshot = collected(*keys)

    assert len(snapshot.values["tidelog_cluster_unwell_partition"]) == MAX_UNHEALTHY_SERIES
    assert value(snapshot, "cluster_unwell_partition", "sea", str(MANY), "offline") == 1
    assert snapshot.left_out == 0


def test_brokers_are_counted_by_state_and_each_has_its_backlog() -> None:
    context = Context(KEYS)
    for broker, state in ((1, "running"), (2, "running"), (3, "stopping")):
        registration = encode(BrokerRegistration("h:1", "", "uuid", state, 0, 0))
        name = KEYS.broker(broker)
        context.absorb(Changed(name, KeyValue(name, registration, broker, broker), broker))
    snapshot = MetricsSnapshot(CONTROLLER_METRICS)

    set_cluster_metrics(snapshot, context, [BrokerBacklog(1, 1, 12, 2_500, overdue=True)])

    assert value(snapshot, "cluster_brokers", "running") == 2
    assert value(snapshot, "cluster_brokers", "stopping") == 1
    assert value(snapshot, "state_change_backlog_partitions", "1") == 12
    assert value(snapshot, "state_change_backlog_age_seconds", "1") == 2.5
    assert value(snapshot, "state_change_overdue", "1") == 1


def test_a_very_large_cluster_keeps_within_the_series_limit() -> None:
    snapshot = MetricsSnapshot(CONTROLLER_METRICS)
    backlogs = [BrokerBacklog(broker, 1, 0, 0, overdue=False) for broker in range(1_000)]

    set_cluster_metrics(snapshot, Context(KEYS), backlogs)

    assert len(snapshot.values["tidelog_state_change_backlog_partitions"]) == MAX_PEER_SERIES


def test_operations_and_their_moves_are_counted_by_state_until_they_end() -> None:
    driver = with_topic()
    targets = [(n, (4, driver.state(n).replicas[0])) for n in range(3)]
    driver.controller.context.operations.max_moves_per_broker = 2
    driver.begin_operation(by_hand(*targets), "op")
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    moves = {"waiting": 0, "active": 2, "done": 1, "dropped": 0}
    assert counted(driver) == (1, {(state,): count for state, count in moves.items()})
    catch_up(driver)
    assert counted(driver) == (0, dict.fromkeys([(state,) for state in moves], 0))


def counted(driver: Driver) -> tuple[float, dict[tuple[str, ...], float]]:
    snapshot = MetricsSnapshot(CONTROLLER_METRICS)
    set_cluster_metrics(snapshot, driver.controller.context, ())
    return value(snapshot, "cluster_operations"), snapshot.values["tidelog_cluster_moves"]


def test_moving_partitions_are_counted() -> None:
    snapshot = collected(key(), replace(key(), replicas=TO_4.replicas, moving=TO_4))
    assert value(snapshot, "cluster_moving_partitions") == 1
