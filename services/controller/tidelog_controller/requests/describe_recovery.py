"""Requests to describe possible recoveries.

A description lists what the surviving replicas of partitions without a leader hold, and what each
choice of a leader would lose. No client can append while there is no leader, so a description is
valid as long as the key's revision is. The brokers describe their logs on request; those that do
not answer in time are named.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError, unknown_partition
from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.request_bounds import page_size
from tidelog_controller.control.log_descriptions import Descriptions
from tidelog_controller.policies.electability import is_intact, is_running, last_known
from tidelog_controller.policies.recovery import Logs, records_given_up
from tidelog_controller.requests.operation_views import position_of
from tidelog_controller.requests.request_checks import (
    check_choices,
    known_topic,
    request_timeout_ms,
)
from tidelog_controller.requests.snapshot_reads import SnapshotReads
from tidelog_controller.state.admin_answers import (
    RecoveryAnswer,
    RecoveryView,
    SurvivorView,
)
from tidelog_controller.state.admin_requests import DescribeRecovery
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Partition, Topic

# Partitions that one step describes, and checks for missing descriptions: a few milliseconds.
MAX_VIEWED_PER_STEP = 200


class RecoveryPage(NamedTuple):
    """The partitions without a leader that one answer describes."""

    partitions: tuple[TopicPartition, ...]
    next_page_token: str


@dataclass(slots=True)
class _Pending:
    """One waiting request.

    - `unchecked`: partitions that are not known to be described yet.
    - `views`: those of the first partitions, once all are described or time is up.
    """

    request_id: int
    page: RecoveryPage
    deadline_ms: int
    unchecked: deque[TopicPartition]
    viewed: int = 0
    views: list[RecoveryView] = field(default_factory=list)


class DescribeRecoveryHandler:
    """Handles requests to describe recoveries.

    The answer describes each partition at the step that describes it, and has the revision of its
    key. A choice that names this revision is rejected once the key has changed.
    """

    def __init__(self, context: Context, descriptions: Descriptions, reads: SnapshotReads) -> None:
        self._context = context
        self._descriptions = descriptions
        self._reads = reads
        self._pending: dict[int, _Pending] = {}
        self._has_more = False

    def handle(self, request: DescribeRecovery, now_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)

        def begin(page: RecoveryPage) -> list[Command]:
            unchecked = deque(page.partitions)
            pending = _Pending(request.request_id, page, deadline_ms, unchecked)
            self._pending[request.request_id] = pending
            self._context.count_inspection(page.partitions, 1)
            return []

        return self._reads.submit(
            request.request_id, lambda view: page_of(view.context, request), begin
        )

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        room, self._has_more = MAX_VIEWED_PER_STEP, False
        for pending in list(self._pending.values()):
            if not pending.viewed and now_ms < pending.deadline_ms and self._waits(pending):
                continue
            names = pending.page.partitions[pending.viewed : pending.viewed + room]
            views = map(self._view, names)
            pending.views += [view for view in views if view is not None]
            pending.viewed += len(names)
            room -= len(names)
            if pending.viewed < len(pending.page.partitions):
                self._has_more = True
                break
            del self._pending[pending.request_id]
            self._context.count_inspection(pending.page.partitions, -1)
            answer = RecoveryAnswer(tuple(pending.views), pending.page.next_page_token)
            commands.append(Reply(pending.request_id, AdminReply(None, answer=answer)))
        return commands

    @property
    def has_more(self) -> bool:
        """Whether an answer is in progress that takes further steps."""
        return self._has_more

    def wake_at_ms(self) -> int | None:
        return min((pending.deadline_ms for pending in self._pending.values()), default=None)

    def _waits(self, pending: _Pending) -> bool:
        """Checks partitions until they are described, a bounded number in each step."""
        room = max(MAX_VIEWED_PER_STEP // len(self._pending), 1)
        for _ in range(min(room, len(pending.unchecked))):
            if self._undescribed(pending.unchecked[0]):
                return True
            pending.unchecked.popleft()
        self._has_more |= bool(pending.unchecked)
        return bool(pending.unchecked)

    def _held(self, name: TopicPartition) -> tuple[Topic, Partition] | None:
        return _leaderless(self._context, name)

    def _logs(self, name: TopicPartition, held: Partition) -> Logs:
        return self._descriptions.logs(name, held.revision, self._context.live)

    def _undescribed(self, name: TopicPartition) -> bool:
        """Whether a running replica has not described its log yet."""
        found = self._held(name)
        if found is None:
            return False
        _, held = found
        logs = self._logs(name, held)
        running = [b for b in held.state.replicas if is_running(b, self._context.live)]
        return any(broker_id not in logs for broker_id in running)

    def _view(self, name: TopicPartition) -> RecoveryView | None:
        found = self._held(name)
        if found is None:
            return None
        topic, held = found
        state, logs = held.state, self._logs(name, held)
        survivors = tuple(self._survivor(b, topic, held, logs) for b in state.replicas)
        away = [b for b in last_known(state) if not is_running(b, self._context.live)]
        if away:
            waits_for = f"the replicas {away}, last known to be in sync, to return"
        elif topic.rules.recovery == "manual":
            waits_for = "an administrator's choice or consent: the topic's recovery is manual"
        else:
            waits_for = "its replicas to report their log end offsets"
        return RecoveryView(name, held, tuple(last_known(state)), waits_for, survivors)

    def _survivor(self, broker_id: int, topic: Topic, held: Partition, logs: Logs) -> SurvivorView:
        log = logs.get(broker_id)
        if log is None:
            problem = "its broker is not running; start the broker"
            if broker_id in logs:
                problem = "its broker has no log of the partition, or is repairing it"
            elif is_running(broker_id, self._context.live):
                problem = "its broker has not reported its log end offset yet; try again"
            return SurvivorView(broker_id, problem, None, False, -1)
        members = (*held.state.isr, *held.state.eligible)
        whole = any(
            is_intact(member, self._context.live, topic.rules)
            for member in members
            if member.broker_id == broker_id
        )
        lost = records_given_up(held.state, broker_id, logs)
        return SurvivorView(broker_id, "", log, whole, lost)


def page_of(context: Context, request: DescribeRecovery) -> RecoveryPage:
    """Selects the partitions of one page. Raises the `TidelogError` of the reply."""
    names = _requested(context, request)
    first = position_of(request.page_token)
    end = first + page_size(request.page_size)
    return RecoveryPage(tuple(names[first:end]), str(end) if end < len(names) else "")


def _requested(context: Context, request: DescribeRecovery) -> list[TopicPartition]:
    if not request.topic:
        if request.partitions or request.choices:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"partitions {_named(request)} are named without their topic; name the topic, or "
                "omit the partitions",
            )
        topics = sorted(set(context.topics) - set(context.deletions))
        every = (name for topic in topics for name in context.partitions_of(topic))
        return [name for name in every if _leaderless(context, name)]
    topic = known_topic(context, request.topic)
    numbers = _named(request) or range(topic.entry.partitions)
    wrong = [n for n in numbers if not 0 <= n < topic.entry.partitions]
    if wrong:
        raise unknown_partition(request.topic, wrong[0], topic.entry.partitions)
    check_choices(context, request.topic, request.choices)
    names = (TopicPartition(request.topic, number) for number in sorted(set(numbers)))
    return [name for name in names if _leaderless(context, name)]


def _leaderless(context: Context, name: TopicPartition) -> tuple[Topic, Partition] | None:
    """None: the partition has a leader, or never had one and is empty."""
    held, topic = context.partition(name), context.topics.get(name.topic)
    if held is None or topic is None or context.state_to_stay(name) is None:
        return None
    if held.state.leader != NO_LEADER or held.state.leader_epoch == NO_EPOCH:
        return None
    return topic, held


def _named(request: DescribeRecovery) -> list[int]:
    return [*request.partitions, *(choice.partition for choice in request.choices)]
