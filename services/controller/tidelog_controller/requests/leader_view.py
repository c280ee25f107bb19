"""Current and possible leaders of partitions. Reads the context, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.leader_balance import (
    PartitionLeadership,
    hindrance,
    maintenance_successors,
    preferred_elections,
)
from tidelog_controller.policies.leader_transfer import RequestedLeader, in_sync
from tidelog_controller.requests.request_checks import known_topic, no_such_partition
from tidelog_controller.state.admin_answers import LeaderResult
from tidelog_controller.state.admin_requests import (
    ElectPreferredLeaders,
    PartitionSelector,
    SetMaintenance,
)
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.schema import LeaderAndIsr

MAX_BROKERS_NAMED = 50


class LeaderPlan(NamedTuple):
    """The effect of a request for leaders.

    - `leaders`: the requested leaders, including those that lead already. They supersede earlier
      requests.
    - `wanted`: the partitions that have to get another leader, and can.
    - `results`: those of partitions that cannot, or in a dry run those of all, by partition.
    - `before`: the leaders at the time of the request.
    """

    leaders: Mapping[TopicPartition, int]
    wanted: dict[TopicPartition, RequestedLeader]
    before: dict[TopicPartition, int]
    results: list[LeaderResult]


class LeaderView:
    """`context`: a snapshot if another thread reads it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def elections(self, request: ElectPreferredLeaders) -> LeaderPlan:
        """Plans the election of preferred replicas; partitions that they lead already need none."""
        states = {
            name: self._context.state_to_stay(name) for name in self.selected(request.selectors)
        }
        wanted = {
            name: RequestedLeader(
                state.replicas[0], False, Cause.PREFERRED_LEADER, request.trace_id, *request.caller
            )
            for name, state in states.items()
            if state is not None and state.leader != state.replicas[0]
        }
        plan = self.plan(wanted, dry_run=request.dry_run)
        return plan._replace(leaders={n: s.replicas[0] for n, s in states.items() if s})

    def plan(
        self, wanted: Mapping[TopicPartition, RequestedLeader], *, dry_run: bool
    ) -> LeaderPlan:
        states = {name: self._context.state_to_stay(name) for name in wanted}
        before = {name: s.leader for name, s in states.items() if s is not None}
        plan = LeaderPlan({}, {}, before, [])
        for name, leader in wanted.items():
            why = self.hindrance(name, leader)
            if why is None and not dry_run:
                plan.wanted[name] = leader
            else:
                error = self.rejection(leader.leader, why) if why else None
                plan.results.append(LeaderResult(name, before[name], leader.leader, error))
        plan.results.sort(key=lambda result: result.partition)
        return plan._replace(leaders={n: leader.leader for n, leader in plan.wanted.items()})

    def successors(
        self, request: SetMaintenance
    ) -> tuple[dict[TopicPartition, tuple[int, int]], int]:
        """Returns the transfers of leadership away from the brokers of the request.

        By partition: the leader and its successor; and the number of partitions without a
        successor. Raises the `TidelogError` of the reply.
        """
        context = self._context
        if not 1 <= len(request.broker_ids) <= MAX_BROKERS_NAMED:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{len(request.broker_ids)} brokers are named; name 1 to {MAX_BROKERS_NAMED} "
                "at once",
            )
        for broker_id in request.broker_ids:
            # A mark may exist longer than its broker, and lasts until it is removed.
            if request.maintenance or broker_id not in context.maintenance:
                check_known_broker(context, broker_id)
        maintenance = {*context.maintenance, *request.broker_ids}
        led = self.led_by(request.broker_ids if request.maintenance else ())
        successors = maintenance_successors(led, context.running_brokers(), maintenance)
        leaders = {
            name: (led[name].leader, successor)
            for name, successor in sorted(successors.items())
            if successor is not None
        }
        return leaders, len(successors) - len(leaders)

    def balanced(
        self, threshold_percent: int, at_most: int
    ) -> dict[TopicPartition, RequestedLeader]:
        """The partitions of all topics that should return to their preferred leaders."""
        context = self._context
        partitions = self.led_by(None)
        chosen = preferred_elections(
            partitions,
            context.running_brokers(),
            context.maintenance,
            threshold_percent,
            at_most,
            context.rejecting_disks,
        )
        return {
            name: RequestedLeader(partitions[name].replicas[0], False, Cause.PREFERRED_LEADER)
            for name in chosen
        }

    def rejection(self, broker_id: int, why: str) -> TidelogError:
        try:
            check_known_broker(self._context, broker_id)
        except TidelogError as unknown:
            return unknown
        return TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, why)

    def hindrance(self, name: TopicPartition, wanted: RequestedLeader) -> str | None:
        state = self._context.state_to_stay(name)
        if state is None:
            return f"{name} has no replicas yet; wait until it has"
        leader = wanted.leader
        if leader not in state.replicas:
            return (
                f"broker {leader} holds no replica of {name}; those that do: {list(state.replicas)}"
            )
        if wanted.first and state.moving is not None:
            return f"{name} is being moved by operation {state.moving.operation}; wait for its end"
        first = self.leadership(name, state)._replace(
            replicas=(leader, *(b for b in state.replicas if b != leader))
        )
        context = self._context
        return hindrance(
            first, context.running_brokers(), context.maintenance, context.rejecting_disks
        )

    def led_by(self, broker_ids: Iterable[int] | None) -> dict[TopicPartition, PartitionLeadership]:
        """The partitions that these brokers lead; None: all partitions."""
        context = self._context
        found: dict[TopicPartition, PartitionLeadership] = {}
        leaders = None if broker_ids is None else frozenset(broker_ids)
        for topic in sorted(context.topics):
            for name in context.partitions_of(topic):
                state = context.state_to_stay(name)
                if state is not None and (leaders is None or state.leader in leaders):
                    found[name] = self.leadership(name, state)
        return found

    def leadership(self, name: TopicPartition, state: LeaderAndIsr) -> PartitionLeadership:
        topic = self._context.topics.get(name.topic)
        isr = in_sync(state, self._context.live, topic.rules) if topic is not None else ()
        return PartitionLeadership(state.replicas, state.leader, isr)

    def selected(self, selectors: Iterable[PartitionSelector]) -> list[TopicPartition]:
        names: dict[TopicPartition, None] = {}
        # Without repetitions: a topic may be named thousands of times and have thousands of
        # partitions.
        chosen = list(dict.fromkeys(selectors))
        if not chosen:
            return [n for topic in sorted(self._context.topics) for n in self.placed(topic)]
        for topic, numbers in chosen:
            known_topic(self._context, topic)
            for number in numbers:
                name = TopicPartition(topic, number)
                self.check_partition(name)
                names[name] = None
            if not numbers:
                names |= dict.fromkeys(self.placed(topic))
        return sorted(names)

    def placed(self, topic: str) -> list[TopicPartition]:
        names = self._context.partitions_of(topic)
        return [name for name in names if self._context.state_to_stay(name) is not None]

    def check_partition(self, name: TopicPartition) -> None:
        if self._context.state_to_stay(name) is None:
            raise no_such_partition(name, self._context.topics[name.topic])


def check_known_broker(context: Context, broker_id: int) -> None:
    """Raises UNKNOWN_BROKER unless the broker is registered or holds replicas."""
    if broker_id in context.brokers or next(context.replicas_on(broker_id), None) is not None:
        return
    raise TidelogError(
        ErrorCode.UNKNOWN_BROKER,
        f"broker {broker_id} is not registered and holds no replicas; those that are registered: "
        f"{sorted(context.brokers)}",
    )
