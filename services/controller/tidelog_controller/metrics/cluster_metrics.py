"""Metrics of the cluster from the active controller's state. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from tidelog.inspection.state_reports import BrokerBacklog
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Partition
from tidelog_controller.state.operation_registry import Operations
from tidelog_runtime.metadata.schema import (
    RUNNING,
    STOPPING,
    LeaderAndIsr,
)
from tidelog_runtime.telemetry.metrics import controller_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.controller_catalogue import MAX_UNHEALTHY_SERIES, PROBLEMS
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot


def problems_of(state: LeaderAndIsr) -> tuple[str, ...]:
    """Returns the partition's problems, worst first. Empty: the partition is healthy."""
    found = []
    # Replicas that a move adds are not missing before it has switched.
    in_sync, replicas = len(state.isr), len(state.settled_replicas)
    if state.leader == NO_LEADER:
        found.append("offline")
    if in_sync < state.min_isr:
        found.append("under_min_isr")
    elif in_sync == state.min_isr and in_sync < replicas:
        found.append("at_min_isr")
    if in_sync < replicas:
        found.append("under_replicated")
    if 0 <= state.leader_epoch == state.unclean_leader_epoch:
        found.append("unclean")
    return tuple(found)


class ClusterMetrics:
    """Counts partitions: `add` each one, then `write_to`."""

    def __init__(self) -> None:
        self.partitions = 0
        self.not_preferred = 0
        self.moving = 0
        self.problems = dict.fromkeys(PROBLEMS, 0)
        self._unwell: list[tuple[int, TopicPartition, tuple[str, ...]]] = []

    def add(self, partition: TopicPartition, held: Partition) -> None:
        state = held.state
        self.partitions += 1
        if state.leader not in (NO_LEADER, state.replicas[0]):
            self.not_preferred += 1
        self.moving += state.moving is not None
        found = problems_of(state)
        for problem in found:
            self.problems[problem] += 1
        if found:
            severity = len(PROBLEMS) - PROBLEMS.index(found[0])
            self._unwell.append((severity, partition, found))

    def write_to(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set(catalogue.PARTITIONS, self.partitions)
        snapshot.set(catalogue.NOT_PREFERRED, self.not_preferred)
        snapshot.set(catalogue.MOVING, self.moving)
        for problem, metric in (
            ("offline", catalogue.OFFLINE),
            ("under_min_isr", catalogue.CLUSTER_UNDER_MIN_ISR),
            ("at_min_isr", catalogue.CLUSTER_AT_MIN_ISR),
            ("under_replicated", catalogue.CLUSTER_UNDER_REPLICATED),
            ("unclean", catalogue.UNCLEAN_PARTITIONS),
        ):
            snapshot.set(metric, self.problems[problem])
        worst = nlargest(MAX_UNHEALTHY_SERIES, self._unwell, key=lambda unwell: unwell[0])
        series = [(name, problem) for _, name, found in worst for problem in found]
        for (topic, number), problem in series[:MAX_UNHEALTHY_SERIES]:
            snapshot.set(catalogue.UNHEALTHY_PARTITION, 1, topic, str(number), problem)


def set_cluster_metrics(
    snapshot: MetricsSnapshot, context: Context, backlogs: Iterable[BrokerBacklog]
) -> None:
    """Sets all metrics but those of partitions. `backlogs`: those of live brokers."""
    for state in (RUNNING, STOPPING):
        count = sum(1 for b in context.brokers.values() if b.registration.state == state)
        snapshot.set(catalogue.BROKERS, count, state)
    snapshot.set(catalogue.FEATURE_LEVEL, context.levels.level)
    snapshot.set(catalogue.TOPICS, len(context.topics))
    snapshot.set(catalogue.DELETIONS, len(context.deletions))
    set_operation_metrics(snapshot, context.operations)
    for backlog in backlogs:
        broker = str(backlog.broker_id)
        snapshot.set(catalogue.BACKLOG, backlog.pending, broker)
        snapshot.set(catalogue.BACKLOG_AGE, backlog.oldest_ms / 1000, broker)
        snapshot.set(catalogue.OVERDUE, backlog.overdue, broker)


def set_operation_metrics(snapshot: MetricsSnapshot, operations: Operations) -> None:
    """Sets the metrics of operations that have not ended, and of their moves."""
    standing = [i for i, held in operations.held.items() if not held.entry.state.has_ended]
    snapshot.set(catalogue.OPERATIONS, len(standing))
    moves = dict.fromkeys(catalogue.MOVE_STATES, 0)
    for operation_id in standing:
        work = operations.work_of(operation_id)
        if work is not None:
            moves["waiting"] += len(work.moves) - len(work.active)
            moves["active"] += len(work.active)
            moves["done"] += work.done
            moves["dropped"] += work.dropped
    for state, count in moves.items():
        snapshot.set(catalogue.MOVES, count, state)
