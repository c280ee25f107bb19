"""Leaders by request, by automatic balance, and during maintenance.

Requested leaders are soft state of this controller term. A request waits for them until its time is
up, and they remain requested afterwards; automatic balance finds again what it has not reached.
Marks of maintenance are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from itertools import islice

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.leader_balance import (
    LeaderBalancing,
)
from tidelog_controller.policies.leader_transfer import RequestedLeader
from tidelog_controller.requests.leader_view import LeaderPlan, LeaderView
from tidelog_controller.requests.post_move_election import PostMoveLeaderElection
from tidelog_controller.requests.request_checks import (
    known_topic,
    outcome_unknown,
    request_timeout_ms,
)
from tidelog_controller.requests.snapshot_reads import SnapshotReads
from tidelog_controller.state.admin_answers import LeaderResult, LeadersAnswer
from tidelog_controller.state.admin_requests import (
    ElectPreferredLeaders,
    MoveLeaders,
    SetMaintenance,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.mutations import MaintenanceChange
from tidelog_controller.state.transactions import Transactions

MAX_LEADERS_MOVED = 1_000
_QUEUED = "leadership transfers are serialized; this one is queued"
_IN_TURN = f"{_QUEUED} and happens while the broker is in sync"
_IN_TURN_ONCE_IN_SYNC = f"{_QUEUED} and happens once the broker is in sync"
_MAINTENANCE_ENDED = "another request took the broker out of maintenance, so it stays the leader"
# Elections that automatic balance begins at once.
MAX_BALANCED_AT_ONCE = 500
# Requested leaders that one step checks, over all waiting requests. A step checks those of requests
# and those that no request waits for any more; at a deadline, each costs some tens of µs. With many
# requests, each gets a few checks.
MAX_CHECKED_PER_STEP = 150
MIN_CHECKED_PER_STEP = 10
# The read of automatic balance; it has no request.
_BALANCE = -1


@dataclass(slots=True)
class _PendingTransfers:
    """One waiting request.

    - `wanted`: the requested leaders; those that were checked last are at the end.
    - `results`: the known ones.
    - `unchecked`: how many of `wanted` may have been reached since their last check.
    """

    request_id: int
    wanted: dict[TopicPartition, RequestedLeader]
    before: dict[TopicPartition, int]
    results: list[LeaderResult]
    deadline_ms: int
    unchecked: int = 0
    is_late: bool = False


_Leaders = dict[TopicPartition, tuple[int, int]]


@dataclass(slots=True)
class _PendingMaintenance:
    """One waiting request for maintenance.

    - `leaders`: the successors for what the brokers led at the time of the request.
    - `is_written`: the marks were as requested once; a later change of them wins.
    - `unchecked`: partitions that had their previous leader at their last check.
    - `is_over`: the answer is being built.
    - `why`: the reason why leaders stayed; empty: a dry run.
    """

    request: SetMaintenance
    leaders: _Leaders
    kept: int
    deadline_ms: int
    unchecked: deque[TopicPartition]
    is_written: bool = False
    is_over: bool = False
    why: str = ""
    results: list[LeaderResult] = field(default_factory=list)


class LeaderAdmin:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        balancing: LeaderBalancing | None,
        reads: SnapshotReads,
    ) -> None:
        self._context = context
        self._view = LeaderView(context)
        self._reads = reads
        self._transactions = transactions
        self._balancing = balancing
        self._moving: dict[int, _PendingTransfers] = {}
        self._maintenances: dict[int, _PendingMaintenance] = {}
        self._balance_at_ms: int | None = None
        # Leaders requested by automatic balance, or by requests that timed out.
        self._background_transfers: dict[TopicPartition, RequestedLeader] = {}
        self._background_unchecked = 0
        self._changes = 0  # that of the context, as last seen
        self._has_more = False
        # Partitions whose requested leader may differ from that of the context.
        self._retargeted: dict[TopicPartition, None] = {}
        # The last requested leader of partitions that a request may wait for.
        self._last_requested: dict[TopicPartition, int] = {}
        self._post_move_targets: dict[TopicPartition, RequestedLeader] = {}
        self._post_move_election = PostMoveLeaderElection(context, self._view.hindrance)

    # Requests.

    def elect(self, request: ElectPreferredLeaders, now_ms: int) -> list[Command]:
        """Begins the election of preferred replicas where they do not lead.

        Changes since they were read are noticed when they are checked.
        """
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)

        def begin(plan: LeaderPlan) -> list[Command]:
            return self._begin(request.request_id, plan, deadline_ms, dry_run=request.dry_run)

        return self._reads.submit(
            request.request_id, lambda view: LeaderView(view.context).elections(request), begin
        )

    def move(self, request: MoveLeaders, now_ms: int) -> list[Command]:
        wanted: dict[TopicPartition, RequestedLeader] = {}
        try:
            if not 1 <= len(request.moves) <= MAX_LEADERS_MOVED:
                raise _invalid(
                    f"{len(request.moves)} leaders are named; name 1 to {MAX_LEADERS_MOVED} at once"
                )
            for name, leader in sorted(request.moves):
                if name in wanted:
                    raise _invalid(f"{name} is named twice; name each partition once")
                topic = known_topic(self._context, name.topic)
                self._view.check_partition(name)
                busy = self._context.operations.busy_with(name, topic.entry.topic_id)
                if busy:
                    raise _busy(name, busy)
                wanted[name] = RequestedLeader(
                    leader, True, Cause.LEADER_MOVED, request.trace_id, *request.caller
                )
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        plan = self._view.plan(wanted, dry_run=request.dry_run)
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)
        return self._begin(request.request_id, plan, deadline_ms, dry_run=request.dry_run)

    def maintain(self, request: SetMaintenance, now_ms: int) -> list[Command]:
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)

        def begin(
            found: tuple[_Leaders, int],
        ) -> list[Command]:
            leaders, kept = found
            waiting = _PendingMaintenance(request, leaders, kept, deadline_ms, deque(leaders))
            waiting.is_over = request.dry_run
            self._maintenances[request.request_id] = waiting
            return []

        return self._reads.submit(
            request.request_id, lambda view: LeaderView(view.context).successors(request), begin
        )

    # Waiting requests.

    def elections_done(self, operation_id: str) -> bool:
        """Whether an operation whose moves are done may end."""
        return self._post_move_election.elections_done(operation_id)

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        has_changed = self._changes != self._context.changes
        self._changes, self._has_more = self._context.changes, False
        room = self._room(self._moving)
        for moving in list(self._moving.values()):
            if has_changed:
                moving.unchecked = len(moving.wanted)
            commands += self._advance_moving(moving, room, now_ms)
        for maintenance in list(self._maintenances.values()):
            commands += self._advance_maintaining(maintenance, now_ms)
        self._balance(now_ms)
        if has_changed:
            self._background_unchecked = len(self._background_transfers)
        self._drop_background_transfers()
        self._update_requested_leaders()
        if not (self._moving or self._background_transfers):
            self._last_requested.clear()
        return commands

    @property
    def has_more(self) -> bool:
        """Whether a step is due at once: more has changed than one step checks."""
        return self._has_more

    def _drop_background_transfers(self) -> None:
        """Drops leaders that no request waits for, once they were reached or cannot lead.

        A later change of a reached leader does not matter. An election that becomes possible only
        hours later would be unexpected.
        """
        some = list(islice(self._background_transfers.items(), MAX_CHECKED_PER_STEP))
        for name, target in some:
            del self._background_transfers[name]
            if not self._is_superseded(name, target) and self._is_expected(name, target):
                self._background_transfers[name] = target
            else:
                self._retargeted[name] = None
        self._background_unchecked = max(self._background_unchecked - len(some), 0)
        self._has_more |= self._background_unchecked > 0

    def _update_requested_leaders(self) -> None:
        """Updates the requested leaders of the context, for a bounded number of partitions."""
        before, moved = self._post_move_targets, self._post_move_election.advance()
        if moved != before:
            changed = (n for n in {**before, **moved} if before.get(n) != moved.get(n))
            self._retargeted |= dict.fromkeys(changed)
            self._post_move_targets = dict(moved)
        for name in list(islice(self._retargeted, self._room(self._moving))):
            del self._retargeted[name]
            self._context.request_leader(name, self._target_leader(name))
        self._has_more |= bool(self._retargeted)

    def _target_leader(self, name: TopicPartition) -> RequestedLeader | None:
        """The requested leader: by the latest request, else one that no request waits for."""
        targets = [moving.wanted.get(name) for moving in reversed(self._moving.values())]
        for target in (*targets, self._background_transfers.get(name)):
            if target is not None and not self._is_superseded(name, target):
                return target
        return self._post_move_targets.get(name)

    def wake_at_ms(self) -> int | None:
        times = [moving.deadline_ms for moving in self._moving.values()]
        times += [maintenance.deadline_ms for maintenance in self._maintenances.values()]
        if self._balance_at_ms is not None:
            times.append(self._balance_at_ms)
        return min(times, default=None)

    def _begin(
        self, request_id: int, plan: LeaderPlan, deadline_ms: int, *, dry_run: bool
    ) -> list[Command]:
        moving = _PendingTransfers(request_id, plan.wanted, plan.before, plan.results, deadline_ms)
        if dry_run:
            return [_leaders_reply(moving)]
        self._supersede(plan.leaders)
        moving.unchecked = len(moving.wanted)
        self._moving[request_id] = moving
        self._retargeted |= dict.fromkeys(moving.wanted)
        return []

    def _supersede(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Drops other requested leaders of these partitions: the last request wins.

        Earlier ones that are not reached would undo it. Requests that wait for them notice it at
        their next check.
        """
        wanted = self._context.requested_leaders
        for name in [n for n, b in leaders.items() if n in wanted and wanted[n].leader != b]:
            self._context.request_leader(name, None)
            self._retargeted[name] = None
        self._last_requested |= leaders
        self._background_unchecked = len(self._background_transfers)
        for other in self._moving.values():
            other.unchecked = len(other.wanted)

    def _is_superseded(self, name: TopicPartition, target: RequestedLeader) -> bool:
        return self._last_requested.get(name, target.leader) != target.leader

    def _advance_moving(self, moving: _PendingTransfers, room: int, now_ms: int) -> list[Command]:
        if now_ms >= moving.deadline_ms and not moving.is_late:
            moving.is_late, moving.unchecked = True, len(moving.wanted)
        some = list(islice(moving.wanted.items(), min(room, moving.unchecked)))
        for name, leader in some:
            del moving.wanted[name]
            result = self._result(moving, name, leader, now_ms)
            if result is None:
                moving.wanted[name] = leader
            else:
                moving.results.append(result)
                self._retargeted[name] = None
        moving.unchecked -= len(some)
        if moving.wanted:
            self._has_more |= moving.unchecked > 0
            return []
        del self._moving[moving.request_id]
        moving.results.sort(key=lambda result: result.partition)
        return [_leaders_reply(moving)]

    def _result(
        self, moving: _PendingTransfers, name: TopicPartition, wanted: RequestedLeader, now_ms: int
    ) -> LeaderResult | None:
        """None: not yet."""
        state, before = self._context.state_to_stay(name), moving.before[name]
        if self._is_superseded(name, wanted):
            return _superseded(name, before, wanted, self._last_requested[name])
        if state is None:
            gone = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{name} was deleted while the request waited",
                outcome_unknown=True,
            )
            return LeaderResult(name, before, wanted.leader, gone)
        if state.leader == wanted.leader and (
            not wanted.first or state.replicas[0] == wanted.leader
        ):
            return LeaderResult(name, before, wanted.leader, None)
        if not wanted.first and state.replicas[0] != wanted.leader:
            # An operation, or a move that ended in between, gave another order.
            return _superseded(name, before, wanted, state.replicas[0])
        if now_ms < moving.deadline_ms:
            return None
        why = self._view.hindrance(name, wanted)
        if why is None:
            self._background_transfers[name] = wanted
        late = TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"broker {wanted.leader} does not lead {name} yet: "
            f"{f'{why}; try again' if why else _IN_TURN}",
        )
        return LeaderResult(name, before, wanted.leader, late)

    # Maintenance.

    def _advance_maintaining(self, waiting: _PendingMaintenance, now_ms: int) -> list[Command]:
        if waiting.is_over:
            return self._answer_maintaining(waiting)
        change = self._maintenance_change(waiting.request)
        timed_out = now_ms >= waiting.deadline_ms
        if change is not None and not waiting.is_written:
            if timed_out:
                unknown = outcome_unknown("the brokers are in maintenance")
                return self._end_maintaining(waiting, AdminReply(unknown))
            if self._transactions.is_in_flight(change):
                return []
            return [self._transactions.begin(change)]
        waiting.is_written = True
        if change is None and not timed_out and self._waits(waiting):
            return []
        waiting.is_over = True
        waiting.why = _MAINTENANCE_ENDED if change is not None else _IN_TURN_ONCE_IN_SYNC
        return self._answer_maintaining(waiting)

    def _waits(self, waiting: _PendingMaintenance) -> bool:
        """Checks partitions until they have another leader, a bounded number in each step."""
        unchecked = waiting.unchecked
        for _ in range(min(self._room(self._maintenances), len(unchecked))):
            if self._leads(waiting.leaders[unchecked[0]][0], unchecked[0]):
                return True
            unchecked.popleft()
        self._has_more |= bool(unchecked)
        return bool(unchecked)

    def _answer_maintaining(self, waiting: _PendingMaintenance) -> list[Command]:
        """Adds results in each step, as of that time. A dry run names no leader that stayed."""
        done = len(waiting.results)
        for name, (before, successor) in islice(
            waiting.leaders.items(), done, done + self._room(self._maintenances)
        ):
            stays = bool(waiting.why) and self._leads(before, name)
            error = _still_led(name, waiting.why) if stays else None
            waiting.results.append(LeaderResult(name, before, successor, error))
        if len(waiting.results) < len(waiting.leaders):
            self._has_more = True
            return []
        answer = LeadersAnswer(tuple(waiting.results), waiting.kept)
        return self._end_maintaining(waiting, AdminReply(None, answer=answer))

    def _room(self, waiting: Sized) -> int:
        """The number of partitions that one step checks for each waiting request."""
        return max(MAX_CHECKED_PER_STEP // max(len(waiting), 1), MIN_CHECKED_PER_STEP)

    def _maintenance_change(self, request: SetMaintenance) -> MaintenanceChange | None:
        """None: everything is as requested."""
        marks = self._context.maintenance
        named = sorted(set(request.broker_ids))
        if request.maintenance:
            marked = tuple(broker_id for broker_id in named if broker_id not in marks)
            change = MaintenanceChange(marked, (), request.caller, request.trace_id)
        else:
            unmarked = tuple((b, marks[b].revision) for b in named if b in marks)
            change = MaintenanceChange((), unmarked, request.caller, request.trace_id)
        return change if change.marked or change.unmarked else None

    def _end_maintaining(self, waiting: _PendingMaintenance, reply: AdminReply) -> list[Command]:
        del self._maintenances[waiting.request.request_id]
        return [Reply(waiting.request.request_id, reply)]

    def _is_expected(self, name: TopicPartition, target: RequestedLeader) -> bool:
        """Whether the broker does not lead yet, and can."""
        state = self._context.state_to_stay(name)
        if state is None or self._view.hindrance(name, target) is not None:
            return False
        is_first = state.replicas[0] == target.leader
        return not is_first if target.first else is_first and state.leader != target.leader

    def _leads(self, broker_id: int, name: TopicPartition) -> bool:
        state = self._context.state_to_stay(name)
        return state is not None and state.leader == broker_id

    # Automatic balance.

    def _balance(self, now_ms: int) -> None:
        """Reads the balance when it is due; elections that are still pending continue."""
        if self._balancing is None:
            return
        if self._balance_at_ms is not None and now_ms < self._balance_at_ms:
            return
        due = self._balance_at_ms is not None
        self._balance_at_ms = now_ms + self._balancing.interval_ms
        if not due:
            return
        balancing = self._balancing

        def begin(balanced: dict[TopicPartition, RequestedLeader]) -> list[Command]:
            self._background_transfers = balanced | self._background_transfers
            self._retargeted |= dict.fromkeys(balanced)
            # A leader that no request waits for any more does not count as the last requested.
            for name in [n for n, target in balanced.items() if self._is_superseded(n, target)]:
                if not any(name in moving.wanted for moving in self._moving.values()):
                    del self._last_requested[name]
            return []

        self._reads.submit(
            _BALANCE,
            lambda view: LeaderView(view.context).balanced(
                balancing.threshold_percent, MAX_BALANCED_AT_ONCE
            ),
            begin,
        )


def _leaders_reply(moving: _PendingTransfers) -> Reply:
    return Reply(
        moving.request_id, AdminReply(None, answer=LeadersAnswer(tuple(moving.results), 0))
    )


def _still_led(name: TopicPartition, why: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT, f"{name} does not have its new leader yet; {why}"
    )


def _superseded(
    name: TopicPartition, before: int, wanted: RequestedLeader, instead: int
) -> LeaderResult:
    other = TidelogError(
        ErrorCode.NOT_ELIGIBLE_LEADER,
        f"broker {wanted.leader} does not lead {name}: a later request chose broker {instead}",
    )
    return LeaderResult(name, before, wanted.leader, other)


def _busy(name: TopicPartition, operation_id: str) -> TidelogError:
    return TidelogError(
        ErrorCode.PARTITION_BUSY,
        f"operation {operation_id} determines the replicas of {name} and their order until it "
        "ends; wait for its end, or cancel it first",
    )


def _invalid(problem: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_REQUEST, problem)
